"""Pairs of losses and scores of two arms, from a table that has a row an arm and pair."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from smelt_jax.law.reading import Frame, endpoints, read
from smelt_jax.law.select import columns_of, numbers, select


@dataclasses.dataclass(frozen=True)
class Named:
    """What the columns of a table are called.

    Attributes:
      loss, score: nats per token and the score, or arithmetic of columns.
      arm: whose values are the arms.
      pair: columns that together name a pair; each pair has one row of each arm.
      group: whose values the residuals are told apart by; '' for none.
      cells: that name what a bootstrap draws together.
      where, exclude: conditions on the rows to take, and on those to leave out.
    """

    loss: str
    score: str
    arm: str
    pair: Sequence[str]
    group: str
    cells: Sequence[str]
    where: Sequence[str] = ()
    exclude: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Pairs:
    """An arm beside the reference. Row i of everything is pair i.

    Attributes:
      arm: its name.
      reference, target: (losses [n] in nats per token, scores [n]) of the reference and of the arm.
      groups, cells: labels [n].
      notes: what was left out of the rows, and why.
    """

    arm: str
    reference: tuple[np.ndarray, np.ndarray]
    target: tuple[np.ndarray, np.ndarray]
    groups: list[str]
    cells: list[str]
    notes: tuple[str, ...] = ()


def pairs_of(records: Sequence[str], named: Named, reference: str) -> list[Pairs]:
    """The pairs of every arm with the reference, in the order of the arms in the table.

    Of records those at the visits of training, of annealed branches if there are any, unless conditions say otherwise; they
    must be of one task.

    Raises:
      ValueError: a column or arm is not there, a value is no finite number, a pair lacks a row or has two, or records are of
        several tasks or packs.
    """
    frame = select(read(records), named.where, named.exclude)
    if frame.records:
        tasks = list(dict.fromkeys(frame.column('task')))
        if len(tasks) > 1:
            raise ValueError(
                f'the records are of {len(tasks)} tasks, {", ".join(tasks)}; choose one: --where=task==core'
            )
        conditions = (*named.where, *named.exclude)
        frame = endpoints(frame, {'task', *(name for condition in conditions for name in columns_of(condition))})
    arms = [str(value) for value in frame.column(named.arm)]
    others = [arm for arm in dict.fromkeys(arms) if arm != reference]
    if reference not in arms or not others:
        raise ValueError(f'--reference={reference}: {named.arm} has {", ".join(map(repr, dict.fromkeys(arms)))}')
    loss, score = _finite(frame, named.loss), _finite(frame, named.score)
    keys, cells = _labels(frame, named.pair), _labels(frame, named.cells)
    groups = _labels(frame, [named.group] if named.group else [])
    base, found = _by_key(keys, arms, reference), []
    for arm in others:
        mine = _by_key(keys, arms, arm)
        if lonely := sorted(base.keys() ^ mine.keys()):
            pair = f'{" ".join(named.pair)} {lonely[0]!r}'
            raise ValueError(f'{pair} is not in both of {reference} and {arm}; pairs have a row of each')
        first, second = list(base.values()), [mine[key] for key in base]
        labels = [groups[i] for i in first], [cells[i] for i in first]
        found.append(Pairs(arm, (loss[first], score[first]), (loss[second], score[second]), *labels, frame.notes))
    return found


def _finite(frame: Frame, expression: str) -> np.ndarray:
    values = numbers(frame, expression)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise ValueError(f'{frame.places[row]}: {expression} is {values[row]:g}; mend it, or leave the row out')
    return values


def _labels(frame: Frame, columns: Sequence[str]) -> list[str]:
    values = [frame.column(name) for name in columns]
    return [' '.join(map(str, row)) for row in zip(*values, strict=True)] if values else [''] * len(frame)


def _by_key(keys: Sequence[str], arms: Sequence[str], arm: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for i, (key, mine) in enumerate(zip(keys, arms, strict=True)):
        if mine == arm:
            if key in found:
                raise ValueError(f'two rows of {arm} are of pair {key!r}; name more columns in --pair')
            found[key] = i
    return found
