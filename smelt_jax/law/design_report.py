"""What `smelt law` answers of designs: the best model of a budget, visits by compute, what visits are worth."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from smelt_jax.law import geometry
from smelt_jax.law.design import Budget, Choice, Search, check_visits, effective, unfitted
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.gain_report import table_of, unmarked
from smelt_jax.law.geometry import Size
from smelt_jax.law.published import fits_of
from smelt_jax.law.units import bytes_text, flops_text
from smelt_jax.screen import Answer


def one_fit(wheres: Sequence[str], group: str = '') -> Fitted:
    """The one fit of a file. Raises ValueError, listing its groups, if it holds several and `group` names none of them."""
    fits = [fit for where in wheres for fit in fits_of(where)]
    found = [fit for fit in fits if fit.group == group] if group else fits
    if len(found) != 1:
        known = ', '.join(repr(fit.group) for fit in fits)
        twins = len({fit.group for fit in fits}) < len(fits)
        remedy = ', some of one name; give one of the files alone' if twins else '; name one of them with --group'
        raise ValueError(f'--fit={",".join(wheres)} has the fits {known}{remedy}')
    return found[0]


def sizes_of(file: str) -> Sequence[Size]:
    """Those of a file, or the ladder of the looped-MoE study."""
    return geometry.load(file) if file else geometry.LADDER


def epsilon_of(fit: Fitted, given: float | None) -> float:
    """The given one, or the fit's RMSE. Raises ValueError if neither is there."""
    if given is None and fit.rmse is None:
        raise ValueError('--epsilon is required: the fit says no RMSE that a step would have to exceed')
    return float(given if given is not None else fit.rmse or 0.0)


def design_answer(search: Search, sizes: Sequence[Size]) -> Answer:
    """The best model of each size, and of the best size the losses of all experts and visits."""
    best = search.best(sizes)
    columns = (
        'N',
        'E',
        'R',
        'D, tokens',
        'loss, nats',
        'weights',
        'cache',
        'FLOPs/token served',
        'ρ_eff',
        'extrapolated',
    )
    rows = [_row(choice) for choice in best]
    first = best[0]
    tables = [
        table_of(f'best model of each size: {_budget(search.budget)}', columns, rows),
        _joint(search, first),
    ]
    lines = [
        f'best: N {first.size.name}, E = {first.experts}, R = {first.visits}; a step to a larger E or R counts only if it '
        f'lowers the loss by {search.epsilon:.3g} nats',
        'a dash: over the budget; a star: R* of that E; °: outside of what was fitted. N is named with its embedding, '
        'which the law leaves out',
        *unmarked(search.fit.group or search.fit.law, search.fit),
    ]
    data = {
        'budget': dataclasses.asdict(search.budget),
        'epsilon': search.epsilon,
        'best': [dataclasses.asdict(choice) for choice in best],
    }
    return Answer(tables, data, lines)


def _row(choice: Choice) -> list[str]:
    return [
        choice.size.name,
        str(choice.experts),
        str(choice.visits),
        f'{choice.tokens:.3g}',
        f'{choice.loss:.4f}',
        bytes_text(choice.weights),
        bytes_text(choice.cache) if choice.cache else '–',
        f'{choice.token_flops:.3g}',
        f'{choice.effective:.2f}',
        ', '.join(choice.outside),
    ]


def _joint(search: Search, best: Choice) -> Table:
    rows = []
    for experts in search.experts:
        star = search.with_visits(best.size, experts)
        cells = []
        for visits in search.visits:
            choice = search.at(best.size, experts, visits)
            mark = '*' if star is not None and star.visits == visits else ''
            cells.append('–' if choice is None else f'{choice.loss:.4f}{mark}{_beyond(choice)}')
        rows.append([f'E = {experts}', *cells])
    title = f'loss of {best.size.name} by experts and visits'
    return table_of(title, ('', *(f'R = {visits}' for visits in search.visits)), rows)


def _beyond(choice: Choice) -> str:
    return '°' if choice.outside else ''


def _budget(budget: Budget) -> str:
    parts = [f'{flops_text(budget.flops)} FLOPs']
    if budget.memory is not None:
        parts.append(f'{bytes_text(budget.memory)} at {budget.bits:g} bits')
    if budget.context:
        parts.append(f'{budget.context:,.0f} cached tokens at {budget.cache_bits:g} bits')
    if budget.served:
        parts.append(f'{budget.served:.3g} tokens served')
    return ', '.join(parts)


def visits_answer(search: Search, sizes: Sequence[Size], flops: Sequence[float]) -> Answer:
    """R* by size and compute, at each number of experts."""
    rows, data = [], []
    for experts in search.experts:
        for size in sizes:
            cells = []
            for each in flops:
                budget = dataclasses.replace(search.budget, flops=each)
                choice = dataclasses.replace(search, budget=budget).with_visits(size, experts)
                cells.append('–' if choice is None else f'{choice.visits}{_beyond(choice)}')
                data.append(
                    {
                        'size': size.name,
                        'experts': experts,
                        'flops': each,
                        'visits': choice and choice.visits,
                        'extrapolated': list(choice.outside) if choice else [],
                    }
                )
            rows.append([f'E = {experts}', size.name, *cells])
    columns = ('experts', 'N', *(flops_text(each) for each in flops))
    lines = [f'R*: the last visit that lowers the loss by {search.epsilon:.3g} nats; ° outside of what was fitted']
    lines += unmarked(search.fit.group or search.fit.law, search.fit)
    return Answer([table_of('best number of visits by training FLOPs', columns, rows, left=2)], {'visits': data}, lines)


def effective_answer(fit: Fitted, sizes: Sequence[Size], experts: Sequence[int], visits: Sequence[int]) -> Answer:
    """ρ_eff = N_eff / N_act by size, experts and visits. Raises ValueError for a law that knows no visits."""
    check_visits(fit)
    rows, data = [], []
    for size in sizes:
        for number in experts:
            worth = [effective(fit, size, number, times) for times in visits]
            beyond = unfitted(fit, size, number, np.array(visits)).tolist()
            cells = [f'{value:.2f}{"°" * mark}' for value, mark in zip(worth, beyond, strict=True)]
            share = size.share(number)
            rows.append([size.name, f'E = {number}', f'{share:.3f}', *cells])
            data.append(
                {'size': size.name, 'experts': number, 'share': share, 'effective': worth, 'extrapolated': beyond}
            )
    columns = ('N', 'experts', 'm', *(f'R = {times}' for times in visits))
    title = 'ρ_eff = N_eff / N_act: what visits are worth, as parameters'
    lines = ['m active over stored parameters; °: outside of what was fitted', *unmarked(fit.group or fit.law, fit)]
    return Answer([table_of(title, columns, rows, left=2)], {'visits': list(visits), 'rows': data}, lines)
