"""What `smelt law transfer` answers: wins and residuals of one arm over another, from a table of losses and scores."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from smelt_jax.law.gain_report import table_of
from smelt_jax.law.reading import Frame, read
from smelt_jax.law.select import numbers
from smelt_jax.law.transfer import LEVEL, beyond, wins
from smelt_jax.screen import Answer


@dataclasses.dataclass(frozen=True)
class Named:
    """What the columns of a table are called.

    Attributes:
      loss, score: nats per token and the score, or arithmetic of columns.
      arm: whose values are the arms.
      pair: columns that together name a pair; each pair has one row of each arm.
      group: whose values the residuals are told apart by; '' for none.
      cells: that name what a bootstrap draws together.
    """

    loss: str
    score: str
    arm: str
    pair: Sequence[str]
    group: str
    cells: Sequence[str]


def transfer_answer(
    records: Sequence[str],
    named: Named,
    reference: str,
    lower_is_better: bool = False,
    replicates: int = 1000,
    seed: int = 0,
) -> Answer:
    """Wins, the curve of the reference, and the residuals of each other arm.

    Raises:
      ValueError: a column or arm is not there, or a pair lacks a row or has two.
    """
    frame = read(records)
    arms = [str(value) for value in frame.column(named.arm)]
    others = [arm for arm in dict.fromkeys(arms) if arm != reference]
    if reference not in arms or not others:
        raise ValueError(f'--reference={reference}: {named.arm} has {", ".join(map(repr, dict.fromkeys(arms)))}')
    loss, score = numbers(frame, named.loss), numbers(frame, named.score)
    keys, drawn = _labels(frame, named.pair), _labels(frame, named.cells)
    groups = _labels(frame, [named.group] if named.group else [])
    base = _by_key(keys, arms, reference)
    rows, counts, data = [], [], []
    for arm in others:
        mine = _by_key(keys, arms, arm)
        if lonely := sorted(base.keys() ^ mine.keys()):
            raise ValueError(
                f'{" ".join(named.pair)} {lonely[0]!r} is not in both of {reference} and {arm}; pairs have a row of each'
            )
        first, second = np.array([base[key] for key in base]), np.array([mine[key] for key in base])
        group = [groups[i] for i in first]
        cells = [drawn[i] for i in first]
        won = wins(score[first], score[second], lower_is_better)
        reference_arm, other_arm = (loss[first], score[first]), (loss[second], score[second])
        curve, found = beyond(reference_arm, other_arm, group, cells, replicates, seed)
        rows += [
            [arm, one.group, str(one.points), f'{one.mean:+.4g}', f'[{one.low:+.4g}, {one.high:+.4g}]'] for one in found
        ]
        counts.append([arm, str(won.won), str(won.tied), str(won.lost)])
        data.append(
            {
                'arm': arm,
                'wins': dataclasses.asdict(won),
                'curve': dataclasses.asdict(curve),
                'residuals': [dataclasses.asdict(one) for one in found],
            }
        )
    title = f'{named.score}: what is scored beyond the curve of {reference} at the same loss'
    tables = [
        table_of(f'{named.score}: pairs against {reference}', ('arm', 'won', 'tied', 'lost'), counts),
        table_of(title, ('arm', 'of', 'pairs', 'mean residual', f'{LEVEL:.0%} interval'), rows, left=2),
    ]
    shape = dataclasses.asdict(curve)
    lines = ['curve of ' + reference + ': ' + ', '.join(f'{name} {value:.4g}' for name, value in shape.items())]
    return Answer(tables, {'score': named.score, 'reference': reference, 'arms': data}, lines)


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
