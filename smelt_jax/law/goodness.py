"""How well a fitted law describes its rows, and which coefficients they can tell apart."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from smelt_jax.law.objective import Objective
from smelt_jax.law.search import descend_all
from smelt_jax.law.table import Table

STEPS = 200
CONDITION = 1e4  # of the scaled Jacobian: above, some direction is 1e8 times less certain than another in variance
CORRELATION = 0.995
LOOSE = 10.0  # times: an interval of a positive coefficient that spans more says little of it


@dataclasses.dataclass(frozen=True)
class Identified:
    """Attributes:
    notes: plain warnings.
    details: `condition` of the Jacobian, scaled to columns of length 1; `correlations` of pairs, as 'A alpha'.
    """

    notes: list[str]
    details: dict[str, Any]


def of_losses(predicted: np.ndarray, loss: np.ndarray) -> dict[str, Any]:
    """RMSE, largest error (nats) and R² of predictions; None for R² where all losses are equal."""
    error = predicted - loss
    spread = float(((loss - loss.mean()) ** 2).sum())
    return {
        'rmse': float(np.sqrt((error**2).mean())),
        'largest': float(np.abs(error).max()),
        'r2': 1 - float((error**2).sum()) / spread if spread else None,
    }


def measures(objective: Objective, x: np.ndarray) -> dict[str, Any]:
    """`of_losses` of the rows that were fitted, and the RMSE of their residuals."""
    residuals = objective.residuals_of(x)[0]
    predicted = objective.law.loss(objective.named(x), objective.columns)
    return {**of_losses(predicted, objective.loss), 'rms_residual': float(np.sqrt((residuals**2).mean()))}


def held_out(table: Table, coefficients: Mapping[str, float]) -> dict[str, Any]:
    """`of_losses` of the rows that were held out, and how many they are."""
    kept = table.take(table.held)
    return {**of_losses(table.law.loss(coefficients, kept.columns), kept.loss), 'points': len(kept.loss)}


def cells_left_out(objective: Objective, x: np.ndarray, cells: np.ndarray) -> float | None:
    """RMSE (nats) of each cell's losses as predicted by a fit to the other cells; None if there are too few rows for it."""
    names, member = np.unique(cells, return_inverse=True)
    weights = (member[None] != np.arange(len(names))[:, None]).astype(np.float64)
    if weights.sum(1).min() < len(x):
        return None
    ends = descend_all(objective, np.repeat(x[None], len(names), 0), STEPS, weights)
    predicted, _ = objective.law.loss_and_jacobian(objective.coefficients(ends.x), objective.columns)
    return float(np.sqrt(((predicted - objective.loss)[weights == 0] ** 2).mean()))


def identified(objective: Objective, x: np.ndarray, drawn: Sequence[Mapping[str, float]]) -> Identified:
    """What the rows say of the coefficients at x [P]: from the Jacobian, and from bootstrap replicates if there are any."""
    names = objective.law.names
    slopes = objective.residuals_of(x)[1]
    lengths = np.sqrt((slopes**2).sum(1))
    felt = lengths > 1e-12 * lengths.max()
    notes = [
        f'no row tells anything of {name}: it is where the search began'
        for name, one in zip(names, felt, strict=True)
        if not one
    ]
    scaled = slopes[felt] / lengths[felt, None]
    condition = float(np.linalg.cond(scaled))
    kept = [name for name, one in zip(names, felt, strict=True) if one]
    details: dict[str, Any] = {'condition': condition}
    if condition > CONDITION:
        blind = np.linalg.svd(scaled.T)[2][-1]
        involved = [name for name, share in zip(kept, np.abs(blind), strict=True) if share > 0.3 * np.abs(blind).max()]
        notes.append(
            f'the rows can hardly tell {", ".join(involved)} apart (condition {condition:.0e}): a change of one is undone by '
            f'the others. Predictions within the rows are fine; the values alone mean little'
        )
    if drawn:
        values = objective.variables(np.array([[one[name] for name in names] for one in drawn]))
        varies = values.std(0) > 0
        with np.errstate(all='ignore'):
            matrix = np.corrcoef(values.T)
        details['correlations'] = {
            f'{names[i]} {names[j]}': float(matrix[i, j])
            for i, j in itertools.combinations(range(len(names)), 2)
            if varies[i] and varies[j]
        }
        tied = [pair for pair, value in details['correlations'].items() if abs(value) > CORRELATION]
        if tied:
            notes.append(f'replicates move together in {"; ".join(tied)}: read these together, not alone')
        for i, c in enumerate(objective.law.coefficients):
            span = float(np.exp(np.subtract(*np.percentile(values[:, i], [97.5, 2.5])))) if c.log else 0.0
            if span > LOOSE:
                notes.append(
                    f'the interval of {c.name} spans a factor of {span:.0f}: the rows hardly say how large it is'
                )
    return Identified(notes, details)
