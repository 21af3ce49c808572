"""What is known of a compiled step, as tables for people and as data for programs."""

import dataclasses
from typing import Any

from rich.table import Table

from smelt_jax.aot.facts import Facts
from smelt_jax.aot.flops import PARTS
from smelt_jax.aot.units import size

SHOWN = 10  # of the temporaries


def tables(facts: Facts) -> list[Table]:
    """Memory, FLOPs, what is sent, temporaries, and the program itself."""
    found = [_memory(facts), _flops(facts), _sent(facts)]
    if facts.temporaries:
        found.append(_temporaries(facts))
    return [*found, _program(facts)]


def tried_table(tried: list[Facts]) -> Table:
    """One line a policy that `--remat=auto` compiled."""
    table = _table('Policies tried', 'remat', 'bytes a device needs', 'fits', 'computed again', 'seconds to compile')
    for facts in tried:
        again = facts.work.again / facts.work.total
        table.add_row(facts.remat, size(facts.needs), _yes(facts), f'{again:.1%}', f'{facts.compile_seconds:.0f}')
    return table


def as_dict(facts: Facts) -> dict[str, Any]:
    """All of it, flat lists and numbers."""
    data = dataclasses.asdict(facts)
    data['fits'] = facts.fits
    data['collectives'] = [
        {'kind': kind, 'axes': list(axes), 'bytes': sent} for (kind, axes), sent in facts.collectives.items()
    ]
    data['work'] |= {'total': facts.work.total, 'model': facts.model_flops}
    return data


def _memory(facts: Facts) -> Table:
    table = _table('Memory of a device', '', 'bytes')
    memory = facts.memory
    if memory is None:
        table.add_row('arguments: training state and a batch, without padding', size(facts.arguments))
        table.add_row('all, by the account of the compiler, which refused the program', size(facts.needs))
    else:
        table.add_row('arguments: training state and a batch', size(memory.arguments))
        table.add_row('outputs', size(memory.outputs))
        table.add_row('of which in the place of arguments', size(-memory.aliased))
        table.add_row('temporaries, with gaps between buffers', size(memory.temporaries))
        table.add_row('code', size(memory.code))
        table.add_row('all', size(facts.needs), end_section=not memory.peak)
        if memory.peak:
            table.add_row('the most at one time, as the compiler counts', size(memory.peak))
    there = size(facts.limit) if facts.limit else 'not known'
    table.add_row(f'the device has ({facts.limit_source})', there)
    if facts.limit:
        table.add_row('all of what it has', f'{facts.needs / facts.limit:.1%}')
    return table


def _flops(facts: Facts) -> Table:
    table = _table('Training FLOPs a token', '', 'model', 'program', 'ratio')
    for part in (*PARTS, 'head'):
        model, program = facts.model_flops[part], facts.work.by_part[part] / facts.tokens
        table.add_row(part, f'{model:,.0f}', f'{program:,.0f}', f'{program / model:.3f}')
    model, program = sum(facts.model_flops.values()), facts.work.total / facts.tokens
    table.add_row('all', f'{model:,.0f}', f'{program:,.0f}', f'{program / model:.3f}')
    again = facts.work.again / facts.tokens
    table.add_row('of which computed again', '', f'{again:,.0f}', f'{again / model:.3f}')
    return table


def _sent(facts: Facts) -> Table:
    table = _table('Bytes a device receives in an update', 'axis', 'kind', 'program', 'formula', 'ratio')
    table.columns[1].justify = 'left'
    by_axis = facts.sent_by_axis
    for axis, formula in facts.formula.items():
        kinds = {key: sent for key, sent in facts.collectives.items() if facts.axis_of(key) == axis}
        found = by_axis.get(axis, 0.0)
        program = size(found) if facts.collectives_read else 'not read'
        ratio = f'{found / formula:.3f}' if facts.collectives_read and formula else ''
        table.add_row(axis, 'all', program, size(formula), ratio)
        for (kind, axes), sent in sorted(kinds.items(), key=lambda entry: -entry[1]):
            table.add_row('', f'{kind} over {", ".join(axes)}', size(sent), '', '')
    for (kind, axes), sent in facts.collectives.items():
        if facts.axis_of((kind, axes)) not in facts.formula:
            table.add_row('+'.join(axes), kind, size(sent), 'none', '')
    return table


def _temporaries(facts: Facts) -> Table:
    table = _table('Largest temporaries', 'bytes of one', 'shape', 'made by', 'among them')
    for temporary in facts.temporaries[:SHOWN]:
        table.add_row(size(temporary.bytes), temporary.shape, f'{temporary.makers} instructions', temporary.name)
    table.columns[0].justify, table.columns[1].justify, table.columns[3].justify = 'right', 'left', 'left'
    return table


def _program(facts: Facts) -> Table:
    table = _table('Program', '', '')
    table.add_row('instructions', f'{facts.instructions:,}' if facts.instructions else 'not read')
    table.add_row('seconds to trace and lower', f'{facts.lower_seconds:.1f}')
    table.add_row('seconds to compile', f'{facts.compile_seconds:.1f}')
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify='left')
    for number, column in enumerate(columns):
        table.add_column(column, justify='right' if number else 'left')
    return table


def _yes(facts: Facts) -> str:
    return 'yes' if facts.fits else 'no'
