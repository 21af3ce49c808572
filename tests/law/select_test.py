"""What the command line says of columns: renames, arithmetic, conditions."""

from pathlib import Path

import numpy as np
import pytest
from law_tables import ROWS, write

from smelt_jax.law.reading import read
from smelt_jax.law.select import holds, numbers, renamed


@pytest.mark.parametrize(
    ('entries', 'complaint'),
    [
        (['loss'], 'write NAME=COLUMN'),
        (['a=b'], 'neither side is a name of the law'),
        (['N=D'], 'both N and D'),
        (['N=a', 'a=N'], 'N is given twice'),
    ],
)
def test_renames_that_mean_nothing_are_named(tmp_path: Path, entries: list[str], complaint: str) -> None:
    frame = read([str(write(tmp_path / 'a.csv', [{**ROWS[0], 'a': 1}]))])
    with pytest.raises(ValueError, match=complaint):
        renamed(entries, ('loss', 'N', 'D'), frame)


@pytest.mark.parametrize('expression', ['__import__("os")', 'N if D else 1', '(lambda: 1)()', 'N[0]', 'N and D', 'N +'])
def test_arithmetic_is_arithmetic_alone(tmp_path: Path, expression: str) -> None:
    frame = read([str(write(tmp_path / 'a.csv', ROWS))])
    with pytest.raises(ValueError, match='arithmetic of columns'):
        numbers(frame, expression)


@pytest.mark.parametrize(
    ('condition', 'rows'),
    [
        ('R>2', [1, 2]),
        ('R>=2', [0, 1, 2]),
        ('R=2', [0]),
        ('R==2.0', [0]),
        ('R!=2', [1, 2]),
        ('R<8,R>2', [1]),
        ('arm==smelt', [0, 2]),
        ('arm!=smelt', [1]),
        ('share==0.3', [1]),
    ],
)
def test_conditions(tmp_path: Path, condition: str, rows: list[int]) -> None:
    frame = read([
        str(
            write(
                tmp_path / 'a.csv',
                [
                    {'R': 2, 'arm': 'smelt', 'share': 0.1},
                    {'R': 4, 'arm': 'x', 'share': 0.1 * 3},
                    {'R': 8, 'arm': 'smelt', 'share': 0.31},
                ],
            )
        )
    ])  # fmt: skip
    assert np.flatnonzero(holds(frame, condition)).tolist() == rows


@pytest.mark.parametrize(
    ('condition', 'complaint'), [('R', 'no condition'), ('R>x', 'no number'), ('Q==1', 'no column')]
)
def test_conditions_that_mean_nothing_are_named(tmp_path: Path, condition: str, complaint: str) -> None:
    frame = read([str(write(tmp_path / 'a.csv', [{'R': 2}]))])
    with pytest.raises(ValueError, match=complaint):
        holds(frame, condition)


def test_names_with_signs_in_them_are_columns_in_arithmetic(tmp_path: Path) -> None:
    row = {
        'Code/a.loss': 1.0,
        'Code/a.loss.b': 2.0,
        '<512': 4.0,
        'by.≥4096': 8.0,
        'lambda': 16.0,
        'Code': 32.0,
        '': 64.0,
    }
    frame = read([str(write(tmp_path / 'a.csv', [row]))])
    for expression, value in {
        '(Code/a.loss+Code/a.loss.b)/2': 1.5,  # of two names the longer
        'by.≥4096*2 + lambda': 32.0,
        '-<512': None,  # such a name stands alone
        'Code/2': 16.0,
    }.items():
        if value is None:
            with pytest.raises(ValueError, match='neither a column nor arithmetic'):
                numbers(frame, expression)
        else:
            assert numbers(frame, expression).tolist() == [value]
    with pytest.raises(ValueError, match="'Code if lambda else 1' is no arithmetic"):
        numbers(frame, 'Code if lambda else 1')


def test_rows_without_a_value_can_be_left_out(tmp_path: Path) -> None:
    frame = read([str(write(tmp_path / 'a.csv', [{'R': 1, 'loss': 2.0}, {'R': 2, 'loss': None}]))])
    assert holds(frame, 'loss==').tolist() == [False, True]
    assert holds(frame, 'loss!=').tolist() == [True, False]
    with pytest.raises(ValueError, match=r'loss is nothing, not a number; .* leave the row out with --exclude=loss=='):
        numbers(frame, 'loss')
