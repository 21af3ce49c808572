"""What the rows cannot tell is told, and nothing else; numbers that overflow reach no terminal."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from lawcheck.synthetic import columns_for, made, smelt_columns, truths

from smelt_jax.law.fit import Settings, fit
from smelt_jax.law.goodness import of_losses
from smelt_jax.law.laws import law_named
from smelt_jax.law.table import Table

QUICK = Settings(starts=32, leave_out=False)
APART = 'the rows cannot tell {} apart: a change of one is undone by the others'


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        yield


def table(law: str, noise: float = 0.003, **columns: Any) -> Table:
    """Rows of the law's grid, some columns of which are others."""
    kind = law_named(law)
    at = columns_for(kind)
    size = len(next(iter(at.values())))
    return made(kind, truths()[law], at | {name: np.broadcast_to(v, size) for name, v in columns.items()}, noise)


def test_every_coefficient_of_what_is_one_number_is_named() -> None:
    notes = fit(table('chinchilla', N=1e8), QUICK).notes
    assert APART.format('E, A, alpha') in notes  # E + A / N^alpha
    notes = fit(table('chinchilla', N=1e8, D=1e10), QUICK).notes
    assert APART.format('E, A, B, alpha, beta') in notes


def test_sets_that_have_nothing_to_do_with_each_other_are_told_apart() -> None:
    notes = fit(table('smelt', S=0.9, D=1e11), QUICK).notes
    assert APART.format('A, b') in notes
    assert APART.format('E, K, c') in notes


def test_a_law_through_all_its_rows_has_nothing_to_be_judged_by() -> None:
    every = table('chinchilla')
    few = every.take(np.linspace(0, len(every.loss) - 1, 5).astype(int))
    said = '5 rows for 5 coefficients: no error is left to say how far they can be trusted'
    assert said in fit(few, QUICK).notes
    assert not [note for note in fit(every, QUICK).notes if 'no error is left' in note]


def test_one_replicate_has_no_spread() -> None:
    found = fit(table('smelt'), Settings(starts=32, bootstrap='points', replicates=1, leave_out=False))
    assert np.isfinite(list(found.details['correlations'].values())).all()
    assert found.notes == []


def test_a_loss_that_never_changes_has_no_r2() -> None:
    loss = np.full(7, 2.3)
    assert ((loss - loss.mean()) ** 2).sum() > 0  # in rounding
    assert of_losses(loss + 0.1, loss)['r2'] is None


@pytest.mark.parametrize('settings', [QUICK, Settings(starts=32, delta=1e300), Settings(starts=32, residuals='linear')])
def test_what_overflows_is_met_in_silence(settings: Settings) -> None:
    at = smelt_columns()
    kind = law_named('smelt')
    huge = Table(kind, at, np.full(72, 1e300), np.arange(72).astype(str), np.zeros(72, bool))
    assert fit(huge, settings).points == 72
    thin = table('looped-bounded-m-dense', m=1e-300)
    assert np.isfinite(fit(thin.take(np.arange(0, len(thin.loss), 9)), settings).rmse)
    assert not np.isfinite(kind.loss({**truths()['smelt'], 'K': 1e308}, {'F': 1e9, 'S': 0.5, 'D': 1e-9}))


def test_of_very_many_cells_none_is_left_out() -> None:
    every = table('smelt')
    many = every.take(np.arange(1200) % 72)
    many.columns['F'][:] *= np.linspace(1, 2, 1200)
    found = fit(Table(many.law, many.columns, many.loss, np.arange(1200).astype(str), many.held), Settings(starts=8))
    assert found.details['left_out_rmse'] is None
    assert 'of 1200 cells none was left out to be predicted: that is done for 1000 or fewer' in found.notes
