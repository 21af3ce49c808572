"""From loss to score: a sigmoid calibrated on one arm, and what the other arm scores beyond it at the same loss.

    score = low + (high − low) / (1 + e^((loss − middle) / width)),   width > 0

`high` is the score of a loss far below `middle`, `low` of one far above: for a score where less is better, as a
cross-entropy, high is below low. If both arms lie on one curve, the second arm's residuals are 0 on average, and what it
wins it wins by its loss alone.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from smelt_jax.law.bootstrap import draws
from smelt_jax.law.intervals import interval

MIDDLES, WIDTHS = (0.1, 0.5, 0.9), (0.05, 0.2, 1.0)  # where searches start, as shares of the losses' range


@dataclasses.dataclass(frozen=True)
class Sigmoid:
    """low, high in the unit of the score; middle, width in nats per token."""

    low: float
    high: float
    middle: float
    width: float

    def __call__(self, loss: np.ndarray) -> np.ndarray:
        """Scores at losses, of the same shape."""
        return _value(np.array(dataclasses.astuple(self)), np.asarray(loss, float))


@dataclasses.dataclass(frozen=True)
class Residual:
    """What an arm scores beyond the curve.

    Attributes:
      group: of the points, as a scale; 'all' of all.
      points: how many.
      mean: of the residuals δ_i, in the unit of the score.
      low, high: the interval at `LEVEL` by bootstrap over cells; the curve is fitted anew each time.
    """

    group: str
    points: int
    mean: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Wins:
    """Pairs that the second arm wins, that are equal, and that it loses."""

    won: int
    tied: int
    lost: int


def fit_sigmoid(losses: np.ndarray, scores: np.ndarray, start: Sigmoid | None = None) -> Sigmoid:
    """Least squares with the exact gradient, from several starts or from `start`; the lowest end is taken.

    Bounds: low and high no further from the scores than the scores' own range, so that few points give no curve of which
    they see a hundredth; middle within the losses' range of the losses, width from a hundredth to ten times that range.

    Raises:
      ValueError: there are fewer than five points, or all losses are the same.
    """
    losses, scores = np.asarray(losses, float), np.asarray(scores, float)
    if len(losses) < 5 or np.ptp(losses) == 0:
        raise ValueError(
            f'{len(losses)} points at {len(np.unique(losses))} losses: a sigmoid takes five points or more'
        )
    span, height = np.ptp(losses), max(np.ptp(scores), 1e-12)
    bottom, top = scores.min(), scores.max()
    lower = np.array([bottom - height, bottom - height, losses.min() - span, 0.01 * span])
    upper = np.array([top + height, top + height, losses.max() + span, 10 * span])
    falls = np.polyfit(losses, scores, 1)[0] < 0
    ends = (bottom, top) if falls else (top, bottom)
    starts = [dataclasses.astuple(start)] if start else []
    starts += [(*ends, losses.min() + m * span, w * span) for m in MIDDLES for w in WIDTHS] if not start else []
    scale = np.array([height, height, span, span])
    found = [
        least_squares(
            lambda x: (_value(x, losses) - scores) / height,
            np.clip(x0, lower + 1e-9 * scale, upper - 1e-9 * scale),
            jac=lambda x: _slopes(x, losses).T / height,
            bounds=(lower, upper),
            x_scale=scale,
            xtol=1e-12,
            ftol=1e-12,
            gtol=1e-12,
            max_nfev=2000,
        )
        for x0 in starts
    ]
    return Sigmoid(*map(float, min(found, key=lambda end: end.cost).x))


def residuals(curve: Sigmoid, losses: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """δ_i: what each point scores beyond the curve, in the unit of the score."""
    return np.asarray(scores, float) - curve(losses)


def beyond(
    reference: tuple[np.ndarray, np.ndarray],
    target: tuple[np.ndarray, np.ndarray],
    groups: Sequence[str],
    cells: Sequence[Any],
    replicates: int = 1000,
    seed: int = 0,
) -> tuple[Sigmoid, list[Residual]]:
    """The curve of the reference, and the target's residuals by group and of all.

    Args:
      reference, target: (losses [n], scores [n]); row i of both is a pair, and is drawn as one.
      groups: [n] labels of the pairs, as a scale.
      cells: [n] labels: pairs with the same one are drawn together, as the endpoints that grew from one trunk.

    Raises:
      ValueError: as `fit_sigmoid`, the arms have different numbers of points, or there is one cell alone.
    """
    (losses, scores), labels, drawn = map(np.asarray, reference), np.asarray(groups), np.asarray(cells)
    if len({len(losses), len(target[0]), len(labels), len(drawn)}) > 1:
        raise ValueError(f'{len(losses)} points against {len(target[0])}: the arms are compared pair by pair')
    if len(set(cells)) < 2:
        raise ValueError('the pairs are of one cell: there is nothing to draw; --cells=COLUMN,… says what there is')
    curve = fit_sigmoid(losses, scores)
    found = residuals(curve, *target)
    each = []
    for times in draws(drawn, 'cells', replicates, seed).astype(int):
        rows = np.repeat(np.arange(len(losses)), times)
        if len(np.unique(losses[rows])) < 5:
            continue  # too few to fit to
        again = fit_sigmoid(losses[rows], scores[rows], curve)
        deltas = residuals(again, np.asarray(target[0])[rows], np.asarray(target[1])[rows])
        each.append(
            {name: float(deltas[mask[rows]].mean()) for name, mask in _masks(labels).items() if mask[rows].any()}
        )
    results = []
    for name, mask in _masks(labels).items():
        means = [one[name] for one in each if name in one]
        low, high = interval(means) if means else (np.nan, np.nan)
        results.append(Residual(name, int(mask.sum()), float(found[mask].mean()), float(low), float(high)))
    return curve, results


def wins(reference: np.ndarray, target: np.ndarray, lower_is_better: bool = False) -> Wins:
    """Counts pairs of scores by which arm has the better one."""
    ahead = np.sign(np.asarray(target, float) - np.asarray(reference, float)) * (-1 if lower_is_better else 1)
    return Wins(*(int((ahead == sign).sum()) for sign in (1, 0, -1)))


def _masks(labels: np.ndarray) -> Mapping[str, np.ndarray]:
    names = [] if len(set(labels)) < 2 else list(dict.fromkeys(labels))
    return {**{str(name): labels == name for name in names}, 'all': np.ones(len(labels), bool)}


def _value(x: np.ndarray, losses: np.ndarray) -> np.ndarray:
    low, high, middle, width = x
    return low + (high - low) * _logistic((middle - losses) / width)


def _slopes(x: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """[4, n]: derivatives by low, high, middle, width."""
    low, high, middle, width = x
    at = (middle - losses) / width
    share = _logistic(at)
    steep = (high - low) * share * (1 - share) / width
    return np.stack([1 - share, share, steep, -steep * at])


def _logistic(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))
