"""The best that a compute budget buys: loss, size and tokens along C = F · D, in closed form.

A law of one architecture is a floor and two powers, L = floor + P x^-p + Q D^-q, of a size x (FLOPs per token F, or
parameters N) and tokens D, at C = flops · x · D. Its least loss at C has p P x^-p = q Q D^-q, so that

    x* = (p P / (q Q))^(1/(p+q)) (C / flops)^(q/(p+q)),   D* = C / (flops x*),   L* = floor + G C^-gamma

with gamma = p q / (p + q), the frontier exponent.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from smelt_jax.law.fitted import Fitted


class Best(NamedTuple):
    """A point of a frontier: `size` is F* or N*, `tokens` D*, `loss` L* in nats per token."""

    size: Any
    tokens: Any
    loss: Any


@dataclasses.dataclass(frozen=True)
class Frontier:
    """Attributes are numbers, or arrays of shapes that broadcast, as of many replicates.

    Attributes:
      floor: loss that no size and no tokens undercut.
      by_size, size_exponent: P and p.
      by_tokens, tokens_exponent: Q and q.
      flops: C / (x · D): 1 where x is training FLOPs per token, 6 where it is parameters.
    """

    floor: Any
    by_size: Any
    size_exponent: Any
    by_tokens: Any
    tokens_exponent: Any
    flops: float

    @property
    def gamma(self) -> Any:
        """Of L* = floor + G C^-gamma."""
        return self.size_exponent * self.tokens_exponent / (self.size_exponent + self.tokens_exponent)

    def best(self, compute: Any) -> Best:
        """F* (or N*), D* and L* at C = `compute` FLOPs."""
        p, q = self.size_exponent, self.tokens_exponent
        ratio = np.log(p * self.by_size) - np.log(q * self.by_tokens)
        log_size = (ratio + q * (np.log(compute) - np.log(self.flops))) / (p + q)
        log_tokens = np.log(compute) - np.log(self.flops) - log_size
        loss = self.floor + self.by_size * np.exp(-p * log_size) + self.by_tokens * np.exp(-q * log_tokens)
        return Best(np.exp(log_size), np.exp(log_tokens), loss)

    def compute(self, loss: Any) -> Any:
        """C at which L* is `loss`; infinite for a loss at or below the floor."""
        above = np.asarray(loss - self.floor, float)
        unit = self.best(1.0).loss - self.floor  # G
        with np.errstate(divide='ignore', invalid='ignore', over='ignore'):
            return np.where(above > 0, (above / unit) ** (-1 / self.gamma), np.inf)

    def tokens_per_parameter(self, compute: Any) -> Any:
        """TPP: D* per dense-equivalent parameter.

        A dense model's FLOPs per token are 6 a parameter, so F* FLOPs are F*/6 parameters. The study's count, N_eq_act =
        (F/F0) N0, leaves the attention's scores out of N0 and has them in F0: its TPP is 3 to 6% more, in both arms alike.
        """
        best = self.best(compute)
        return best.tokens / (best.size * self.flops / 6)


def frontier(law: str, of: Mapping[str, Any], sparsity: float | None = None) -> Frontier:
    """The frontier of a law with the coefficients `of`, each a number or an array of many.

    Args:
      sparsity: S, which `smelt` takes and `chinchilla` does not.

    Raises:
      ValueError: the law is no floor with two powers; or it takes an S and has none, or the other way round.
    """
    size_of(law)
    if (law == 'smelt') != (sparsity is not None):
        raise ValueError(f'{law} {"has no sparsity; leave it out" if sparsity is not None else "takes a sparsity S"}')
    if sparsity is not None and not 0 <= sparsity < 1:
        raise ValueError(f'sparsity={sparsity}: S is from 0 to below 1')
    return SHAPES[law](of, sparsity)


def _smelt(of: Mapping[str, Any], sparsity: float) -> Frontier:
    by_size = of['A'] * np.exp(of['b'] * np.log1p(-sparsity))
    return Frontier(of['E'], by_size, of['a'], of['K'], of['c'], 1.0)


def _chinchilla(of: Mapping[str, Any], _: None) -> Frontier:
    return Frontier(of['E'], of['A'], of['alpha'], of['B'], of['beta'], 6.0)


SHAPES: dict[str, Any] = {'smelt': _smelt, 'chinchilla': _chinchilla}
SIZES = {'smelt': 'F', 'chinchilla': 'N'}  # the column that is the size


def size_of(law: str) -> str:
    """The column that is the size. Raises ValueError for a law that is no floor with two powers."""
    if law not in SIZES:
        raise ValueError(f'{law} has no frontier in closed form; {" and ".join(SIZES)} have')
    return SIZES[law]


def of_fit(fit: Fitted, sparsity: float | None = None) -> Frontier:
    """The frontier of a fit. ValueError as `frontier`."""
    return frontier(fit.law, fit.coefficients, sparsity)


def of_replicates(fit: Fitted, sparsity: float | None = None) -> Frontier:
    """The frontiers of its replicates, as arrays [replicates]."""
    columns = {name: np.array([each[name] for each in fit.replicates]) for name in fit.coefficients}
    return frontier(fit.law, columns, sparsity)


def outside(fit: Fitted, compute: float, best: Best, sparsity: float | None = None) -> tuple[str, ...]:
    """Names of what a frontier's point has outside of what was fitted: C, the size, D, S; of the ranges that are known."""
    columns = {'C': compute, size_of(fit.law): best.size, 'D': best.tokens}
    columns |= {} if sparsity is None else {'S': sparsity}
    return tuple(name for name, value in columns.items() if fit.outside({name: value}))
