"""Figures of odd fits: what is nothing, what is everything, and what no figure can show."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from law_tables import ROWS, write

from smelt_jax.figures import effective, frontier, heldout
from smelt_jax.law.fitted import save
from smelt_jax.law.geometry import LADDER
from smelt_jax.law.published import fits_of

(LOOPED,) = fits_of('published:looped-moe')


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        yield


@pytest.mark.parametrize('rmse', [0.0, 0.003])
def test_a_row_that_is_met_exactly_has_a_place(tmp_path: Path, rmse: float) -> None:
    fit = dataclasses.replace(LOOPED, rmse=rmse, details={'held_out': {'rmse': 0.0, 'points': 1}})
    heldout.heldout({'R': [fit]}, tmp_path / 'a.svg')
    assert (tmp_path / 'a.svg').exists()


def test_a_model_without_a_loop_has_no_use_for_visits(tmp_path: Path) -> None:
    size = dataclasses.replace(LADDER[0], looped=0, looped_layers=0)
    effective.effective(LOOPED, size, [1, 8], [1, 2, 3], tmp_path / 'a.svg')
    assert (tmp_path / 'a.svg').exists()


@pytest.mark.parametrize('computes', [(1e-300, 1e300), (1e-3, 1e20), (1e20, 1e41)])
def test_flops_that_no_figure_shows_are_named(computes: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match='a figure shows from 1 to 1e40 FLOPs'):
        frontier.figure({'': fits_of('published:smelt')}, [0.9], computes)


def test_residuals_of_a_few_rows_alone(smelt: Callable, tmp_path: Path) -> None:
    save(fits_of('published:besiroglu'), tmp_path / 'fit.json')
    rows = write(tmp_path / 'a.csv', ROWS)
    out = tmp_path / 'a.png'
    smelt('figure', 'residuals', f'--fit={tmp_path}/fit.json', f'--records={rows}', '--where=N>5e7', f'--out={out}')
    assert out.read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize(
    ('word', 'given', 'complaint'),
    [
        ('frontier', ('--sparsity=',), '--sparsity is required'),
        ('surface', ('--sparsity=',), '--sparsity is required'),
        ('domains', ('--sparsity=', '--compute=1e20'), '--sparsity is required'),
    ],
)
def test_empty_lists_are_named(
    smelt: Callable, tmp_path: Path, word: str, given: tuple[str, ...], complaint: str
) -> None:
    fit = '--fit=published:chinchilla' if word == 'surface' else '--fit=published:smelt'
    done = smelt('figure', word, fit, *given, '--out=a.png', code=1, cwd=tmp_path)
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
