"""What `smelt law transfer` answers: wins and residuals of one arm over another, from a table of losses and scores."""

import dataclasses
from collections.abc import Sequence

from smelt_jax.law.gain_report import table_of
from smelt_jax.law.intervals import LEVEL
from smelt_jax.law.scores import Named, pairs_of
from smelt_jax.law.transfer import beyond, wins
from smelt_jax.screen import Answer


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
      ValueError: as `pairs_of`, or there are too few points for a curve.
    """
    rows, counts, data = [], [], []
    arms = pairs_of(records, named, reference)
    for pairs in arms:
        won = wins(pairs.reference[1], pairs.target[1], lower_is_better)
        curve, found = beyond(pairs.reference, pairs.target, pairs.groups, pairs.cells, replicates, seed)
        for one in found:
            interval = f'[{one.low:+.4g}, {one.high:+.4g}]'
            rows.append([pairs.arm, one.group, str(one.points), f'{one.mean:+.4g}', interval])
        counts.append([pairs.arm, str(won.won), str(won.tied), str(won.lost)])
        data.append(
            {
                'arm': pairs.arm,
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
    lines += arms[0].notes
    return Answer(tables, {'score': named.score, 'reference': reference, 'arms': data}, lines)
