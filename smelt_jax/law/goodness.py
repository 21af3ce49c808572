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
MOST_CELLS = 1000  # left out one by one, each with a fit of its own
WITHIN = 3.92  # standard deviations that 95% of a normal distribution take
BLIND = 1e7  # condition of the scaled Jacobian: above, a direction is lost in rounding
LOOSE = 10.0  # times: a positive coefficient whose 95% span more is hardly known


@dataclasses.dataclass(frozen=True)
class Identified:
    """Attributes:
    notes: plain warnings.
    details: `condition` of the Jacobian, scaled to columns of length 1; `correlations` of pairs of variables, as 'A alpha'.
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
        'r2': 1 - float((error**2).sum()) / spread if np.ptp(loss) else None,
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
    """RMSE (nats) of each cell's losses as predicted by a fit to the other cells; None of too few rows for it, or more than
    MOST_CELLS cells."""
    names, member = np.unique(cells, return_inverse=True)
    if len(names) > MOST_CELLS:
        return None
    weights = (member[None] != np.arange(len(names))[:, None]).astype(np.float64)
    if weights.sum(1).min() < len(x):
        return None
    ends = descend_all(objective, np.repeat(x[None], len(names), 0), STEPS, weights)
    predicted, _ = objective.law.loss_and_jacobian(objective.coefficients(ends.x), objective.columns)
    return float(np.sqrt(((predicted - objective.loss)[weights == 0] ** 2).mean()))


def identified(objective: Objective, x: np.ndarray, drawn: Sequence[Mapping[str, float]]) -> Identified:
    """What the rows say of the coefficients at x [P]: by the replicates if there are any, else by the Jacobian and the size of
    the residuals."""
    law = objective.law
    residuals, slopes = objective.residuals_of(x)
    lengths = np.sqrt((slopes**2).sum(1))
    felt = lengths > 1e-12 * lengths.max()
    notes = [f'no row tells anything of {law.names[i]}; its value is arbitrary' for i in np.flatnonzero(~felt)]
    scaled = slopes[felt] / lengths[felt, None]
    condition = float(np.linalg.cond(scaled))
    names = [law.names[i] for i in np.flatnonzero(felt)]
    for involved in _stand_ins(scaled):
        which = ', '.join(names[i] for i in involved)
        notes.append(f'the rows cannot tell {which} apart: a change of one is undone by the others')
    if len(residuals) == len(law.names):
        what = f'{len(residuals)} rows for {len(law.names)} coefficients'
        notes.append(f'{what}: no error is left to say how far they can be trusted')
    if len(drawn) > 1:
        values = objective.variables(np.array([[one[name] for name in law.names] for one in drawn]))[:, felt]
        covariance = np.cov(values.T)
    else:
        free = max(1, len(residuals) - len(names))
        covariance = np.linalg.pinv(scaled @ scaled.T) * (residuals**2).sum() / free
        covariance /= np.outer(lengths[felt], lengths[felt])
    covariance = np.atleast_2d(covariance)
    deviation = np.sqrt(np.diag(covariance))
    safe = np.where(deviation > 0, deviation, 1.0)
    correlations = covariance / np.outer(safe, safe)
    pairs = itertools.combinations(range(len(names)), 2)
    details = {
        'condition': condition,
        'correlations': {f'{names[i]} {names[j]}': float(correlations[i, j]) for i, j in pairs},
    }
    for i, (coefficient, at) in enumerate(zip(np.array(law.coefficients, object)[felt], x[felt], strict=True)):
        width = WITHIN * deviation[i]
        loose = np.exp(min(width, 700.0)) > LOOSE if coefficient.log else width > 2 * abs(at)
        if loose:
            others = np.abs(correlations[i]) * (np.arange(len(names)) != i)
            partner = f'; it trades with {names[int(np.argmax(others))]} (correlation {others.max():.3f})'
            how = (
                f'95% spans a factor of {np.exp(min(width, 700.0)):.2g}'
                if coefficient.log
                else '95% goes beyond 0 and twice it'
            )
            notes.append(
                f'the rows hardly say how large {coefficient.name} is: {how}' + partner * bool(others.max() > 0.5)
            )
    return Identified(notes, details)


def _stand_ins(scaled: np.ndarray) -> list[list[int]]:
    """Sets of coefficients of which a change of one is undone by the others, from slopes [P, n] of length 1: those that share a
    direction which the rows do not see."""
    _, sizes, axes = np.linalg.svd(scaled.T, full_matrices=False)
    unseen = axes[sizes * BLIND < sizes[0]]
    shares = np.abs(unseen.T @ unseen)  # [P, P], whatever the axes among those directions
    moved = np.sqrt(np.diag(shares))
    left = [i for i in np.argsort(-moved, kind='stable').tolist() if moved[i] > 0.3 * moved.max()]
    np.fill_diagonal(shares, 0)
    found = []
    while left:
        mine = {left[0], int(np.argmax(shares[left[0]]))}
        while more := {i for i in left if shares[i, list(mine)].max() > 0.02} - mine:
            mine |= more
        found.append(sorted(mine))
        left = [i for i in left if i not in mine]
    return sorted(found)
