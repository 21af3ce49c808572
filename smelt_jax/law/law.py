"""A law is a value: named coefficients with their bounds, named columns with their units, and a function of both."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Columns = Mapping[str, Any]  # name → float64[n]
STEP = 1e-30  # of the complex step: nothing is subtracted, so that it may be as small as it likes


@dataclasses.dataclass(frozen=True)
class Coefficient:
    """Attributes:
    name: as in the formula.
    low, high: its bounds.
    grid: where searches start.
    log: it is positive and searched in its logarithm, since it spans decades.
    """

    name: str
    low: float
    high: float
    grid: tuple[float, ...]
    log: bool = False


@dataclasses.dataclass(frozen=True)
class Law:
    """Attributes:
    name: as on the command line.
    formula: in words of its coefficients and columns.
    source: paper and equation.
    columns: name → what it is, with its unit. The loss, in nats per token, is what the law says of them.
    coefficients: of the formula.
    predict: coefficients and columns → loss, both by name, of shapes that broadcast. It has to be analytic in the
      coefficients (no abs, no maximum), since it is differentiated by a complex step.
    unit: of what N and D count: 1e9 for a law whose published coefficients hold with billions.
    inner: of a law of loops, the law that it is at R = 1, whose coefficients are its first ones.
    """

    name: str
    formula: str
    source: str
    columns: Mapping[str, str]
    coefficients: tuple[Coefficient, ...]
    predict: Callable[[Mapping[str, Any], Columns], Any]
    unit: float = 1.0
    inner: 'Law | None' = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients."""
        return tuple(coefficient.name for coefficient in self.coefficients)

    def loss(self, coefficients: Mapping[str, float], columns: Columns) -> np.ndarray:
        """float64, nats per token, of the columns' shape; infinite, or no number, where the law overflows."""
        with np.errstate(all='ignore'):
            return np.asarray(self.predict(coefficients, columns), np.float64)

    def loss_and_jacobian(self, coefficients: Any, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """loss[..., n] and its derivatives [..., P, n] by the coefficients [..., P], in the order of `names`.

        Exact, by one complex evaluation. Columns are [n], or have the leading axes of the coefficients and one for P.
        """
        values = np.asarray(coefficients, np.float64)
        steps = values[..., None, :] + 1j * STEP * np.eye(len(self.coefficients))
        with np.errstate(all='ignore'):
            found = np.asarray(self.predict({name: steps[..., i, None] for i, name in enumerate(self.names)}, columns))
        return found[..., 0, :].real, found.imag / STEP
