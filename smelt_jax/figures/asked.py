"""From the words of a command line to a figure. Texts become numbers, with an error that names the flag."""

from collections.abc import Callable
from typing import Any

from smelt_jax.figures.arms import by_name
from smelt_jax.figures.depth import depth
from smelt_jax.figures.domains import domains
from smelt_jax.figures.effective import effective
from smelt_jax.figures.frontier import frontier
from smelt_jax.figures.gain import gain
from smelt_jax.figures.heldout import heldout
from smelt_jax.figures.lawlines import flat
from smelt_jax.figures.loss_flops import loss_flops
from smelt_jax.figures.residuals import residuals
from smelt_jax.figures.scored import SCORES, Scored, scored
from smelt_jax.figures.shots import shots
from smelt_jax.figures.style import check_suffix
from smelt_jax.figures.surface import surface
from smelt_jax.figures.transfer import transfer
from smelt_jax.law.asked import ladders, named_columns, needed, sparsities
from smelt_jax.law.design_report import one_fit, sizes_of
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.gain_report import named_fits, pairs_of
from smelt_jax.law.reading import read
from smelt_jax.law.scores import pairs_of as pairs_in
from smelt_jax.law.table import Table, tables
from smelt_jax.law.units import numbers


def draw(word: str, given: Any) -> str:
    """Draws `word` into `given.out`, with what `given.NAME` says: texts and lists of texts. Returns what it is of.

    Raises ValueError, naming the flag."""
    check_suffix(given.out)
    return DRAWN[word](given)


def _loss_flops(given: Any) -> str:
    arms = by_name(needed(given, 'runs'))
    loss_flops(arms, given.out)
    return ', '.join(arms)


def _frontier(given: Any) -> str:
    fits = named_fits(needed(given, 'fit'), several=True)
    frontier(fits, sparsities(given), numbers(given.compute, '--compute'), given.out)
    return _words(fits)


def _surface(given: Any) -> str:
    fits = named_fits(needed(given, 'fit'))
    if len(given.sparsity) != 1 and any('S' in fit.kind.columns for group in fits.values() for fit in group):
        raise ValueError(f'--sparsity={",".join(given.sparsity)}: a surface has one; --sparsity=0.95')
    surface(fits, sparsities(given)[0], numbers(given.compute, '--compute'), given.out)
    return _words(fits)


def _gain(given: Any) -> str:
    pairs = pairs_of(needed(given, 'fit'), given.reference)
    gain(pairs, sparsities(given), numbers(given.compute, '--compute'), given.out)
    return _pairs(given, pairs)


def _domains(given: Any) -> str:
    pairs = pairs_of(needed(given, 'fit'), given.reference)
    domains(pairs, sparsities(given), numbers(needed(given, 'compute'), '--compute'), given.out)
    return _pairs(given, pairs)


def _residuals(given: Any) -> str:
    fits = [fit for group in named_fits(needed(given, 'fit'), several=True).values() for fit in group]
    rows = needed(given, 'records')
    found: list[tuple[Fitted, Table]] = []
    for fit in fits:
        chosen = (given.columns, given.by, (), given.where, given.exclude, given.holdout, given.best)
        groups = {table.group: table for table in tables(rows, fit.kind, *chosen)}
        if fit.group not in groups:
            raise ValueError(
                f'the rows are of {", ".join(map(repr, groups))}, none of {fit.group!r}; --by=COLUMN says whose'
            )
        found.append((fit, groups[fit.group]))
    residuals(found, given.out)
    return ', '.join(fit.group or fit.law for fit in fits)


def _heldout(given: Any) -> str:
    fits = named_fits(needed(given, 'fit'), several=True)
    heldout(fits, given.out)
    return ', '.join(
        ' '.join(filter(None, (name, fit.group, fit.law))) for name, group in fits.items() for fit in group
    )


def _effective(given: Any) -> str:
    fit, sizes = one_fit(needed(given, 'fit'), given.group), {size.name: size for size in sizes_of(given.sizes)}
    name = given.size or next(iter(sizes))
    if name not in sizes:
        raise ValueError(f'--size={name}: there are {", ".join(sizes)}')
    effective(fit, sizes[name], *ladders(given, fit, also='m'), given.out)
    return f'{fit.group or fit.law}, {name}'


def _transfer(given: Any) -> str:
    named = named_columns(given)
    arms = pairs_in(needed(given, 'records'), named, given.reference)
    transfer(arms, given.reference, named.score, given.out)
    return f'{named.score}, {", ".join(pairs.arm for pairs in arms)} beside {given.reference}'


def _shots(given: Any) -> str:
    return _scored(given, shots)


def _depth(given: Any) -> str:
    return _scored(given, depth)


def _scored(given: Any, drawing: Callable[[Scored, str, str], None]) -> str:
    if not given.task:
        raise ValueError('--task is required: a task, or a group of them as core')
    of = scored(read(needed(given, 'records')), given.task, given.where, given.exclude)
    score = given.score or SCORES[of.grouped]
    if score not in SCORES:
        raise ValueError(f'--score={score}: it is one of {", ".join(SCORES)}')
    drawing(of, score, given.out)
    return f'{of.task}, {", ".join(of.lines)}'


DRAWN: dict[str, Callable[[Any], str]] = {
    'loss_flops': _loss_flops,
    'frontier': _frontier,
    'surface': _surface,
    'gain': _gain,
    'domains': _domains,
    'residuals': _residuals,
    'heldout': _heldout,
    'effective': _effective,
    'transfer': _transfer,
    'shots': _shots,
    'depth': _depth,
}


def _words(fits: dict[str, list[Fitted]]) -> str:
    return ', '.join(name for name, _ in flat(fits))


def _pairs(given: Any, pairs: dict[str, Any]) -> str:
    names = (name or target.group for name, (_, target) in pairs.items())
    return f'{", ".join(names)} over {given.reference}'
