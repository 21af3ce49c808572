"""Tasks of a checkpoint: each is a record and its outcomes; what is there is not done again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from smelt_jax.evaluate import downstream
from smelt_jax.evaluate.answer import evaluated
from smelt_jax.evaluate.outcomes import read
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.evaluate.wanted import wanted
from smelt_jax.parallel import processes
from smelt_jax.runs import RunDir

pytestmark = pytest.mark.usefixtures('quick')

FLAGS = {
    'task_dir': '', 'tasks': [], 'visits': [], 'shots': [], 'length_bins': [], 'seeds': 1, 'limit': 0, 'room': 96,
    'new_tokens': 4, 'again': False, 'pack': '',
}  # fmt: skip
HEAD = 'task,file,icl_type,num_fewshot,random_baseline,continuation_delimiter\n'
ROWS = {
    'choice': [{'query': f'{i} and one make', 'choices': [str(i + 1), 'none', 'ten'], 'gold': 0} for i in range(7)],
    'schema': [{'context_options': [f'x{i} or', f'y{i} or'], 'continuation': 'so.', 'gold': i % 2} for i in range(5)],
    'next': [{'context': f'count {i}', 'continuation': f'{i}', 'category': 'eo'[i % 2]} for i in range(6)],
    'say': [{'context': f'what is {i}', 'answer': f'{i}', 'aliases': [f'no {i}']} for i in range(4)],
}
KINDS = {
    'choice': 'multiple_choice',
    'schema': 'schema',
    'next': 'language_modeling',
    'say': 'generation_task_with_answers',
}
CHANCES = {'choice': 33.3, 'schema': 50, 'next': 0, 'say': 0}


def lines_of(rows):
    return ''.join(json.dumps(row) + '\n' for row in rows)


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tasks, one a kind, of the group `small`."""
    made = tmp_path_factory.mktemp('tasks')
    for name, rows in ROWS.items():
        (made / f'{name}.jsonl').write_text(lines_of(rows))
    lines = (f'{name},{name}.jsonl,{KINDS[name]},2,{CHANCES[name]}, \n' for name in ROWS)
    (made / 'small.csv').write_text(HEAD + ''.join(lines))
    return made


@pytest.fixture
def ask(run_dir: RunDir, folder: Path) -> Callable:
    """ask(tasks, …) evaluates step 10; flags as on the command line."""

    def ask(*tasks, step=10, checkpoints=(), against=(), **given):
        flags = SimpleNamespace(**{**FLAGS, 'task_dir': str(folder), 'tasks': list(tasks), **given})
        return evaluated(wanted(flags, checkpoints or [(str(run_dir.path), step)], against, None))

    return ask


def test_a_record_a_task_shots_seed_and_visits(ask: Callable, run_dir: RunDir):
    answer = ask('small', visits=['1', '2'], seeds=2)
    records = run_dir.records()
    assert json.loads(json.dumps(answer.data['records'])) == sorted(records, key=lambda record: record['visits'])
    parts = [(r['task'], r['visits'], r['shots'], r['shot_seed']) for r in records if 'shots' in r]
    assert sorted(parts) == sorted((task, visits, 2, seed) for task in ROWS for visits in (1, 2) for seed in (0, 1))
    by_task = {record['task']: record for record in records if record['visits'] == 2}
    assert by_task['choice']['examples'] == 7
    assert by_task['choice']['chance'] == pytest.approx(0.333)
    assert set(by_task['next']['by_category']) == {'e', 'o'}
    assert by_task['choice']['trained_visits'] == 2
    assert by_task['small']['centered'] == pytest.approx(
        sum(r['centered'] for r in records if 'shots' in r and r['visits'] == 2) / 8
    )


def test_outcomes_are_what_the_record_sums_up(ask: Callable, run_dir: RunDir):
    (record,) = ask('next', seeds=1).data['records']
    (file,) = list((run_dir.outcomes / '10').iterdir())
    assert file.name == 'next-visits2-shots2-seed0.jsonl'
    found = read([file])
    assert found.right.mean() == record['accuracy']
    assert found.nats.sum() / found.tokens.sum() == pytest.approx(record['completion'])
    assert found.tokens.sum() == record['completion_tokens']


def test_what_is_there_is_not_done_again(ask: Callable, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch):
    first = ask('choice', 'next').data['records']
    monkeypatch.setattr(Scorer, 'score', lambda *_: pytest.fail('scored again'))
    assert ask('choice', 'next').data['records'] == first
    for changed in ({'again': True}, {'limit': 3}, {'room': 80}, {'shots': ['1']}, {'visits': ['1']}, {'step': 5}):
        with pytest.raises(pytest.fail.Exception, match='scored again'):
            ask('choice', 'next', **changed)
    (run_dir.outcomes / '10' / 'next-visits2-shots2-seed0.jsonl').unlink()
    with pytest.raises(pytest.fail.Exception, match='scored again'):
        ask('choice', 'next')


def test_what_may_be_generated_decides_too(ask: Callable, monkeypatch: pytest.MonkeyPatch):
    ask('say', new_tokens=4)
    monkeypatch.setattr(Scorer, 'score', lambda *_: pytest.fail('scored again'))
    ask('say', new_tokens=4)
    with pytest.raises(pytest.fail.Exception, match='scored again'):
        ask('say', new_tokens=2)


@pytest.mark.parametrize(
    'change',
    [
        lambda text: ''.join(text.splitlines(keepends=True)[:3]),
        lambda text: text.replace('"nats": ', '"nats": 1'),
        lambda text: text.replace('"right": ', '"right": "x", "old": '),
        lambda _: 'no JSON\n',
        lambda _: '',
    ],
)
def test_outcomes_that_are_not_the_records_are_made_again(ask: Callable, run_dir: RunDir, change: Callable):
    """As of another limit, when the process was killed before it wrote the record; or of another pack."""
    first, file = ask('next'), run_dir.outcomes / '10' / 'next-visits2-shots2-seed0.jsonl'
    text = file.read_text()
    file.write_text(change(text))
    assert ask('next').data == first.data
    assert file.read_text() == text


def test_a_changed_file_is_done_again(ask: Callable, folder: Path, tmp_path: Path):
    first = ask('choice').data['records'][0]
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / 'choice.jsonl').write_text(lines_of(ROWS['choice'][::-1]))
    second = ask('choice', task_dir=str(tmp_path)).data['records'][0]
    assert second['task_version'] != first['task_version']


def test_an_evaluation_that_was_stopped_goes_on(ask: Callable, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch):
    whole = ask('small', step=5).data['records']
    score, calls = Scorer.score, []

    def killed(self, requests, progress=None):
        calls.append(len(requests))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return score(self, requests, progress)

    monkeypatch.setattr(Scorer, 'score', killed)
    with pytest.raises(KeyboardInterrupt):
        ask('small')
    assert len([record for record in run_dir.records() if record['step'] == 10]) == 2
    assert [record['task'] for record in ask('small').data['records']] == [record['task'] for record in whole]
    assert calls == [21, 10, 6, 6, 4]


def test_more_shots_and_a_limit(ask: Callable):
    records = ask('next', shots=['0', '1', '3'], seeds=3).data['records']
    assert [(r['shots'], r['shot_seed']) for r in records] == [
        (0, 0),
        *((k, seed) for k in (1, 3) for seed in range(3)),
    ]
    assert ask('next', limit=4).data['records'][0]['examples'] == 4
    assert downstream.picked(10, 4) == [0, 2, 5, 7]
    assert downstream.picked(3, 4) == downstream.picked(3, 0) == [0, 1, 2]


def test_a_limit_leaves_the_prompts_of_the_others_as_they_were(ask: Callable, run_dir: RunDir):
    def nats(**given):
        ask('next', **given)
        return read([run_dir.outcomes / '10' / 'next-visits2-shots2-seed0.jsonl']).nats

    assert nats(limit=3) == pytest.approx(nats(limit=0)[[0, 2, 4]], abs=1e-4)


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


def test_held_out_loss_stands_in_the_group_record(ask: Callable, run_dir: RunDir):
    ask('small')
    (group,) = [r for r in run_dir.records() if r['task'] == 'small']
    assert group['loss'] is None
    answer = ask('heldout', 'small')
    loss, group = answer.data['records'][0], answer.data['records'][-1]
    assert group['loss'] == loss['loss'] > 0


def test_made_up_tasks_need_no_folder(ask: Callable):
    records = ask('dyck', 'made:induction', task_dir='', limit=5).data['records']
    assert [record['task'] for record in records] == ['made:dyck', 'made:induction']


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
