"""From the words of a command line to an answer: texts become numbers, with an error that names the flag."""

from collections.abc import Callable, Sequence
from typing import Any

from smelt_jax.law import reproduced
from smelt_jax.law.design import Budget, Search, ladder
from smelt_jax.law.design_report import design_answer, effective_answer, epsilon_of, one_fit, sizes_of, visits_answer
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.gain_report import frontier_answer, gain_answer, show_answer
from smelt_jax.law.scores import Named
from smelt_jax.law.transfer_report import transfer_answer
from smelt_jax.law.units import number, numbers, share, size, whole
from smelt_jax.screen import Answer


def answer(word: str, given: Any) -> Answer:
    """The answer to `word`, with what `given.NAME` says: texts and lists of texts. Raises ValueError, naming the flag."""
    return ANSWERS[word](given)


def _show(given: Any) -> Answer:
    return show_answer(_fits(given))


def _frontier(given: Any) -> Answer:
    return frontier_answer(_fits(given), *_grid(given))


def _gain(given: Any) -> Answer:
    return gain_answer(_fits(given), given.reference, *_grid(given))


def _design(given: Any) -> Answer:
    flops = needed(given, 'flops')
    if len(flops) > 1:
        raise ValueError(f'--flops={",".join(flops)}: a design has one budget; smelt law visits takes several')
    return design_answer(_search(given, number(flops[0], '--flops')), sizes_of(given.sizes))


def _visits(given: Any) -> Answer:
    flops = numbers(needed(given, 'flops'), '--flops')
    return visits_answer(_search(given, flops[0]), sizes_of(given.sizes), flops)


def _effective(given: Any) -> Answer:
    fit = one_fit(_fits(given), given.group)
    return effective_answer(fit, sizes_of(given.sizes), *ladders(given, fit, also='m'))


def _transfer(given: Any) -> Answer:
    records, named = needed(given, 'records'), named_columns(given)
    return transfer_answer(records, named, given.reference, given.lower_is_better, given.replicates, given.seed)


def _published(_: Any) -> Answer:
    return reproduced.answer()


ANSWERS: dict[str, Callable[[Any], Answer]] = {
    'show': _show,
    'frontier': _frontier,
    'gain': _gain,
    'design': _design,
    'visits': _visits,
    'effective': _effective,
    'transfer': _transfer,
    'published': _published,
}


def _fits(given: Any) -> list[str]:
    return needed(given, 'fit')


def needed(given: Any, name: str) -> list[str]:
    """The list of a flag. Raises ValueError, naming it, if it is empty."""
    if not getattr(given, name):
        raise ValueError(f'--{name} is required')
    return list(getattr(given, name))


def named_columns(given: Any) -> Named:
    """What the columns of a table of scores are called. Raises ValueError if none is named as the score."""
    if not given.score:
        raise ValueError('--score is required: the column of what the losses turn into')
    return Named(given.loss, given.score, given.arm, given.pair, given.group, given.cells, given.where, given.exclude)


def sparsities(given: Any) -> list[float]:
    """S of --sparsity. Raises ValueError, naming it, if there is none, or one that is no share."""
    return [share(text, '--sparsity') for text in needed(given, 'sparsity')]


def _grid(given: Any) -> tuple[list[float], list[float]]:
    return numbers(needed(given, 'compute'), '--compute'), sparsities(given)


def _search(given: Any, flops: float) -> Search:
    fit = one_fit(_fits(given), given.group)
    per_sequence = number(given.context, '--context') if given.context else 0.0
    budget = Budget(
        flops=flops,
        memory=size(given.memory, '--memory') if given.memory else None,
        bits=number(given.bits, '--bits'),
        context=per_sequence * number(given.batch, '--batch'),
        cache_bits=number(given.cache_bits, '--cache_bits'),
        served=number(given.served, '--served') if given.served else 0.0,
    )
    epsilon = epsilon_of(fit, number(given.epsilon, '--epsilon') if given.epsilon else None)
    return Search(fit, budget, epsilon, *ladders(given, fit))


def ladders(given: Any, fit: Fitted, also: str = '') -> tuple[Sequence[int], Sequence[int]]:
    """E and R to look at. By a law that knows `also`, too, E makes a difference."""
    experts = whole(given.experts, '--experts') if given.experts else ()
    visits = whole(given.visits, '--visits') if given.visits else ()
    return ladder(fit, 'E', experts, also), ladder(fit, 'R', visits)
