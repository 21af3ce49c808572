"""Records of runs as tables of laws."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from smelt_jax.law.laws import law_named
from smelt_jax.law.reading import read
from smelt_jax.law.table import tables

SMELT = law_named('smelt')


def record(name: str, step: int, **other: Any) -> dict[str, Any]:
    """A record as `smelt evaluate` writes it, by its keys that laws read."""
    return {
        'task': 'heldout', 'name': name, 'kind': 'branch', 'step': step, 'pack': 'p', 'visits': 1, 'trained_visits': 1,
        'flops_per_token': 1e9 + len(name), 'sparsity': 0.9, 'tokens_seen': step * 1e6, 'active_parameters': 2e8,
        'looped_parameters': 1e8, 'experts': 64, 'experts_per_token': 8, 'active_share': 0.1, 'loss': 2 + 1 / step,
        'by_domain': {'Math/STEM': {'loss': 1 + 1 / step}}, **other,
    }  # fmt: skip


def run_dir(folder: Path, records: Sequence[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    (folder / 'records.jsonl').write_text(''.join(json.dumps(one) + '\n' for one in records))
    return folder


def test_records_of_runs(tmp_path: Path) -> None:
    for name in ('200m-s95-baseline', '200m-s95-smelt', 'smelt'):
        for i in range(6):
            more = [
                record(name, 1000 + i, kind='trunk'),
                record(name, 100 + i, task='mmlu'),
                record(name, 500 + i, visits=3),
            ]
            run_dir(tmp_path / name / f'branch-{i}', [record(name, 100 + i), *more])
    for pattern in (f'{tmp_path}/*/*/records.jsonl', f'{tmp_path}/*/*'):
        baseline, smelt = tables([pattern], SMELT, by='architecture')
        assert (baseline.group, smelt.group) == ('baseline', 'smelt')
        assert baseline.columns['D'].tolist() == [1e6 * (100 + i) for i in range(6)]
        assert set(baseline.cells.tolist()) == {'cell=200m-s95'}
        assert set(smelt.cells.tolist()) == {'cell=200m-s95', 'cell='}
        assert len(smelt.loss) == 12
        assert [note.split(' records ')[1] for note in baseline.notes] == [
            'are no held-out losses, and left out; --where=task==… chooses them',
            'are at other visits than in training, and left out; --where=visits==… chooses them',
            'are of trunks, not annealed, and left out; --where=kind==… chooses them',
        ]
    assert {note.split(' records ')[0] for note in baseline.notes} == {'in all, 18'}
    with pytest.raises(ValueError, match=r"no column 'by_domain\.Math\.loss'; there are by_domain\.Math/STEM\.loss$"):
        tables([f'{tmp_path}/*/*'], SMELT, ['loss=by_domain.Math.loss'])
    twice = ['loss=(by_domain.Math/STEM.loss+by_domain.Math/STEM.loss)/2']
    assert tables([f'{tmp_path}/*/*'], SMELT, twice, by='architecture')[0].loss.max() == pytest.approx(1.01)
    (math, _) = tables([f'{tmp_path}/*/*'], SMELT, ['loss=by_domain.Math/STEM.loss'], by='architecture')
    assert math.loss.max() == pytest.approx(1.01)
    trunks, _ = tables([f'{tmp_path}/*/*'], SMELT, by='architecture', where=['kind==trunk'])
    assert trunks.columns['D'].min() == 1e9
    every, _ = tables([f'{tmp_path}/*/*'], SMELT, by='architecture', where=['visits>=1'])
    assert len(every.loss) == 12  # with those at three visits


def test_records_in_the_units_of_the_law(tmp_path: Path) -> None:
    run_dir(tmp_path / 'a', [record('a-smelt', 100 + i) for i in range(14)])
    (made,) = tables([f'{tmp_path}/a'], law_named('looped-bounded-m-moe'))
    assert made.columns['N'][0] == 0.2
    assert made.columns['N_loop'][0] == 0.1
    assert made.columns['D'][0] == 0.1
    assert made.columns['E'][0] == 8
    assert made.columns['m'][0] == 0.1


def test_records_of_two_packs_are_refused(tmp_path: Path) -> None:
    run_dir(tmp_path / 'a', [record('a-smelt', 100 + i, pack='pq'[i % 2]) for i in range(14)])
    with pytest.raises(ValueError, match='records are of 2 packs of rows; choose one with --where=pack==p'):
        tables([f'{tmp_path}/a'], SMELT)
    (made,) = tables([f'{tmp_path}/a'], SMELT, where=['pack==q'])
    assert len(made.loss) == 7


def test_tables_and_records_do_not_mix(tmp_path: Path) -> None:
    run_dir(tmp_path / 'a', [record('a-smelt', 100)])
    (tmp_path / 'a.csv').write_text('N,loss\n1e8,2\n')
    with pytest.raises(ValueError, match='are of two kinds'):
        read([f'{tmp_path}/a.csv', f'{tmp_path}/a'])
    (tmp_path / 'b').mkdir()
    with pytest.raises(ValueError, match=r'records\.jsonl is not there'):
        read([f'{tmp_path}/b'])
