"""Which model to train under budgets of compute and memory: its size N, its experts E, its visits R.

A model costs 6 N_unroll D to train and bits · N_total / 8 bytes to store (Scaling Laws for Looped Mixture of Experts, 2026).
What is left out there can be counted here: keys and values of a context, and the 2 N_unroll FLOPs of each served token.
Tokens D are what the FLOPs leave for training, so that every model spends the whole budget.

A step to a larger R or E counts only if it lowers the loss by epsilon, the fit's RMSE or more: R walks up from 1 and stops at
the first step that does not; E walks up, each with its own R, and stops likewise. Of the sizes the one of least loss is best.
"""

import dataclasses
from collections.abc import Sequence

from smelt_jax.law.fitted import Fitted
from smelt_jax.law.geometry import Size
from smelt_jax.law.maps import MAPS

EXPERTS, VISITS = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6, 7, 8)


@dataclasses.dataclass(frozen=True)
class Budget:
    """Attributes:
    flops: of training, and of serving if `served` is more than 0.
    memory: bytes, of weights and cache; None if it does not matter.
    bits: of a weight, as stored.
    context: tokens whose keys and values are kept in memory at a time, all sequences together; 0 leaves the cache out.
    cache_bits: of a value of the cache.
    served: tokens of inference that the FLOPs have to pay for, too.
    """

    flops: float
    memory: float | None = None
    bits: float = 4
    context: float = 0
    cache_bits: float = 16
    served: float = 0


@dataclasses.dataclass(frozen=True)
class Choice:
    """A model that a budget allows.

    Attributes:
      size, experts, visits: N, E, R.
      tokens: D.
      loss: nats per token.
      weights, cache: bytes.
      token_flops: 2 N_unroll, of a served token.
      effective: ρ_eff = N_eff / N_act.
      outside: columns that are outside of what was fitted.
    """

    size: Size
    experts: int
    visits: int
    tokens: float
    loss: float
    weights: float
    cache: float
    token_flops: float
    effective: float
    outside: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Search:
    """What is searched, and how.

    Attributes:
      fit: of a law in N and D, which may know E, N_loop, R and m as well.
      budget: that every model has to keep.
      epsilon: nats that a step has to lower the loss by.
      experts, visits: the ladders of E and R, rising.
    """

    fit: Fitted
    budget: Budget
    epsilon: float
    experts: Sequence[int] = EXPERTS
    visits: Sequence[int] = VISITS

    def __post_init__(self) -> None:
        """Raises ValueError for a law that knows no N and D, and for experts or visits that it does not know."""
        columns = self.fit.kind.columns
        if not {'N', 'D'} <= set(columns):
            raise ValueError(f'{self.fit.law} is no law of N and D; give a fit of looped-bounded-m-moe or the like')
        for name, flag, ladder in (('E', 'experts', self.experts), ('R', 'visits', self.visits)):
            if name not in columns and list(ladder) != [1]:
                raise ValueError(f'{self.fit.law} knows no {name}, so that it is 1; --{flag}=1')
        if not self.epsilon >= 0:
            raise ValueError(f'epsilon={self.epsilon}: nats, 0 or more')

    def at(self, size: Size, experts: int, visits: int) -> Choice | None:
        """The model, trained on the tokens that the budget leaves; None if it does not keep the budget."""
        budget, unrolled = self.budget, size.unrolled(visits)
        tokens = (budget.flops / unrolled - 2 * budget.served) / 6
        weights = size.weight_bytes(experts, budget.bits)
        cache = size.cache_bytes(visits, budget.context, budget.cache_bits)
        if tokens <= 0 or (budget.memory is not None and weights + cache > budget.memory):
            return None
        columns = columns_of(self.fit, size, experts, visits, tokens)
        return Choice(
            size=size,
            experts=experts,
            visits=visits,
            tokens=tokens,
            loss=float(self.fit.loss(columns)),
            weights=weights,
            cache=cache,
            token_flops=2 * unrolled,
            effective=effective(self.fit, size, experts, visits),
            outside=tuple(name for name, value in columns.items() if self.fit.outside({name: value})),
        )

    def with_visits(self, size: Size, experts: int) -> Choice | None:
        """At R*: the last of the visits that each lowered the loss by epsilon. None if one visit does not keep the budget."""
        return self._walk([self.at(size, experts, visits) for visits in self.visits])

    def with_experts(self, size: Size) -> Choice | None:
        """At E*, with its R*."""
        return self._walk([self.with_visits(size, experts) for experts in self.experts])

    def best(self, sizes: Sequence[Size]) -> list[Choice]:
        """One model a size that keeps the budget, best first. Raises ValueError if none does."""
        found = [choice for size in sizes if (choice := self.with_experts(size)) is not None]
        if not found:
            raise ValueError(
                'no model keeps the budget; give more --flops or --memory, fewer --bits, or smaller models'
            )
        return sorted(found, key=lambda choice: choice.loss)

    def _walk(self, steps: Sequence[Choice | None]) -> Choice | None:
        """Memory and FLOPs only grow with a step, so that nothing fits after one that does not."""
        here = steps[0]
        for step in steps[1:]:
            if here is None or step is None or here.loss - step.loss < self.epsilon:
                break
            here = step
        return here


def columns_of(fit: Fitted, size: Size, experts: float, visits: float, tokens: float) -> dict[str, float]:
    """Those of the law, in its unit."""
    unit = fit.kind.unit
    known = {
        'N': size.active / unit,
        'N_loop': size.looped / unit,
        'D': tokens / unit,
        'E': experts,
        'R': visits,
        'm': size.share(experts),
    }
    return {name: float(known[name]) for name in fit.kind.columns}


def effective(fit: Fitted, size: Size, experts: float, visits: float) -> float:
    """ρ_eff = N_eff / N_act: what R visits are worth; 1 by a law that knows no visits."""
    for by in MAPS:
        if fit.law in (f'looped-{by.name}-dense', f'looped-{by.name}-moe'):
            columns = columns_of(fit, size, experts, visits, 1.0)
            return float(by.effective(fit.coefficients, columns) / columns['N'])
    return 1.0


def check_visits(fit: Fitted) -> None:
    """Raises ValueError if its law knows none: all of `effective` would be 1."""
    if 'R' not in fit.kind.columns:
        raise ValueError(f'{fit.law} knows no visits; give a fit of a looped law')
