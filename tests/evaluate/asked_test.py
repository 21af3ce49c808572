"""Checkpoints side by side, and what is refused before anything is scored."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_tasks import ROWS

from smelt_jax.parallel import processes
from smelt_jax.runs import RunDir

pytestmark = pytest.mark.usefixtures('quick')


def test_two_checkpoints_are_compared_on_the_same_examples(ask: Callable, run_dir: RunDir):
    here = str(run_dir.path)
    answer = ask('small', checkpoints=[(here, 10)], against=[(here, 5)])
    (found,) = answer.data['comparisons']
    assert (found['reference'], found['other']) == ('tiny@5, 2 visit(s)', 'tiny@10, 2 visit(s)')
    assert set(found['tasks']) == set(ROWS)
    assert found['wins']['tasks'] == 4
    records = {(r['task'], r['step']): r for r in answer.data['records']}
    for task, pair in found['tasks'].items():
        gap = records[task, 10]['completion'] - records[task, 5]['completion']
        assert pair['completion']['difference'] == pytest.approx(gap)
        assert pair['completion']['low'] <= gap <= pair['completion']['high']
    first_is_reference = ask('small', checkpoints=[(here, 5), (here, 10)])
    assert first_is_reference.data['comparisons'] == answer.data['comparisons']


@pytest.mark.parametrize(
    ('given', 'complaint'),
    [
        ({'tasks': ['smal']}, 'smal'),
        ({'task_dir': '/nowhere'}, '--task_dir=/nowhere is no folder'),
        ({'visits': ['0']}, "--visits=0: '0' is no whole number from 1 on"),
        ({'visits': ['2', '2']}, '--visits=2,2 says a number twice'),
        ({'shots': ['-1']}, "--shots=-1: '-1' is no whole number from 0 on"),
        ({'against': [('x', None), ('y', None)]}, '--against has 2 checkpoints, --checkpoint has 1; give one for each'),
        ({'checkpoints': [('/nowhere', None)]}, '/nowhere is no run directory'),
        ({'room': 4}, 'has no room in 4'),
        ({'shots': ['9']}, 'there are 6 other examples'),
    ],
)
def test_bad_input_is_one_line(ask: Callable, run_dir: RunDir, given: dict, complaint: str):
    tasks = given.pop('tasks', ['choice'])
    with pytest.raises((ValueError, OSError), match=complaint) as found:
        ask(*tasks, **given)
    assert '\n' not in str(found.value)
    assert run_dir.records() == []


def test_what_is_generated_has_no_room(ask: Callable, run_dir: RunDir):
    with pytest.raises(ValueError, match='new_tokens=96 leave nothing of room=96 for a prompt'):
        ask('next', 'say', new_tokens=96)
    assert run_dir.records() == []


@pytest.mark.parametrize(
    ('given', 'complaint'),
    [
        ({'shots': ['4']}, 'example 0 of task say: there are 3 other examples, not 4; show fewer'),
        ({'steps': (10, 7)}, r'run/checkpoints has no checkpoint of step 7; it has \[5, 10\]'),
        ({'steps': (10, None)}, '--checkpoint: step 10 of .*run is there twice; leave one out'),
        ({'steps': (5,), 'partners': (5,)}, '--against: .*run@5 would be compared with itself; give another partner'),
    ],
)
def test_what_comes_later_is_looked_at_first(ask: Callable, run_dir: RunDir, given: dict, complaint: str):
    wheres = {
        name: [(str(run_dir.path), step) for step in given.pop(flag, ())]
        for name, flag in (('checkpoints', 'steps'), ('against', 'partners'))
    }
    with pytest.raises(ValueError, match=complaint):
        ask('next', 'say', **wheres, **given)
    assert run_dir.records() == []


def test_each_number_of_shots_is_compared_by_itself(ask: Callable, run_dir: RunDir):
    here = str(run_dir.path)
    answer = ask('next', 'choice', checkpoints=[(here, 5), (here, 10)], shots=['0', '2'], seeds=2)
    assert [found['shots'] for found in answer.data['comparisons']] == [0, 2]
    one, two = (ask('next', 'choice', checkpoints=[(here, 5), (here, 10)], shots=[k], seeds=2) for k in '02')
    assert answer.data['comparisons'] == one.data['comparisons'] + two.data['comparisons']


def test_two_runs_of_one_name_are_told_apart(ask: Callable, run_dir: RunDir, tmp_path: Path):
    twin = shutil.copytree(run_dir.path, tmp_path / 'twin')
    (found,) = ask('next', checkpoints=[(str(run_dir.path), 10), (str(twin), 10)]).data['comparisons']
    assert found['reference'] == f'{run_dir.path}@10, 2 visit(s)'
    assert found['other'] == f'{twin}@10, 2 visit(s)'


def test_only_the_first_process_reads_outcomes(ask: Callable, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch):
    """The others come to it before they are written."""
    monkeypatch.setattr(processes, 'first', lambda: False)
    here = str(run_dir.path)
    assert len(ask('next', checkpoints=[(here, 5), (here, 10)]).data['records']) == 2
    assert not run_dir.outcomes.exists()


def test_visits_that_a_model_cannot_take(ask: Callable, looped, make_run: Callable, tmp_path: Path):
    from runs_helper import edit

    flat = make_run(tmp_path / 'flat', edit(looped, model__loop__length=0, model__loop__visits=1), 5)
    with pytest.raises(ValueError, match=r'--visits=2 of .*flat: '):
        ask('choice', checkpoints=[(str(flat.path), None)], visits=['1', '2'])


def test_the_command(smelt: Callable, run_dir: RunDir, folder: Path, quick_env: dict, tmp_path: Path):
    done = smelt(
        'evaluate', f'--checkpoint={run_dir.path}@5', '--tasks=heldout,choice', f'--task_dir={folder}', '--room=96',
        f'--json={tmp_path}/out.json', **quick_env,
    )  # fmt: skip
    assert 'held-out loss' in done.stdout
    assert 'choice' in done.stdout
    assert 'tiny, 2 visit(s): choice, 2 shots: 21 scored' in done.stderr
    assert len(json.loads((tmp_path / 'out.json').read_text())['records']) == 2
    wrong = smelt('evaluate', f'--checkpoint={run_dir.path}', '--tasks=chioce', f'--task_dir={folder}', code=1)
    assert wrong.stderr.startswith('smelt evaluate: error: ')
