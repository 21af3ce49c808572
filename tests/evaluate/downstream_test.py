"""Tasks of a checkpoint: each is a record and its outcomes; what is there is not done again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from small_tasks import ROWS, lines_of

from smelt_jax.evaluate import downstream
from smelt_jax.evaluate.outcomes import read
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.runs import RunDir

pytestmark = pytest.mark.usefixtures('quick')


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
    assert file.name == 'next-visits2-shots2-seed0-of6-room96.jsonl'
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
    (run_dir.outcomes / '10' / 'next-visits2-shots2-seed0-of6-room96.jsonl').unlink()
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
    first, file = ask('next'), run_dir.outcomes / '10' / 'next-visits2-shots2-seed0-of6-room96.jsonl'
    text = file.read_text()
    file.write_text(change(text))
    assert ask('next').data == first.data
    assert file.read_text() == text


def test_a_trial_leaves_what_was_measured_on_all_examples(ask: Callable, run_dir: RunDir):
    whole = ask('small').data['records']
    files = {file: file.read_text() for file in (run_dir.outcomes / '10').iterdir()}
    ask('small', limit=2)
    ask('small', room=80)
    records = run_dir.records()
    assert len(records) == 3 * len(whole)
    assert json.loads(json.dumps(whole)) == records[: len(whole)]
    assert all(file.read_text() == text for file, text in files.items())


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
        (file,) = (run_dir.outcomes / '10').glob(f'next-visits2-shots2-seed0-of{given["limit"] or 6}-*')
        return read([file]).nats

    assert nats(limit=3) == pytest.approx(nats(limit=0)[[0, 2, 4]], abs=1e-4)


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
