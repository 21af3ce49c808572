"""ConfigDict → RunConfig: every key known, present and of its type; and the golden files of the experiments."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import update_golden

from smelt_jax import config
from smelt_jax.cli import pages
from smelt_jax.config import RunConfig, default_config, diff, from_dict, resolve, to_dict


def test_the_default_resolves_to_itself() -> None:
    assert resolve(default_config()) == RunConfig()


def test_config_json_brings_the_same_config_back() -> None:
    run = dataclasses.replace(RunConfig(), train=dataclasses.replace(RunConfig().train, branch_steps=(10, 20)))
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(run)))) == run


def test_an_integer_is_a_float_too() -> None:
    edited = default_config()
    edited.optim.peak_lr = 1
    run = resolve(edited)
    assert run.optim.peak_lr == 1.0
    assert isinstance(run.optim.peak_lr, float)


@pytest.mark.parametrize(
    ('room', 'key', 'value', 'complaint'),
    [
        ('optim', 'peak_lr', 'abc', r"optim\.peak_lr='abc': expected float"),
        ('optim', 'peak_lr', True, r'optim\.peak_lr=True: expected float'),
        ('train', 'steps', 0.5, r'train\.steps=0\.5: expected int'),
        ('train', 'steps', True, r'train\.steps=True: expected int'),
        ('train', 'branch_steps', ('a',), r"train\.branch_steps\[0\]='a': expected int"),
        ('train', 'branch_steps', 7, r'train\.branch_steps=7: expected a sequence of int'),
        ('data', 'repeat', 1, r'data\.repeat=1: expected bool'),
        ('pack', 'corpora', 'local', r"pack\.corpora='local': expected a sequence of str"),
        ('optim', 'peak_lr', math.inf, r'optim\.peak_lr=inf: expected a finite number'),
        ('model', 'init_std', math.nan, r'model\.init_std=nan: expected a finite number'),
        ('loss', 'balance', 10**999, r'loss\.balance=inf: expected a finite number'),
        ('model', 'vocab', 10**23, r'model\.vocab=100000000000000000000000: too large'),
        ('model', 'widht', 3, r'unknown key model\.widht; known here: .*width'),
        ('model', 'loop', {'start': 0}, r'model\.loop\.length is missing'),
    ],
)
def test_a_wrong_value_is_named(room: str, key: str, value: Any, complaint: str) -> None:
    values = to_dict(RunConfig())
    values[room][key] = value
    with pytest.raises(ValueError, match=complaint):
        from_dict(RunConfig, values)


def test_a_misspelt_key_in_an_experiment_is_named() -> None:
    edited = default_config()
    edited.model.widht = 3
    with pytest.raises(ValueError, match=r'unknown key model\.widht'):
        resolve(edited)


def test_a_missing_key_is_no_default() -> None:
    values = to_dict(RunConfig())
    del values['model']['experts']['width']
    with pytest.raises(ValueError, match=r'model\.experts\.width is missing'):
        from_dict(RunConfig, values)


@pytest.mark.parametrize(
    ('key', 'value', 'complaint'),
    [
        ('name', '', r"name='': records and figures need one"),
        ('seed', -1, r'seed=-1: must be at least 0'),
        ('seed', 2**32, r'seed=4294967296: must be at least 0 and below'),
        ('optim.eps', 0.0, r'optim\.eps=0\.0: must be more than 0'),
        ('loss.balance', -1.0, r'loss\.balance=-1\.0: must be at least 0'),
        ('pack.bpe_train_bytes', 0, r'pack\.bpe_train_bytes=0: must be at least 1'),
        ('pack.row_tokens', 2**24, r'pack\.row_tokens=16777216: must be below'),
    ],
)
def test_a_value_that_no_run_could_have_is_refused(key: str, value: Any, complaint: str) -> None:
    edited = default_config()
    edited.update_from_flattened_dict({key: value})
    with pytest.raises(ValueError, match=complaint):
        resolve(edited)


@pytest.mark.parametrize(
    ('key', 'value', 'complaint'),
    [
        ('attention.kv_heads', 3, r'heads=4 is not divisible by kv_heads=3'),
        ('experts.per_token', 33, r'count=32 is less than per_token=33'),
        ('loop.visits', 3, r'visits=3 with length=0'),
        ('loop.length', 9, r'do not fit into layers=4'),
        ('layers', 0, r'layers=0: must be at least 1'),
        ('dtype', 'float8', r"dtype='float8': choose one of float32, bfloat16"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused(key: str, value: Any, complaint: str) -> None:
    edited = default_config()
    edited.model.update_from_flattened_dict({key: value})
    with pytest.raises(ValueError, match=complaint):
        resolve(edited)


def test_diff_names_every_leaf_that_differs() -> None:
    old, new = to_dict(RunConfig()), to_dict(RunConfig())
    assert diff(old, json.loads(json.dumps(new))) == []  # a list read from json is the tuple that was written
    new['optim']['peak_lr'] = 0.5
    new['model']['loop']['visits'] = 3
    del new['data']['repeat']
    assert diff(old, new) == [
        "data.repeat: False -> '(absent)'",
        'model.loop.visits: 1 -> 3',
        'optim.peak_lr: 0.001 -> 0.5',
    ]


def test_every_key_is_described() -> None:
    assert [key for key, _, text in pages.config_keys() if not text and '.' in key] == []


def test_a_room_has_about_fifteen_settings() -> None:
    rooms = [kind for kind in vars(config).values() if dataclasses.is_dataclass(kind)]
    assert rooms
    assert [kind for kind in rooms if len(dataclasses.fields(kind)) > 18] == []


def test_golden_files_are_up_to_date() -> None:
    stale = update_golden.stale(update_golden.ROOT / 'experiments', update_golden.GOLDEN)
    names = ', '.join(str(path.relative_to(update_golden.ROOT)) for path in stale)
    assert not stale, f'{names}: the resolved config is another one; python tests/update_golden.py, and read the diff'


EXPERIMENT = """
from smelt_jax.config import default_config

ARGS = ('small', 'large',)

def get_config(arg):
    config = default_config()
    config.model.width = {'small': 64, 'large': 128}[arg]
    return config
"""


def test_golden_files_notice_a_change(tmp_path: Path) -> None:
    folder, golden = tmp_path / 'experiments', tmp_path / 'golden'
    folder.mkdir()
    (folder / 'one.py').write_text(EXPERIMENT)
    (folder / '_parts.py').write_text('')
    for path, text in update_golden.stale(folder, golden).items():
        assert text is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert update_golden.stale(folder, golden) == {}
    assert json.loads((golden / 'one' / 'small.json').read_text())['model']['width'] == 64

    (folder / 'one.py').write_text(EXPERIMENT.replace('128', '192').replace("'small', ", ''))
    assert list(update_golden.stale(folder, golden)) == [golden / 'one' / 'large.json', golden / 'one' / 'small.json']
