"""How far coefficients would move on other rows like these: fits to rows, or cells, that are drawn with replacement."""

from collections.abc import Sequence

import numpy as np

from smelt_jax.law.descent import Descent
from smelt_jax.law.intervals import LEVEL, interval
from smelt_jax.law.objective import Objective
from smelt_jax.law.search import descend_all

KINDS = ('cells', 'points', 'none')
STEPS = 200


def draws(cells: np.ndarray, kind: str, count: int, seed: int) -> np.ndarray:
    """float64 [count, n]: how often each row is in each replicate.

    `points` draws n of n rows, `cells` as many cells as there are, each with all its rows. Cells are in the order of their
    names: of two tables with the same names and seed, replicate i of both has the same cells.
    """
    rng = np.random.default_rng(seed)
    names, member = np.unique(cells if kind == 'cells' else np.arange(len(cells)), return_inverse=True)
    picked = rng.integers(0, len(names), (count, len(names)))
    times = np.stack([np.bincount(row, minlength=len(names)) for row in picked])
    return times[:, member].astype(np.float64)


def replicates(objective: Objective, x: np.ndarray, cells: np.ndarray, kind: str, count: int, seed: int) -> Descent:
    """Fits to `count` draws of the rows, each from the optimum x [P] of all of them."""
    weights = draws(cells, kind, count, seed)
    return descend_all(objective, np.repeat(x[None], count, 0), STEPS, weights)


def intervals(drawn: Sequence[dict[str, float]], share: float = LEVEL) -> dict[str, tuple[float, float]]:
    """Name → percentiles of the replicates between which `share` of them lie."""
    found = {name: interval([one[name] for one in drawn], share) for name in drawn[0]}
    return {name: (float(low), float(high)) for name, (low, high) in found.items()}
