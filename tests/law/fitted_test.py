"""Files of fits and of sizes: what somebody else wrote, or what was damaged, is named with its file."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smelt_jax.law import fitted, geometry
from smelt_jax.law.published import fits_of

GOOD = json.loads(json.dumps({**fits_of('published:smelt')[0].__dict__}))
GOOD |= {'replicates': [GOOD['coefficients']] * 2, 'details': {'intervals': {name: [0, 1] for name in 'EAabKc'}}}
SIZE = {**geometry.LADDER[0].__dict__}


def written(file: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    entry = copy.deepcopy(GOOD)
    changed = change(entry)
    file.write_text(json.dumps({'format': fitted.FORMAT, 'fits': [entry if changed is None else changed]}))
    return file


def test_a_file_that_is_whole_is_read(tmp_path: Path) -> None:
    (fit,) = fitted.load(written(tmp_path / 'fit.json', lambda entry: None))
    assert fit.coefficients == GOOD['coefficients']
    assert fit.ranges['S'] == (0.85, 0.97)


@pytest.mark.parametrize(
    ('change', 'complaint'),
    [
        (lambda entry: 3, 'a fit is 3'),
        (lambda entry: entry.pop('ranges') and None, 'a fit has no ranges'),
        (lambda entry: entry.update(colour=1), "a fit has 'colour'"),
        (lambda entry: entry.update(law='smel'), "there is no law 'smel'"),
        (lambda entry: entry.update(law=['smelt']), r"law is \['smelt'\]"),
        (lambda entry: entry.update(group=3), 'group is 3'),
        (lambda entry: entry.update(rmse='small'), "rmse is 'small'"),
        (lambda entry: entry.update(notes=None), 'notes is None'),
        (lambda entry: entry.update(details=None), 'details is None'),
        (lambda entry: entry.update(coefficients=[1]), r'coefficients is \[1\]'),
        (lambda entry: entry['coefficients'].pop('A') and None, 'smelt has the coefficients E, A, a, b, K, c, each a'),
        (lambda entry: entry['coefficients'].update(A='big'), "not {'E': 1.4439, 'A': 'big'"),
        (lambda entry: entry['coefficients'].update(A=float('nan')), "'A': nan"),
        (lambda entry: entry['coefficients'].update(A=-1.0), "'A': -1.0"),
        (lambda entry: entry['replicates'][1].clear(), 'not {}'),
        (lambda entry: entry['ranges'].update(D=[1]), r'the range of D is \[1\]'),
        (lambda entry: entry['ranges'].update(D=['a', 'b']), r"the range of D is \['a', 'b'\]"),
        (lambda entry: entry['details']['intervals'].pop('E') and None, 'details has intervals'),
        (lambda entry: entry['details'].update(held_out={}), 'details has held_out'),
    ],
)
def test_a_file_that_is_not_is_named(tmp_path: Path, change: Callable[[dict[str, Any]], Any], complaint: str) -> None:
    file = written(tmp_path / 'fit.json', change)
    with pytest.raises(ValueError, match=rf'fit\.json is no file of smelt fit, or is damaged: .*{complaint}'):
        fitted.load(file)


@pytest.mark.parametrize(
    'text', ['', '[1]', 'null', '{"format": "smelt_jax.fit"}', '{"format": "x", "fits": []}', '\xff']
)
def test_a_file_of_something_else_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / 'a.json').write_bytes(text.encode('latin-1'))
    with pytest.raises(ValueError, match=r'a\.json is no file of smelt fit, or is damaged'):
        fitted.load(tmp_path / 'a.json')


def test_a_file_without_fits_is_named(tmp_path: Path) -> None:
    (tmp_path / 'a.json').write_text('{"format": "smelt_jax.fit", "fits": []}')
    with pytest.raises(ValueError, match='it has no fits'):
        fitted.load(tmp_path / 'a.json')


def test_numbers_that_json_has_no_word_for_are_nulls(tmp_path: Path) -> None:
    fit = fitted.Fitted(**{**GOOD, 'details': {'condition': np.inf, 'r2': [np.nan, 1.0]}})
    fitted.save([fit], tmp_path / 'fit.json')
    text = (tmp_path / 'fit.json').read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f'{name} is no JSON'))['fits'][0]
    assert found['details'] == {'condition': None, 'r2': [None, 1.0]}


def test_sizes_are_read(tmp_path: Path) -> None:
    (tmp_path / 's.json').write_text(json.dumps([SIZE]))
    assert geometry.load(tmp_path / 's.json') == [geometry.LADDER[0]]


@pytest.mark.parametrize(
    ('sizes', 'complaint'),
    [
        ([], 'it has no sizes'),
        ({}, 'it has no sizes'),
        (SIZE, 'JSON list of objects with name, active'),
        (3, 'JSON list of objects'),
        ([{'name': 'a'}], 'JSON list of objects'),
        ([SIZE, SIZE], "two sizes '0.3B'"),
        ([{**SIZE, 'name': 3}], 'name is 3'),
        ([{**SIZE, 'active': '3'}], "active is '3', not a number from 0"),
        ([{**SIZE, 'experts': None}], 'experts is None'),
        ([{**SIZE, 'embedding': -1}], 'embedding is -1'),
        ([{**SIZE, 'active': float('inf')}], 'active is inf'),
        ([{**SIZE, 'active': 1}], 'parts of'),
    ],
)
def test_sizes_that_are_none_are_named(tmp_path: Path, sizes: Any, complaint: str) -> None:
    (tmp_path / 's.json').write_text(json.dumps(sizes))
    with pytest.raises(ValueError, match=rf's\.json: .*{complaint}'):
        geometry.load(tmp_path / 's.json')
