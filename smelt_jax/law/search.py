"""The lowest place of an objective, searched from many starts."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from smelt_jax.law.chunks import over_cores
from smelt_jax.law.descent import Descent, descend
from smelt_jax.law.objective import Objective

CHUNK = 32  # starts that descend together, fewer where they would be more than NUMBERS slopes
NUMBERS = 1 << 20
FIRST, NEXT, REST = 10, 30, 400  # steps of all starts, of the better quarter, and of those that go on
ONWARD, POLISHED = 24, 4  # starts that go on, and those of them that L-BFGS-B ends
SAME = 1e-6  # relative difference of values that are one optimum


@dataclasses.dataclass(frozen=True)
class Found:
    """Attributes:
    x: [P] variables.
    value: `Objective.huber` there.
    starts: how many there were.
    agree: how many of the `onward` ended at this value.
    onward: how many went on to the end.
    converged: whether the search ended because nothing was left to gain.
    message: what L-BFGS-B said.
    """

    x: np.ndarray
    value: float
    starts: int
    agree: int
    onward: int
    converged: bool
    message: str


def starts_of(objective: Objective, count: int, seed: int) -> np.ndarray:
    """[count, P] variables: half drawn from the grid of the law's coefficients, without repeats (all of it where it is no
    larger), the others at random between the grid's ends."""
    coefficients = objective.law.coefficients
    rng = np.random.default_rng(seed)
    sizes = [len(c.grid) for c in coefficients]
    total = math.prod(sizes)
    half = min(total, (count + 1) // 2)
    if total <= 1 << 20:
        picked = rng.permutation(total)[:half]
        indices = np.stack(np.unravel_index(picked, sizes), 1)
    else:
        indices = np.unique(rng.integers(0, sizes, (half, len(sizes))), axis=0)
    grid = np.stack([np.array(c.grid)[indices[:, i]] for i, c in enumerate(coefficients)], 1)
    ends = np.array([(min(c.grid), max(c.grid)) for c in coefficients])
    low, high = objective.variables(ends[:, 0]), objective.variables(ends[:, 1])
    drawn = rng.uniform(low, high, (count - len(grid), len(coefficients)))
    return np.concatenate([objective.variables(grid), drawn])


def descend_all(objective: Objective, x: np.ndarray, steps: int, weights: np.ndarray | None = None) -> Descent:
    """`descend` over the cores, in chunks, so that the result does not depend on how many there are."""
    size = min(CHUNK, max(1, NUMBERS // (x.shape[1] * len(objective.loss))))
    parts = over_cores(
        lambda part: descend(objective, x[part], steps, None if weights is None else weights[part]), len(x), size
    )
    return Descent(*(np.concatenate([getattr(p, name) for p in parts]) for name in ('x', 'value', 'converged')))


def search(objective: Objective, starts: int, seed: int, known: Sequence[np.ndarray] = ()) -> Found:
    """Descends from all starts, goes on from the best, and ends with scipy's L-BFGS-B.

    The first steps are least squares, whose valleys are wide; the others are on the objective itself. Of equal ends the one
    of the earlier start is taken, so that a seed has one answer.

    Args:
      objective: what is made small.
      starts: how many, besides `known`.
      seed: of those that are drawn.
      known: variables [P] of which one may be near.
    """
    x = np.concatenate([*(np.asarray(one)[None] for one in known), starts_of(objective, starts, seed)])
    squares = dataclasses.replace(objective, delta=np.inf)
    wide = descend_all(squares, x, FIRST)
    wide = descend_all(squares, wide.x[wide.best(max(4 * ONWARD, len(x) // 4))], NEXT)
    near = descend_all(objective, wide.x[wide.best(2 * ONWARD)], NEXT)
    far = descend_all(objective, near.x[near.best(ONWARD)], REST)
    low, high = objective.bounds
    ends = []
    for i in far.best(POLISHED):
        end = minimize(
            objective.value_and_gradient,
            far.x[i],
            jac=True,
            method='L-BFGS-B',
            bounds=list(zip(low, high, strict=True)),
            options={'maxiter': 2000, 'maxfun': 4000, 'ftol': 1e-15, 'gtol': 1e-9, 'maxcor': 20},
        )
        ends.append((float(end.fun), end.x, str(end.message)))
    value, best, message = min(ends, key=lambda end: end[0])  # min takes the first of equals
    last = descend(objective, best[None], REST)
    if last.value[0] < value:
        value, best = float(last.value[0]), last.x[0]
    agree = int((far.value <= value * (1 + SAME) + 1e-9).sum())
    return Found(best, value, len(x), agree, len(far.value), bool(last.converged[0]), message)
