"""What `smelt evaluate` answers: checkpoints one after the other, then side by side."""

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from smelt_jax.evaluate import outcomes
from smelt_jax.evaluate.downstream import Say, evaluate_tasks
from smelt_jax.evaluate.heldout import heldout
from smelt_jax.evaluate.opened import Opened, Record, open_checkpoint
from smelt_jax.evaluate.outcomes import Outcomes
from smelt_jax.evaluate.pairs import Pair, compared, wins
from smelt_jax.evaluate.tables import record_tables
from smelt_jax.evaluate.task_tables import group_table, pair_table, task_tables
from smelt_jax.evaluate.wanted import Asked, Where
from smelt_jax.parallel import processes
from smelt_jax.runs import RunDir
from smelt_jax.screen import Answer


def evaluated(asked: Asked, say: Say = lambda *_: None) -> Answer:
    """Evaluates, writes records, and answers with tables, the records as data."""
    tables: list[Table] = []
    done: dict[Where, list[_Done]] = {}
    for where in dict.fromkeys((*asked.against, *asked.checkpoints)):
        done[where], shown = _checkpoint(asked, where, say)
        tables += shown
    groups = [record for found in done.values() for one in found for record in one.groups]
    if groups:
        tables.append(group_table('means over tasks', groups))
    lines: list[str] = []
    comparisons: list[dict[str, Any]] = []
    # The first process has written the outcomes; the others would look for them too early.
    if processes.first() and asked.ask.tasks and (asked.against or len(asked.checkpoints) > 1):
        references = asked.against or asked.checkpoints[:1] * len(asked.checkpoints)
        pairs = [pair for pair in zip(references, asked.checkpoints, strict=True) if pair[0] != pair[1]]
        shown, lines, comparisons = _compared(asked, done, pairs)
        tables += shown
    records = [record for found in done.values() for one in found for record in (*one.records, *one.groups)]
    return Answer(tables, {'records': records, 'comparisons': comparisons}, lines)


@dataclasses.dataclass
class _Done:
    """A checkpoint at one number of visits."""

    run_dir: RunDir
    step: int
    visits: int
    records: list[Record]
    groups: list[Record]

    @property
    def label(self) -> str:
        return f'{self.run_dir.config().name}@{self.step}'

    @property
    def place(self) -> str:
        return f'{self.run_dir.path}@{self.step}'


def _checkpoint(asked: Asked, where: Where, say: Say) -> tuple[list[_Done], list[Table]]:
    workdir, step = where
    run = RunDir(workdir).config()
    visits = asked.visits_of(run.model)
    rows = {'heldout__batch_rows': run.heldout.batch_rows} if asked.heldout else {}
    opened = open_checkpoint(workdir, step, visits[0], asked.pack, asked.mesh, **rows)
    done, tables = [], []
    for r in visits:
        found = _Done(opened.run_dir, opened.step, r, [], [])
        if asked.ask.tasks:  # before held-out loss: what has no room is told before anything is scored
            found.records += evaluate_tasks(
                opened, asked.ask, r, functools.partial(_heard, say, f'{run.name}, {r} visit(s)')
            )
        if asked.heldout:
            found.records.insert(0, heldout(opened, r, asked.length_bins))
            tables += record_tables(found.records[0])
        for shots, (group, names) in itertools.product(asked.ask.shots or (None,), asked.groups.items()):
            found.groups.append(_group(opened, r, group, names, found.records, shots))
        if not asked.ask.shots and processes.first():
            opened.run_dir.put_records(found.groups)
        done.append(found)
    of_tasks = [record for found in done for record in found.records if 'task_version' in record]
    return done, tables + (task_tables(of_tasks) if of_tasks else [])


def _heard(say: Say, whose: str, what: str, done: int, of: int) -> None:
    say(f'{whose}: {what}', done, of)


def _group(
    opened: Opened, visits: int, group: str, names: Sequence[str], records: Sequence[Record], shots: int | None
) -> Record:
    """The mean over tasks of the means over seeds, and the held-out loss of the same checkpoint and visits if it is known.
    At a number of shots, or None for each task's own."""
    begun = opened.record(group, visits) | ({} if shots is None else {'shots': shots})
    mine = [one for one in records if shots in (None, one.get('shots'))]
    parts = [[one for one in mine if one['task'] == name] for name in names]
    loss = [
        record['loss']
        for record in opened.run_dir.records()
        if record['task'] == 'heldout' and all(record[key] == begun[key] for key in ('step', 'visits', 'pack'))
    ]
    return {
        **begun,
        'loss': loss[-1] if loss else None,
        'tasks': len(names),
        'seeds': max(map(len, parts)),
        'examples': sum(part[0]['examples'] for part in parts),
        'room': parts[0][0]['room'],
        **{
            key: statistics.fmean(statistics.fmean(record[key] for record in part) for part in parts)
            for key in ('accuracy', 'centered', 'completion')
        },
    }


def _compared(
    asked: Asked, done: Mapping[Where, list[_Done]], pairs: Sequence[tuple[Where, Where]]
) -> tuple[list[Table], list[str], list[dict[str, Any]]]:
    tables: list[Table] = []
    means: list[Pair] = []
    data: list[dict[str, Any]] = []
    labels = [found[0].label for found in done.values()]
    alike = len(set(labels)) < len(labels)  # as of two seeds of a run
    for reference, other in pairs:
        each = _each(done[reference], done[other])
        for (theirs, ours), shots in itertools.product(each, asked.ask.shots or (None,)):
            who = (theirs.place, ours.place) if alike else (theirs.label, ours.label)
            names = [f'{label}, {one.visits} visit(s)' for label, one in zip(who, (theirs, ours), strict=True)]
            chance = {record['task']: record['chance'] for record in ours.records if 'task_version' in record}
            by_task, mean = compared(_outcomes(theirs, shots), _outcomes(ours, shots), chance)
            means.append(mean)
            title = f'{names[1]} against {names[0]}' + ('' if shots is None else f', {shots} shots')
            tables.append(pair_table(title, who, by_task | ({'mean': mean} if len(by_task) > 1 else {})))
            won, ties, completion = wins(list(by_task.values()))
            data.append(
                {
                    'reference': names[0],
                    'other': names[1],
                    'shots': shots,
                    'tasks': {task: _plain(pair) for task, pair in by_task.items()},
                    'mean': _plain(mean),
                    'wins': {'tasks': len(by_task), 'centered': won, 'ties': ties, 'completion': completion},
                }
            )
    won, ties, completion = wins(means)
    lines = [_line(one) for one in data]
    if len(means) > 1:
        lines.append(
            f'of {len(means)} pairs the mean over tasks is won {won} times (ties {ties}), {completion} by completion'
        )
    return tables, lines, data


def _each(references: list[_Done], others: list[_Done]) -> list[tuple[_Done, _Done]]:
    """Both at the same visits; one without a loop beside each of the other's."""
    most = max(len(references), len(others))
    return list(zip(*(found * (most // len(found)) for found in (references, others)), strict=True))


def _line(one: Mapping[str, Any]) -> str:
    won, shots = one['wins'], '' if one['shots'] is None else f', {one["shots"]} shots,'
    return (
        f'{one["other"]}{shots} wins {won["centered"]} of {won["tasks"]} tasks (ties {won["ties"]}), '
        f'{won["completion"]} by completion'
    )


def _plain(pair: Pair) -> dict[str, Any]:
    return {'centered': pair.accuracy._asdict(), 'completion': pair.completion._asdict()}


def _outcomes(done: _Done, shots: int | None) -> dict[str, Outcomes]:
    """By task, means over seeds; at a number of shots, or None for each task's own."""
    files: dict[str, list] = {}
    for record in done.records:
        if 'task_version' in record and shots in (None, record['shots']):
            files.setdefault(record['task'], []).append(outcomes.outcome_file(done.run_dir, record))
    return {task: outcomes.read(of) for task, of in files.items()}
