"""Fits as tables."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from smelt_jax.law.fitted import Fitted
from smelt_jax.screen import Answer


def answer(fits: Sequence[Fitted]) -> Answer:
    """Coefficients of all fits side by side, how well each describes its rows, and what there is to say of each."""
    law = fits[0].kind
    lines = [f'{law.name}: L = {law.formula}', f'source: {law.source}']
    lines += [f'  {name}: {what}' for name, what in law.columns.items()]
    common = [note for note in fits[0].notes if len(fits) > 1 and all(note in fit.notes for fit in fits)]
    lines += common
    for fit in fits:
        lines += [f'{fit.group or fit.law}: {note}' for note in fit.notes if note not in common]
    return Answer([coefficients(fits), _goodness(fits)], {}, lines)


def value(number: Any, digits: int = 5) -> str:
    """A number to some digits; a dash for None."""
    return '–' if number is None else f'{number:.{digits}g}'


def coefficients(fits: Sequence[Fitted]) -> Table:
    """Of fits of one law, side by side, with intervals where there are replicates."""
    drawn = any('intervals' in fit.details for fit in fits)
    table = _table('coefficients' + ', and 95% of replicates' * drawn)
    for fit in fits:
        table.add_column(fit.group or fit.law, justify='right')
        if 'intervals' in fit.details:
            table.add_column('95%', justify='right')
    for name in fits[0].kind.names:
        cells = []
        for fit in fits:
            cells.append(value(fit.coefficients[name]))
            if 'intervals' in fit.details:
                cells.append(', '.join(value(end, 4) for end in fit.details['intervals'][name]))
        table.add_row(name, *cells)
    return table


def _goodness(fits: Sequence[Fitted]) -> Table:
    table = _table('goodness; errors in nats')
    for name in (
        'rows',
        'RMSE',
        'largest',
        'R²',
        'left-out cells',
        'held out',
        'objective',
        'condition',
        'starts',
        'agree',
    ):
        table.add_column(name, justify='right')
    for fit in fits:
        of = fit.details
        apart = of.get('held_out')  # there only if rows were
        table.add_row(
            fit.group or fit.law,
            str(fit.points),
            *(value(of[name], 4) for name in ('rmse', 'largest', 'r2')),
            value(of.get('left_out_rmse'), 4),  # there only if it was asked for
            f'{value(apart["rmse"], 4)} ({apart["points"]})' if apart else '–',
            value(of['objective'], 6),
            value(of['condition'], 2),
            str(of['starts']),
            f'{of["agree"]} of {of["went_on"]}',
        )
    return table


def _table(title: str) -> Table:
    table = Table(title=title, title_justify='left')
    table.add_column('')
    return table
