"""Checkpoints side by side, and what is refused before anything is scored."""

import json
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from runs_helper import edit
from small_tasks import ROWS

from smelt_jax.config import RunConfig
from smelt_jax.evaluate.downstream import picked
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
        ({'tasks': []}, '--tasks= names none; give some, or leave it out for heldout'),
        ({'shots': ['9' * 5000]}, '--shots=9+: .* is no whole number from 0 on'),
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
    flat = make_run(tmp_path / 'flat', edit(looped, model__loop__length=0, model__loop__visits=1), 5)
    with pytest.raises(ValueError, match=r'visits=2 of .*flat: its model has no loop; leave visits out'):
        ask('choice', checkpoints=[(str(flat.path), None)], visits=['1', '2'])


def test_one_without_a_loop_is_beside_each_number_of_visits(
    ask: Callable, run_dir: RunDir, looped: RunConfig, make_run: Callable, tmp_path: Path
):
    flat = make_run(tmp_path / 'flat', edit(looped, name='flat', model__loop__length=0, model__loop__visits=1), 5)
    both = {'checkpoints': [(str(run_dir.path), 10)], 'against': [(str(flat.path), 5)]}
    found = ask('choice', visits=['1', '3'], **both).data['comparisons']
    assert [(one['reference'], one['other']) for one in found] == [
        ('flat@5, 1 visit(s)', 'tiny@10, 1 visit(s)'),
        ('flat@5, 1 visit(s)', 'tiny@10, 3 visit(s)'),
    ]
    (alone,) = ask('choice', visits=['3'], **both).data['comparisons']
    assert alone == found[1]
    both = {'checkpoints': both['against'], 'against': both['checkpoints']}
    assert [one['reference'] for one in ask('choice', visits=['1', '3'], **both).data['comparisons']] == [
        'tiny@10, 1 visit(s)', 'tiny@10, 3 visit(s)',
    ]  # fmt: skip


def test_a_group_has_a_mean_at_each_number_of_shots(ask: Callable, run_dir: RunDir):
    answer = ask('small', shots=['0', '1'], seeds=2)
    means = [record for record in answer.data['records'] if record['task'] == 'small']
    assert [(record['shots'], record['tasks']) for record in means] == [(0, 4), (1, 4)]
    for mean in means:
        parts: dict[str, list[float]] = {}
        for one in answer.data['records']:
            if one['task'] in ROWS and one['shots'] == mean['shots']:
                parts.setdefault(one['task'], []).append(one['completion'])
        expected = statistics.fmean(statistics.fmean(part) for part in parts.values())
        assert mean['completion'] == pytest.approx(expected)
    assert {record['task'] for record in run_dir.records()} == set(ROWS)  # that of the tasks' own shots is recorded


def test_outcomes_say_which_example_and_what_was_generated(ask: Callable, run_dir: RunDir):
    ask('say', 'choice', limit=3, new_tokens=2)
    for task, others in (('say', {'text'}), ('choice', set())):
        (file,) = (run_dir.outcomes / '10').glob(f'{task}-*')
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [line['example'] for line in lines] == picked(len(ROWS[task]), 3)
        assert all(line.keys() == {'example', 'right', 'nats', 'tokens'} | others for line in lines)


def test_no_two_tasks_share_a_file_of_outcomes(ask: Callable, run_dir: RunDir, folder: Path, tmp_path: Path):
    own = shutil.copytree(folder, tmp_path / 'own')
    (own / 'small.csv').write_text((own / 'small.csv').read_text().replace('\nchoice,', '\nmade-dyck,'))
    ask('made-dyck', 'made:dyck', task_dir=str(own), limit=3, shots=['0'])
    assert len(list((run_dir.outcomes / '10').iterdir())) == 2


def test_the_pack_of_a_run_is_gone(ask: Callable, looped: RunConfig, make_run: Callable, tmp_path: Path):
    pack = shutil.copytree(looped.data.pack, tmp_path / 'pack')
    moved = make_run(tmp_path / 'moved', edit(looped, data__pack=str(pack)), 5)
    shutil.rmtree(pack)
    given = {'checkpoints': [(str(moved.path), 5)]}
    with pytest.raises(ValueError, match=r'pack, the pack that .*moved read, is gone, .* or give --pack=DIR of one'):
        ask('choice', **given)
    assert ask('choice', pack=looped.data.pack, **given).data['records']


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
