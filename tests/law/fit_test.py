"""Fits: the truth comes back, whatever the order, the cores and the start; what the rows do not tell is said."""

import dataclasses
import itertools
import os

import numpy as np
import pytest
from lawcheck import synthetic
from lawcheck.synthetic import columns_for, looped_columns, made, smelt_columns, truths
from scipy.optimize import minimize

from smelt_jax.law import fitted
from smelt_jax.law.bootstrap import draws, intervals, replicates
from smelt_jax.law.chunks import over_cores
from smelt_jax.law.fit import Settings, fit, fits, found_in, objective_of
from smelt_jax.law.laws import law_named, laws
from smelt_jax.law.objective import Objective
from smelt_jax.law.published import fits_of
from smelt_jax.law.search import search, starts_of
from smelt_jax.law.table import Table

QUICK = Settings(starts=64, leave_out=False)


def smelt_table(noise: float = 0.005, seed: int = 0) -> Table:
    return made(law_named('smelt'), truths()['smelt'], smelt_columns(), noise, seed)


@pytest.mark.parametrize('name', sorted(laws()))
def test_without_noise_every_law_is_found_again(name: str) -> None:
    check = synthetic.recovery(name, QUICK)
    assert check.found < 1e-6


def test_no_start_of_lbfgs_alone_finds_a_lower_place() -> None:
    objective = objective_of(smelt_table(), QUICK)
    found = search(objective, 500, 0)
    low, high = objective.bounds
    alone = min(
        minimize(
            objective.value_and_gradient,
            x,
            jac=True,
            method='L-BFGS-B',
            bounds=list(zip(low, high, strict=True)),
            options={'maxiter': 3000, 'maxfun': 6000, 'ftol': 1e-15, 'gtol': 1e-9, 'maxcor': 20},
        ).fun
        for x in starts_of(objective, 24, 1)
    )
    assert found.value <= alone * (1 + 1e-9)
    assert alone <= found.value * (1 + 1e-3)  # and it is the same valley
    assert found.converged
    assert found.agree == found.onward
    assert found.starts == 500


def test_starts_are_inside_the_bounds_and_as_many_as_asked_for() -> None:
    for name in ('clark-dense', 'smelt', 'looped-bounded-m-moe'):
        law = law_named(name)
        objective = objective_of(made(law, truths()[name], columns_for(law)), QUICK)
        low, high = objective.bounds
        for count in (1, 7, 500):
            x = starts_of(objective, count, 0)
            assert x.shape == (count, len(low))
            assert ((x >= low) & (x <= high)).all()
            assert (x == starts_of(objective, count, 0)).all()
        assert len(np.unique(x, axis=0)) == 500
        assert not (x == starts_of(objective, 500, 1)).all()


def test_the_number_of_cores_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = dataclasses.replace(QUICK, bootstrap='cells', replicates=100)
    first = fit(smelt_table(), settings)
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: set(range(7)), raising=False)
    assert fit(smelt_table(), settings) == first
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: {0}, raising=False)
    assert fit(smelt_table(), settings) == first


def test_starts_that_descend_in_other_company_end_at_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fit(smelt_table(), QUICK)
    sizes = []
    monkeypatch.setattr('smelt_jax.law.search.NUMBERS', 72 * 6 * 5)
    monkeypatch.setattr(
        'smelt_jax.law.search.over_cores', lambda work, n, size: sizes.append(size) or over_cores(work, n, size)
    )
    assert fit(smelt_table(), QUICK) == first
    assert set(sizes) == {5}  # what a long table has room for


@pytest.mark.parametrize('kind', ['points', 'cells'])
def test_replicates_from_the_optimum_are_those_from_anywhere(kind: str) -> None:
    table = smelt_table()
    objective = objective_of(table, QUICK)
    x = found_in(table, QUICK).x
    warm = replicates(objective, x, table.cells, kind, 6, 0)
    assert warm.converged.all()
    for weights, value, end in zip(draws(table.cells, kind, 6, 0), warm.value, warm.x, strict=True):
        rows = np.repeat(np.arange(len(weights)), weights.astype(int))
        drawn = objective_of(table.take(rows), QUICK)
        cold = search(drawn, 64, 3)
        assert value == pytest.approx(cold.value, rel=1e-9)
        np.testing.assert_allclose(end, cold.x, rtol=1e-4)


def test_draws_keep_cells_whole_and_pair_two_tables() -> None:
    cells = np.array(['b', 'a', 'b', 'c', 'a', 'b'])
    times = draws(cells, 'cells', 50, 0)
    for name in 'abc':
        mine = times[:, cells == name]
        assert (mine == mine[:, :1]).all()
    assert (times[:, [1, 0, 3]].sum(1) == 3).all()
    other = draws(np.array(['c', 'a', 'b']), 'cells', 50, 0)
    assert (other == times[:, [3, 1, 0]]).all()
    assert (draws(cells, 'points', 50, 0).sum(1) == 6).all()


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """A small version of launch/laws.sh, which repeats it 200 times."""
    for check in synthetic.coverage(20, 200, 'points'):
        assert check.found >= 0.75, check


def test_intervals_are_percentiles() -> None:
    assert intervals([{'a': float(i)} for i in range(101)])['a'] == pytest.approx((2.5, 97.5))


def test_a_fit_says_how_good_it_is_and_comes_back_from_its_file(tmp_path) -> None:
    table = smelt_table(0.005)
    found = fit(table, Settings(starts=64, bootstrap='cells', replicates=50))
    assert found.rmse == found.details['rmse'] == pytest.approx(0.005, rel=0.3)
    assert found.details['left_out_rmse'] > found.rmse
    assert found.details['r2'] > 0.99
    assert found.details['converged'] is True
    assert len(found.replicates) == 50
    assert len(found.details['cells']) == 12
    assert found.ranges['S'] == (0.845, 0.969)
    error = found.loss(table.columns) - table.loss
    assert found.details['largest'] == pytest.approx(np.abs(error).max())
    fitted.save([found], tmp_path / 'fit.json')
    assert fitted.load(tmp_path / 'fit.json') == [found]


def test_held_out_rows_are_not_seen() -> None:
    table = smelt_table(0.001)
    held = table.columns['D'] > 2e11
    wrong = dataclasses.replace(table, held=held, loss=np.where(held, table.loss + 1.0, table.loss))
    found = fit(wrong, QUICK)
    assert found.points == 60
    assert found.details['held_out']['points'] == 12
    assert found.details['held_out']['rmse'] == pytest.approx(1.0, abs=0.02)
    right = fit(table.take(~held), QUICK)
    assert found.coefficients == right.coefficients


def test_left_out_cells_are_predicted_by_the_others() -> None:
    table = smelt_table(0.001)
    off = table.cells == table.cells[0]
    wrong = dataclasses.replace(table, loss=np.where(off, table.loss + 0.5, table.loss))
    found = fit(wrong, Settings(starts=64))
    assert found.details['left_out_rmse'] > 0.5 * np.sqrt(off.mean()) * 0.9


def test_what_no_row_feels_is_said() -> None:
    law = law_named('looped-bounded-m-dense')
    at = looped_columns(experts=(1,))
    at |= {name: at[name] * 1e9 for name in ('N', 'N_loop', 'D')}
    found = fit(made(law, truths()[law.name], at, 0.003), QUICK)
    assert any('no row tells anything of theta' in note for note in found.notes)


@pytest.mark.parametrize('bootstrap', ['none', 'cells'])
def test_coefficients_that_stand_in_for_each_other_are_named(bootstrap: str) -> None:
    settings = dataclasses.replace(QUICK, bootstrap=bootstrap, replicates=50)
    one_sparsity = {
        **smelt_columns(),
        'S': np.full(72, 0.9),
        'F': np.geomspace(1e9, 9e9, 72),
    }  # A (1 − S)^b is one number
    found = fit(made(law_named('smelt'), truths()['smelt'], one_sparsity, 0.0005), settings)
    assert 'the rows cannot tell A, b apart: a change of one is undone by the others' in found.notes
    tied = smelt_columns()
    tied |= {'D': tied['F'] * 100}  # two terms of one variable
    found = fit(made(law_named('smelt'), truths()['smelt'], tied, 0.0005), settings)
    assert any('hardly say how large K is' in note and 'trades with c' in note for note in found.notes)
    good = fit(smelt_table(0.0005), settings)
    assert not [note for note in good.notes if 'rows' in note]
    assert good.details['correlations']['A a'] > 0.9


def test_a_coefficient_on_its_bound_is_named() -> None:
    truth = truths()['smelt'] | {'c': 3.0, 'K': 1e29}
    found = fit(made(law_named('smelt'), truth, smelt_columns(), 0.0001), QUICK)
    assert any(note.startswith('c is on its bound, 2.5') or 'K is on its bound' in note for note in found.notes)


def test_a_search_that_rounding_ends_has_converged() -> None:
    at = np.array(list(itertools.product(np.geomspace(8e7, 3e9, 5), np.geomspace(2e9, 6e10, 5), (1, 2, 4, 8, 16, 32))))
    columns = dict(zip('NDE', at.T, strict=True))
    (known,) = fits_of('published:joint-moe')
    found = search(Objective(known.kind, columns, known.loss(columns).round(6)), 32, 0)
    assert found.converged


def test_a_bootstrap_of_one_cell_is_refused() -> None:
    table = smelt_table()
    one = dataclasses.replace(table, cells=np.full(72, 'all'))
    with pytest.raises(ValueError, match='of one cell'):
        fit(one, Settings(bootstrap='cells'))


def test_all_tables_are_looked_at_before_one_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('smelt_jax.law.fit.search', lambda *_: pytest.fail('searched'))
    table, cells = smelt_table(), Settings(bootstrap='cells')
    one = dataclasses.replace(table, cells=np.full(72, 'all'), group='b')
    with pytest.raises(ValueError, match='the rows of b are of one cell'):
        fits([table, one], cells)
    with pytest.raises(ValueError, match='5 rows of b for the 6 coefficients of smelt; add rows'):
        fits([table, one.take(np.arange(5))], QUICK)
    with pytest.raises(ValueError, match='delta=nan'):
        fits([table], Settings(delta=np.nan))


@pytest.mark.parametrize(('setting', 'value'), [('bootstrap', 'rows'), ('starts', 0), ('replicates', 0)])
def test_settings_that_mean_nothing_are_refused(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=setting):
        Settings(**{setting: value})  # type: ignore[arg-type]


def test_a_looped_law_starts_from_one_visit() -> None:
    law = law_named('looped-power-dense')
    at = {name: v * (1e9 if name in ('N', 'N_loop', 'D') else 1) for name, v in looped_columns(experts=(1,)).items()}
    table = made(law, truths()[law.name], at, 0.002)
    found = found_in(table, dataclasses.replace(QUICK, starts=2))
    assert found.starts == 2 + 3  # the grid of phi
    assert found.value == pytest.approx(found_in(table, dataclasses.replace(QUICK, starts=300)).value, rel=1e-9)
