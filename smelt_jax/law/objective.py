"""What a fit makes small: the sum of Huber losses of residuals, and its gradient, for many coefficients at a time."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from smelt_jax.law.law import Columns, Law

RESIDUALS = ('log', 'linear', 'log10')
DELTA = 1e-3
LN10 = float(np.log(10))


@dataclasses.dataclass(frozen=True)
class Objective:
    """A law beside losses.

    Coefficients are searched as variables x [..., P]: themselves, or their logarithm where `Coefficient.log`.

    Attributes:
      law: that is fitted.
      columns: of the law, name → float64 [n].
      loss: nats per token, float64 [n].
      residuals: `log` of predicted over measured loss, `log10` of it, or `linear`: their difference in nats.
      delta: where Huber's loss turns from a parabola to a line, in the unit of the residuals.
    """

    law: Law
    columns: Columns
    loss: np.ndarray
    residuals: str = 'log'
    delta: float = DELTA

    def __post_init__(self) -> None:
        if self.residuals not in RESIDUALS:
            raise ValueError(f'residuals={self.residuals!r}; there are {", ".join(RESIDUALS)}')
        if not self.delta > 0:
            raise ValueError(f'delta={self.delta} is no width of a parabola; give one above 0, as {DELTA}')

    @property
    def unit(self) -> float:
        """The residual that counts as 1 in `huber`. With the sum itself, which is 1e-3 at times, a search would end early: its
        test of progress is against 1."""
        return min(self.delta, DELTA)

    @property
    def logs(self) -> np.ndarray:
        """bool [P]: which variables are logarithms."""
        return np.array([c.log for c in self.law.coefficients])

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the variables, [P] and [P]."""
        ends = np.array([(c.low, c.high) for c in self.law.coefficients]).T
        low, high = (self.variables(end) for end in ends)
        return low, high

    def variables(self, coefficients: np.ndarray) -> np.ndarray:
        """Coefficients [..., P] as variables."""
        return np.where(self.logs, np.log(np.where(self.logs, coefficients, 1.0)), coefficients)

    def coefficients(self, x: np.ndarray) -> np.ndarray:
        """Variables [..., P] as coefficients."""
        return np.where(self.logs, np.exp(np.where(self.logs, x, 0.0)), x)

    def named(self, x: np.ndarray) -> dict[str, float]:
        """The coefficients of x [P], by name."""
        return dict(zip(self.law.names, self.coefficients(x).tolist(), strict=True))

    def start(self, coefficients: Mapping[str, float]) -> np.ndarray:
        """Variables [P] of coefficients by name."""
        return self.variables(np.array([coefficients[name] for name in self.law.names]))

    def residuals_of(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals [..., n], and their derivatives [..., P, n] by the variables [..., P]."""
        coefficients = self.coefficients(x)
        predicted, slopes = self.law.loss_and_jacobian(coefficients, self.columns)
        slopes *= np.where(self.logs, coefficients, 1.0)[..., None]
        if self.residuals == 'linear':
            return predicted - self.loss, slopes
        scale = LN10 if self.residuals == 'log10' else 1.0
        return np.log(predicted / self.loss) / scale, slopes / (predicted[..., None, :] * scale)

    def huber(self, residuals: np.ndarray, weights: np.ndarray | float = 1.0) -> np.ndarray:
        """Sum of Huber losses [...] of residuals [..., n], in units of `unit`²; infinite if one of them is not finite."""
        size, knee = np.abs(residuals) / self.unit, self.delta / self.unit
        total = (weights * np.where(size <= knee, size**2 / 2, knee * (size - knee / 2))).sum(-1)
        return np.where(np.isfinite(total), total, np.inf)

    def pull(self, residuals: np.ndarray) -> np.ndarray:
        """The derivative of `huber` by each residual over `unit`: the residual, cut at the knee."""
        return np.clip(residuals / self.unit, -self.delta / self.unit, self.delta / self.unit)

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """`huber` and its gradient [P] at x [P]."""
        with np.errstate(all='ignore'):
            residuals, slopes = self.residuals_of(x)
            value = float(self.huber(residuals))
        if not np.isfinite(value):
            return 1e30, np.zeros_like(x)  # a wall: no direction is known there
        return value, slopes @ self.pull(residuals) / self.unit

    def plain(self, x: np.ndarray) -> float:
        """The sum of Huber losses as papers print it, in the unit of the residuals, squared."""
        return float(self.huber(self.residuals_of(x)[0])) * self.unit**2
