"""What `smelt law` answers of frontiers and gains, and what a fit holds: tables, and the same as data."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from rich.table import Table

from smelt_jax.law import frontier as frontiers
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.gain import Gain, gains
from smelt_jax.law.intervals import LEVEL
from smelt_jax.law.published import PREFIX, fits_of
from smelt_jax.law.report import coefficients
from smelt_jax.law.units import flops_text
from smelt_jax.screen import Answer
from smelt_jax.storage.files import reach


def table_of(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    """A table whose first `left` columns are words, the others numbers."""
    table = Table(title=title, title_justify='left')
    for i, name in enumerate(columns):
        table.add_column(name, justify='left' if i < left else 'right')
    for row in rows:
        table.add_row(*row)
    return table


def named_fits(wheres: Sequence[str], several: bool = False) -> dict[str, list[Fitted]]:
    """Fits by the name given to their file: NAME=FILE, or FILE (or published:NAME), whose name is ''.

    Raises ValueError if a name is given twice, unless `several` files may have one: which fits it means would be a guess.
    Files without a name whose fits would look alike then have that of the file.
    """
    found: dict[str, list[Fitted]] = {}
    entries = _apart([_entry(where) for where in wheres]) if several else [_entry(where) for where in wheres]
    for name, file in entries:
        if name in found and not several:
            raise ValueError(
                f'--fit={",".join(wheres)}: {name or "a file without a name"} is given twice; write NAME=FILE'
            )
        found.setdefault(name, []).extend(fits_of(file))
    return found


def _entry(where: str) -> tuple[str, str]:
    """Name and file of NAME=FILE; a file that is there may have = in its path."""
    name, equals, file = where.partition('=')
    return (name, file) if equals and not reach(where).exists() else ('', where)


def _apart(entries: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same, files without a name called by theirs if their fits would look alike; by their whole path if need be."""
    words = [[] if name else [fit.group or fit.law for fit in fits_of(file)] for name, file in entries]
    every = [word for each in words for word in each]
    alike = [any(every.count(word) > 1 for word in each) for each in words]
    short = [epath.Path(file.removeprefix(PREFIX)).name.removesuffix('.json') for _, file in entries]
    unique = len({name for name, like in zip(short, alike, strict=True) if like}) == sum(alike)
    return [
        (short[i] if unique else file, file) if alike[i] else (name, file) for i, (name, file) in enumerate(entries)
    ]


def pairs_of(wheres: Sequence[str], reference: str) -> dict[str, tuple[Fitted, Fitted]]:
    """(reference, target) of each file, by the file's name; of several targets in a file, by that and the target's group.

    Raises ValueError, listing what is there, if a file has no fit of the group `reference`, or nothing beside it.
    """
    pairs = {}
    for name, fits in named_fits(wheres).items():
        by_group = {fit.group: fit for fit in fits}
        for group in (group for group in by_group if [fit.group for fit in fits].count(group) > 1):
            what = f'{name or ",".join(wheres)} has two fits of {group!r}'
            raise ValueError(f'{what}; which is meant would be a guess: fit one of them')
        targets = [group for group in by_group if group != reference]
        if reference not in by_group or not targets:
            known = ', '.join(repr(group) for group in by_group)
            raise ValueError(
                f'--reference={reference}: the fits of {name or ",".join(wheres)} are of {known}; name one of two or more, as '
                f'smelt fit --by=architecture makes them'
            )
        for group in targets:
            label = ' '.join(part for part in (name, group if len(targets) > 1 else '') if part)
            pairs[label] = (by_group[reference], by_group[group])
    return pairs


def levels(fit: Fitted, sparsities: Sequence[float]) -> list[float | None]:
    """`sparsities` for a law that takes one, else None alone."""
    return list(sparsities) if 'S' in fit.kind.columns else [None]


def unmarked(name: str, fit: Fitted) -> list[str]:
    """A line of a fit that does not say what it was fitted to."""
    return (
        []
        if fit.ranges
        else [f'{name}: what it was fitted to is not stated, so that nothing is marked as extrapolated']
    )


def frontier_answer(wheres: Sequence[str], computes: Sequence[float], sparsities: Sequence[float]) -> Answer:
    """The frontier of every fit at every compute."""
    rows, data, lines = [], [], []
    for name, fits in named_fits(wheres, several=True).items():
        for fit in fits:
            arm = ' '.join(part for part in (name, fit.group) if part) or fit.law
            lines += unmarked(arm, fit)
            for sparsity in levels(fit, sparsities):
                line = frontiers.of_fit(fit, sparsity)
                for compute in computes:
                    best = line.best(compute)
                    beyond = frontiers.outside(fit, compute, best, sparsity)
                    point = {
                        'arm': arm,
                        'sparsity': sparsity,
                        'compute': compute,
                        'size': float(best.size),
                        'tokens': float(best.tokens),
                        'loss': float(best.loss),
                        'tokens_per_parameter': float(line.tokens_per_parameter(compute)),
                        'gamma': float(line.gamma),
                        'extrapolated': list(beyond),
                    }
                    data.append(point)
                    rows.append(_frontier_row(point))
    columns = ('arm', 'S', 'C, FLOPs', 'F* or N*', 'D*, tokens', 'L*, nats', 'TPP', 'γ', 'extrapolated')
    lines.append(
        'F* training FLOPs per token (smelt), N* parameters (chinchilla); TPP tokens per dense-equivalent parameter'
    )
    return Answer([table_of('compute-optimal frontier', columns, rows)], {'frontier': data}, lines)


def _frontier_row(point: dict[str, Any]) -> list[str]:
    return [
        point['arm'],
        '–' if point['sparsity'] is None else f'{point["sparsity"]:g}',
        flops_text(point['compute']),
        f'{point["size"]:.3g}',
        f'{point["tokens"]:.3g}',
        f'{point["loss"]:.4f}',
        f'{point["tokens_per_parameter"]:.1f}',
        f'{point["gamma"]:.3f}',
        ', '.join(point['extrapolated']),
    ]


def gain_answer(
    wheres: Sequence[str], reference: str, computes: Sequence[float], sparsities: Sequence[float]
) -> Answer:
    """CE gain of every pair of fits at every compute and sparsity."""
    pairs = pairs_of(wheres, reference)
    first = next(iter(pairs.values()))[0]
    found = gains(pairs, computes, levels(first, sparsities))
    columns = ('of', 'S', 'C, FLOPs', 'CE gain', f'{LEVEL:.0%} interval', 'loss, nats', 'C_ref, FLOPs', 'extrapolated')
    table = table_of(f'compute-equivalent gain over {reference}', columns, [_gain_row(one) for one in found])
    lines = ['CE gain = 1 − C / C_ref, where the reference needs C_ref for the same loss']
    lines += [line for pair in pairs.values() for fit in pair for line in unmarked(fit.group or fit.law, fit)]
    drawn = [one for one in found if one.low is not None]
    if not drawn:
        lines.append('no intervals: these fits have no replicates (smelt fit --bootstrap=cells makes them)')
    elif not all(one.paired for one in drawn):
        lines.append(
            'the replicates of the arms are independent draws: with the same cells and seed they would be pairs'
        )
    return Answer([table], {'reference': reference, 'gains': [dataclasses.asdict(one) for one in found]}, lines)


def _gain_row(one: Gain) -> list[str]:
    return [
        one.group or 'all',
        '–' if one.sparsity is None else f'{one.sparsity:g}',
        flops_text(one.compute),
        f'{one.gain:.1%}',
        '–' if one.low is None or one.high is None else f'[{one.low:.1%}, {one.high:.1%}]',
        f'{one.loss:.4f}',
        f'{one.reference_compute:.3g}' if np.isfinite(one.reference_compute) else 'never',
        '; '.join(one.outside),
    ]


def show_answer(wheres: Sequence[str]) -> Answer:
    """What fits hold: coefficients of each law's side by side, the ranges fitted, and what there is to say."""
    by_law: dict[str, list[Fitted]] = {}
    for name, fits in named_fits(wheres, several=True).items():
        for fit in fits:
            label = ' '.join(part for part in (name, fit.group) if part)
            by_law.setdefault(fit.law, []).append(dataclasses.replace(fit, group=label))
    lines = []
    for law, fits in by_law.items():
        lines.append(f'{law}: L = {fits[0].kind.formula}')
        for fit in fits:
            points = f'{fit.points} points' if fit.points else 'published'
            rmse = 'RMSE not stated' if fit.rmse is None else f'RMSE {fit.rmse:.4f} nats'
            lines.append(f'{fit.group or law}: {points}, {rmse}; {fit.details.get("source", fit.kind.source)}')
            spans = [f'{column} {low:.4g} to {high:.4g}' for column, (low, high) in fit.ranges.items()]
            lines.append(
                f'  fitted to {", ".join(spans) or "ranges that are not stated: nothing is marked as extrapolated"}'
            )
            lines += [f'  {note}' for note in fit.notes]
    data = {law: [dataclasses.asdict(fit) for fit in fits] for law, fits in by_law.items()}
    return Answer([coefficients(fits) for fits in by_law.values()], data, lines)
