"""Fits a law to a table."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from smelt_jax.law.bootstrap import KINDS, intervals, replicates
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.goodness import MOST_CELLS, cells_left_out, held_out, identified, measures
from smelt_jax.law.objective import DELTA, Objective
from smelt_jax.law.search import Found, search
from smelt_jax.law.table import Table


@dataclasses.dataclass(frozen=True)
class Settings:
    """Attributes:
    residuals, delta: see `Objective`.
    starts: of the search.
    seed: of starts and bootstrap.
    bootstrap: `cells`, `points` or `none`: what is drawn.
    replicates: how often.
    leave_out: whether each cell is predicted from the others.
    """

    residuals: str = 'log'
    delta: float = DELTA
    starts: int = 500
    seed: int = 0
    bootstrap: str = 'none'
    replicates: int = 1000
    leave_out: bool = True

    def __post_init__(self) -> None:
        if self.bootstrap not in KINDS:
            raise ValueError(f'bootstrap={self.bootstrap!r}; there are {", ".join(KINDS)}')
        for name in ('starts', 'replicates'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name}={getattr(self, name)}; at least 1 is needed')


def objective_of(table: Table, settings: Settings) -> Objective:
    """Of the rows of `table` that are not held out."""
    kept = table.take(~table.held)
    return Objective(table.law, kept.columns, kept.loss, settings.residuals, settings.delta)


def found_in(table: Table, settings: Settings) -> Found:
    """The lowest place. A law of loops is searched at R = 1 first, and from there as well as from everywhere."""
    objective = objective_of(table, settings)
    return search(objective, settings.starts, settings.seed, _from_one_visit(objective, settings))


def _from_one_visit(objective: Objective, settings: Settings) -> list[np.ndarray]:
    """Variables to start from: of a law of loops, its inner law fitted to the rows of one visit, with each point of the grid of
    its map; none for other laws, or where such rows are too few."""
    inner = objective.law.inner
    once = objective.columns['R'] == 1 if inner is not None else np.zeros(0, bool)
    if inner is None or once.sum() < len(inner.coefficients):
        return []
    columns = {name: objective.columns[name][once] for name in inner.columns}
    part = dataclasses.replace(objective, law=inner, columns=columns, loss=objective.loss[once])
    first = part.coefficients(search(part, settings.starts // 4 + 1, settings.seed).x)
    grids = itertools.product(*(c.grid for c in objective.law.coefficients[len(first) :]))
    return [objective.variables(np.array([*first, *point])) for point in grids]


def fits(tables: Sequence[Table], settings: Settings = Settings()) -> list[Fitted]:
    """`fit` of each. What it raises of one of them it raises before it fits the first."""
    for table in tables:
        _checked(table, settings)
    return [fit(table, settings) for table in tables]


def _checked(table: Table, settings: Settings) -> Objective:
    table.check(settings.bootstrap == 'cells')
    return objective_of(table, settings)


@np.errstate(all='ignore')  # what overflows is infinite, and is met as such
def fit(table: Table, settings: Settings = Settings()) -> Fitted:
    """The law of `table` fitted to those of its rows that are not held out.

    Raises ValueError if there are fewer rows than coefficients, or one cell alone for a bootstrap over cells."""
    objective = _checked(table, settings)
    kept = table.take(~table.held)
    found = found_in(table, settings)
    details: dict[str, Any] = {
        'residuals': settings.residuals,
        'delta': settings.delta if np.isfinite(settings.delta) else None,
        'seed': settings.seed,
        'starts': found.starts,
        'went_on': found.onward,
        'agree': found.agree,
        'converged': found.converged,
        'message': found.message,
        'objective': objective.plain(found.x),
        **measures(objective, found.x),
    }
    notes = [*table.notes, *_said(objective, found)]
    drawn: list[dict[str, float]] = []
    if settings.bootstrap != 'none':
        ends = replicates(objective, found.x, kept.cells, settings.bootstrap, settings.replicates, settings.seed)
        drawn = [objective.named(x) for x in ends.x]
        details['bootstrap'] = settings.bootstrap
        details['cells'] = sorted(set(kept.cells.tolist()))
        details['intervals'] = {name: list(pair) for name, pair in intervals(drawn).items()}
        if not ends.converged.all():
            notes.append(f'{int((~ends.converged).sum())} of {len(drawn)} replicates had not converged')
    told = identified(objective, found.x, drawn)
    details.update(told.details)
    notes += told.notes
    cells = len(set(kept.cells.tolist()))
    if settings.leave_out and cells > 1:
        details['left_out_rmse'] = cells_left_out(objective, found.x, kept.cells)
        if cells > MOST_CELLS:
            what = f'of {cells} cells none was left out to be predicted'
            notes.append(f'{what}: that is done for {MOST_CELLS} or fewer')
    if table.held.any():
        details['held_out'] = held_out(table, objective.named(found.x))
    return Fitted(
        law=table.law.name,
        coefficients=objective.named(found.x),
        group=table.group,
        points=len(kept.loss),
        rmse=details['rmse'],
        ranges={name: (float(v.min()), float(v.max())) for name, v in kept.columns.items()},
        replicates=drawn,
        notes=notes,
        details=details,
    )


def _said(objective: Objective, found: Found) -> list[str]:
    notes = []
    if not found.converged:
        notes.append(f'the search had not converged ({found.message}); give it more --starts')
    elif found.agree < 2:
        notes.append(f'of the best {found.onward} starts {found.agree} ended here; give it more --starts')
    low, high = objective.bounds
    for c, x, bottom, top in zip(objective.law.coefficients, found.x, low, high, strict=True):
        if min(x - bottom, top - x) <= 1e-9 * (top - bottom):
            end = c.low if x - bottom < top - x else c.high
            notes.append(f'{c.name} is on its bound, {end:g}: the rows want it beyond, or do not tell')
    return notes
