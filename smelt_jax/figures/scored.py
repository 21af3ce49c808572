"""Records of tasks as curves: one for each checkpoint and number of visits, or of shots."""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from smelt_jax.figures.style import COLOURS
from smelt_jax.law.reading import Frame
from smelt_jax.law.select import select
from smelt_jax.tasks.means import Mean, means

Record = dict[str, Any]

HELDOUT = 'heldout'
SCORES = ('accuracy', 'centered')
WHOSE = ('name', 'seed', 'kind', 'step', 'pack')  # what tells checkpoints, and what they were evaluated on, apart


class Measured(NamedTuple):
    """A mean, and its standard error; None if it is not known."""

    value: float
    error: float | None = None


@dataclasses.dataclass(frozen=True)
class Curve:
    """Attributes:
    name: in the legend.
    trained: visits of the loop in training.
    points: shots, or visits, of each point in order → what was measured there: accuracy, centered, completion, and loss.
    visits: of all points; None of a curve along visits.
    """

    name: str
    trained: int
    points: Mapping[int, Mapping[str, Measured]]
    visits: int | None = None

    def of(self, measure: str) -> tuple[list[int], list[Measured]]:
        """(where, what) of the points that have `measure`."""
        found = {at: point[measure] for at, point in self.points.items() if measure in point}
        return list(found), list(found.values())


@dataclasses.dataclass(frozen=True)
class Scored:
    """Records of one task, or of a group of tasks.

    Attributes:
      task: its name, or that of the group.
      tasks: those of the group; of a task it alone.
      lines: name in the legend → the records of a checkpoint.
      chance: what guessing scores, a fraction; of a group the mean.
    """

    task: str
    tasks: tuple[str, ...]
    lines: Mapping[str, Sequence[Record]]
    chance: float

    @property
    def grouped(self) -> bool:
        """Whether it is a group."""
        return self.tasks != (self.task,)


def scored(frame: Frame, task: str, where: Sequence[str] = (), exclude: Sequence[str] = ()) -> Scored:
    """The records of a task or of a group, of those the ones that are chosen, and held-out losses of the same checkpoints.

    Raises:
      ValueError: there is no such task, a record is there twice, or a task's records are of several versions or numbers of
        examples.
    """
    if not frame.records:
        raise ValueError('--records are tables; these curves are of records.jsonl, which smelt evaluate writes')
    for name in (*WHOSE, 'trained_visits'):
        frame.column(name)
    rows = _rows(frame)
    of_tasks = [row.get('task_version') is not None for row in rows]
    if task not in {row['task'] for row in rows} and f'made:{task}' in {row['task'] for row in rows}:
        task = f'made:{task}'  # as smelt evaluate takes it
    chosen = [is_task and task in (row['task'], row['group']) for row, is_task in zip(rows, of_tasks, strict=True)]
    if not any(chosen):
        known = [row for row, is_task in zip(rows, of_tasks, strict=True) if is_task]
        names = [*sorted({row['group'] for row in known} - {''}), *sorted({row['task'] for row in known})]
        raise ValueError(f'--task={task}: the records are of {", ".join(names) or "no task"}')
    mine = _rows(select(frame.take(chosen), where, exclude))
    _check(mine)
    beside = [
        row for row, is_task in zip(rows, of_tasks, strict=True) if not is_task and row['task'] in (HELDOUT, task)
    ]
    chance = {row['task']: row['chance'] for row in mine}
    return Scored(task, tuple(chance), _lines(mine, beside), statistics.fmean(chance.values()))


def _rows(frame: Frame) -> list[Record]:
    values = zip(*frame.columns.values(), strict=True)
    rows = [dict(zip(frame.columns, row, strict=True)) for row in values]
    return [{**row, 'place': place} for row, place in zip(rows, frame.places, strict=True)]


def along_shots(of: Scored) -> list[Curve]:
    """A curve for each line and number of visits. Of a group the points at which all its tasks were evaluated.

    Raises ValueError if all of it is at one number of shots, or if there are more curves than styles."""
    found = []
    for name, rows in of.lines.items():
        trained = rows[0]['trained_visits']
        for visits, points in sorted(_points(of.tasks, rows, 'visits', 'shots').items()):
            found.append(Curve(f'{name}, {visits} visit{"s" * (visits > 1)}', trained, points, visits))
    return _checked(found, of, 'shots')


def along_visits(of: Scored) -> list[Curve]:
    """A curve for each line and number of shots, with held-out losses. Of a group it has the group's own records: each task at
    its own number of shots.

    Raises ValueError if all of it is at one number of visits, or if there are more curves than styles."""
    found = []
    for name, rows in of.lines.items():
        losses = {row['visits']: Measured(row['loss']) for row in rows if row['task'] == HELDOUT}
        if of.grouped:
            keys = (*SCORES, 'completion')
            chosen = {row['visits'] for row in rows if row['task'] in of.tasks}
            own = [row for row in rows if row['task'] == of.task and row['visits'] in chosen]
            own = [row for row in own if row['tasks'] == len(of.tasks)]
            parts = {0: {row['visits']: {key: Measured(row[key]) for key in keys} for row in own}} if own else {}
        else:
            parts = _points(of.tasks, rows, 'shots', 'visits')
        for shots, points in sorted(parts.items()):
            points = {at: {**what, **({'loss': losses[at]} if at in losses else {})} for at, what in points.items()}
            label = name if of.grouped else f'{name}, {shots} shot{"s" * (shots != 1)}'
            found.append(Curve(label, rows[0]['trained_visits'], dict(sorted(points.items()))))
    return _checked(found, of, 'visits')


def _points(
    tasks: Sequence[str], rows: Sequence[Record], other: str, along: str
) -> dict[int, dict[int, dict[str, Measured]]]:
    """Value of `other` → value of `along`, ascending → measures, where all tasks are."""
    found: dict[tuple[int, int], dict[str, Mean]] = {}
    for mean in means([row for row in rows if row['task'] in tasks]):
        found.setdefault((mean.record[other], mean.record[along]), {})[mean.record['task']] = mean
    curves: dict[int, dict[int, dict[str, Measured]]] = {}
    for (of, at), parts in sorted(found.items()):
        if parts.keys() == set(tasks):
            curves.setdefault(of, {})[at] = _together(list(parts.values()))
    return curves


def _together(parts: Sequence[Mean]) -> dict[str, Measured]:
    """The mean over tasks, whose errors are independent."""
    return {
        'accuracy': _mean((part.accuracy, part.error) for part in parts),
        'centered': _mean((part.centered, _scaled(part.error, 1 - part.record['chance'])) for part in parts),
        'completion': _mean((part.completion, part.completion_error) for part in parts),
    }


def _scaled(error: float | None, by: float) -> float | None:
    return None if error is None else error / by


def _mean(parts: Iterable[tuple[float, float | None]]) -> Measured:
    values, errors = zip(*parts, strict=True)
    known = [error for error in errors if error is not None]
    error = sum(each**2 for each in known) ** 0.5 / len(values) if len(known) == len(values) else None
    return Measured(statistics.fmean(values), error)


def _lines(mine: Sequence[Record], beside: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by checkpoint, which is called by its name and what tells it from others of that name."""
    whose: dict[tuple, list[Record]] = {}
    for row in mine:
        whose.setdefault(tuple(row[key] for key in WHOSE), []).append(row)
    for row in beside:
        if (key := tuple(row[key] for key in WHOSE)) in whose:
            whose[key].append(row)
    found = {}
    for key, rows in whose.items():
        namesakes = [other for other in whose if other[0] == key[0]]
        parts = [
            f' {what} {str(value)[:8]}'
            for what, value, *others in zip(WHOSE, key, *namesakes, strict=True)
            if len(set(others)) > 1
        ]
        found[key[0] + ','.join(parts)] = rows
    return found


def _check(rows: Sequence[Record]) -> None:
    first: dict[str, Record] = {}
    seen: dict[tuple, str] = {}
    for row in rows:
        other = first.setdefault(row['task'], row)
        for what in ('task_version', 'examples'):
            if row[what] != other[what]:
                raise ValueError(
                    f'{other["place"]} and {row["place"]}: {what} of {row["task"]} is {other[what]} and {row[what]}; '
                    f'evaluate both alike, or choose with --where={what}=={row[what]}'
                )
        key = tuple(row[key] for key in (*WHOSE, 'task', 'visits', 'shots', 'shot_seed'))
        if key in seen:
            raise ValueError(f'{seen[key]} and {row["place"]} are of the same checkpoint and task; give one of them')
        seen[key] = row['place']


def _checked(curves: list[Curve], of: Scored, along: str) -> list[Curve]:
    points = sorted({at for curve in curves for at in curve.points})
    if len(points) < 2:
        if points:
            raise ValueError(
                f'the records of {of.task} are at {points[0]} {along} alone; smelt evaluate --{along}=… adds others'
            )
        without = ', without --shots,' * (along == 'visits')
        raise ValueError(
            f'there is no mean over {len(of.tasks)} task(s) of {of.task}; smelt evaluate --tasks={of.task}{without} adds it'
        )
    if len(curves) > len(COLOURS):
        raise ValueError(
            f'{len(curves)} curves in one figure, as {curves[0].name!r}: {len(COLOURS)} can be told apart; choose with '
            f'--where=step==…, shots==…, visits==… and the like'
        )
    return curves
