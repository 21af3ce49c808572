"""Two arms of one budget, side by side: from their run directories alone to tables and comparison.json. No jax."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.table import Table

from smelt_jax.evaluate.tables import number
from smelt_jax.runs import RunDir

Record = dict[str, Any]
BUDGETS = {
    'training FLOPs per token': 'flops_per_token',
    'parameters (without embeddings and norms)': 'parameters',
    'KV values per token': 'kv_values_per_token',
}
GROUPS = ('source', 'domain', 'length')


class Arm(NamedTuple):
    """An architecture's runs: a trunk and the branches annealed from it."""

    name: str
    trunk: RunDir
    branches: Sequence[RunDir]


def compare(baseline: Arm, other: Arm, references: dict[str, float]) -> dict[str, Any]:
    """Everything the tables show, as plain data.

    Args:
      baseline, other: the arms; evaluated at the same steps.
      references: bits per byte of what is not a language model of ours, on the same held-out text.

    Returns:
      `endpoints`: one a pair of evaluated checkpoints, trunk checkpoints first, with `difference` = other − baseline in nats
      per token, in all and by domain and length. `budgets`: both arms' and their ratio. `speed`: medians over the trunks'
      log lines. `references`: as given.

    Raises:
      ValueError: the arms have no evaluated checkpoint in common, read different tokens, or were scored on different ones.
    """
    ours, theirs = _endpoints(other), _endpoints(baseline)
    common = sorted(ours.keys() & theirs.keys(), key=lambda key: (key[0] == 'branch', key[1], key[2]))
    if not common:
        raise ValueError(f'{baseline.trunk.path} and {other.trunk.path} have no evaluated checkpoint in common')
    for key in common:
        _require_same_text(theirs[key], ours[key])
    return {
        'arms': [baseline.name, other.name],
        'endpoints': [_pair(theirs[key], ours[key]) for key in common],
        'budgets': {label: _ratio(theirs[common[0]][key], ours[common[0]][key]) for label, key in BUDGETS.items()},
        'speed': {arm.name: _speed(arm) for arm in (baseline, other)},
        'references': references,
    }


def tables(comparison: dict[str, Any]) -> list[Table]:
    """The comparison for a terminal."""
    baseline, other = comparison['arms']
    return [
        _endpoint_table(comparison, baseline, other),
        _group_table(comparison, 'domain'),
        _group_table(comparison, 'length'),
        _budget_table(comparison, baseline, other),
        _speed_table(comparison),
    ]


def _endpoints(arm: Arm) -> dict[tuple[str, int, int], Record]:
    """Held-out records by (kind, step it grew from, tokens seen)."""
    records = [record for run in (arm.trunk, *arm.branches) for record in run.heldout()]
    return {(r['kind'], r['trunk_step'], r['tokens_seen']): r for r in records}


def _require_same_text(baseline: Record, other: Record) -> None:
    if baseline['pack'] != other['pack']:
        raise ValueError(f'the arms read different packs: {baseline["pack"]} and {other["pack"]}')
    scored = [
        {by: {name: entry['targets'] for name, entry in record[f'by_{by}'].items()} for by in GROUPS}
        for record in (baseline, other)
    ]
    if scored[0] != scored[1]:
        raise ValueError(
            f'step {baseline["step"]} of the arms was scored on different held-out text, {baseline["targets"]} and '
            f'{other["targets"]} tokens, or in different groups: evaluate both with the same heldout settings'
        )


def _pair(baseline: Record, other: Record) -> dict[str, Any]:
    def both(a: Record, b: Record) -> dict[str, Any]:
        scored = a['loss'] is not None
        return {
            'loss': [a['loss'], b['loss']],
            'bits_per_byte': [a['bits_per_byte'], b['bits_per_byte']],
            'difference': b['loss'] - a['loss'] if scored else None,
            'targets': a['targets'],
        }

    groups = {
        by: {name: both(entry, other[by][name]) for name, entry in baseline[by].items()}
        for by in (f'by_{name}' for name in GROUPS)
    }
    axes = {key: baseline[key] for key in ('kind', 'trunk_step', 'step', 'tokens_seen')}
    return {**axes, 'flops': [baseline['flops'], other['flops']], **both(baseline, other), **groups}


def _ratio(baseline: float, other: float) -> dict[str, float]:
    return {'baseline': baseline, 'other': other, 'ratio': other / baseline}


def _speed(arm: Arm) -> dict[str, float | None]:
    lines = arm.trunk.metrics()
    if not lines:
        raise ValueError(f'{arm.trunk.metrics_file} has no line: train the trunk of {arm.name} first')
    timed = [line for line in lines if line['mfu'] is not None]
    keys = ('tokens_per_second', 'mfu')
    return {key: statistics.median(line[key] for line in timed) if timed else None for key in keys}


def _endpoint_table(comparison: dict[str, Any], baseline: str, other: str) -> Table:
    table = Table(title='Held-out loss at equal tokens', title_justify='left')
    columns = (
        'from step',
        'tokens',
        'FLOPs',
        'FLOPs',
        'nats/token',
        'nats/token',
        'difference',
        'bits/byte',
        'bits/byte',
    )
    arms = ('', '', *[baseline, other] * 2, '', baseline, other)
    table.add_column('endpoint')
    for column, arm in zip(columns, arms, strict=True):
        table.add_column(f'{column}\n{arm}'.rstrip(), justify='right')
    for pair in comparison['endpoints']:
        table.add_row(
            'annealed' if pair['kind'] == 'branch' else 'trunk',
            f'{pair["trunk_step"]:,}',
            f'{pair["tokens_seen"]:,}',
            *(f'{flops:.3g}' for flops in pair['flops']),
            *(number(loss) for loss in pair['loss']),
            f'{pair["difference"]:+.4f}',
            *(number(bits, 3) for bits in pair['bits_per_byte']),
        )
    for name, bits in comparison['references'].items():
        table.add_row(name, *[''] * 7, number(bits, 3), number(bits, 3))
    return table


def _group_table(comparison: dict[str, Any], by: str) -> Table:
    """Of the endpoint with the most tokens."""
    last = comparison['endpoints'][-1]
    table = Table(title=f'The last endpoint by {by}, nats/token', title_justify='left')
    for column in (by, *comparison['arms'], 'difference', 'tokens'):
        table.add_column(column, justify='left' if column == by else 'right')
    for name, entry in last[f'by_{by}'].items():
        difference = '–' if entry['difference'] is None else f'{entry["difference"]:+.4f}'
        table.add_row(name, *(number(loss) for loss in entry['loss']), difference, f'{entry["targets"]:,}')
    return table


def _budget_table(comparison: dict[str, Any], baseline: str, other: str) -> Table:
    table = Table(title='The three budgets', title_justify='left')
    for column in ('', baseline, other, 'ratio'):
        table.add_column(column, justify='right' if column else 'left')
    for label, budget in comparison['budgets'].items():
        table.add_row(label, f'{budget["baseline"]:,.0f}', f'{budget["other"]:,.0f}', f'{budget["ratio"]:.3f}')
    return table


def _speed_table(comparison: dict[str, Any]) -> Table:
    table = Table(title='Speed of the trunks (medians)', title_justify='left')
    for column in ('', 'tokens/s', 'MFU'):
        table.add_column(column, justify='right' if column else 'left')
    for name, speed in comparison['speed'].items():
        table.add_row(name, number(speed['tokens_per_second'], 0), number(speed['mfu'], 3))
    return table
