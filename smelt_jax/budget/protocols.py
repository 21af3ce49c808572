"""The ways in which the literature has compared a looped model with its Baseline, each under one name.

budgets     FLOPs, parameters and KV cache all fixed (SMELT): narrower, more experts, less cache a layer.
parameters  stored parameters fixed, FLOPs and cache grow with the visits (Huginn, Ouro, Parcae).
flops       FLOPs per token fixed at the same physical depth, parameters fall (fixed-FLOP studies of dense models).
depth       executed depth fixed at the same width: unique layers, and with them parameters, give way (Iso-Depth,
            Schwethelm et al.: prelude + (looped layers / visits) × visits + coda).
"""

import dataclasses
import math
from typing import Any

from smelt_jax.budget.accounting import Ratios
from smelt_jax.budget.matching import Partner, Rules, match, partner
from smelt_jax.model.config import LoopConfig, ModelConfig

FREE = math.inf
PROTOCOLS = ('budgets', 'parameters', 'flops', 'depth')


def find_partners(
    protocol: str,
    baseline: ModelConfig,
    visits: int,
    span: float,
    mean_attended_keys: float,
    rules: Rules,
    count: int,
) -> list[Partner]:
    """Partners of `baseline` under `protocol`, best first; `parameters` and `depth` leave no choice and give one.

    Args:
      protocol: one of PROTOCOLS.
      baseline: a model without a loop, or with one visit of it.
      visits: R of the partner.
      span: share of the layers that is looped, in the middle; of the executed ones under `depth`.
      mean_attended_keys: T̄.
      rules: sizes a partner may have. Budgets that `protocol` does not fix count as free, whatever their tolerance.
      count: entries of the list at most.

    Raises:
      ValueError: naming the value and the remedy.
    """
    rules.check()
    if baseline.loop.visits != 1:
        raise ValueError(
            f'the model to be matched visits its loop {baseline.loop.visits} times; give a Baseline, visits=1'
        )
    flops, parameters, kv = rules.tolerance
    frame = dataclasses.replace(baseline, layers=rules.layers or baseline.layers)
    if frame.layers != baseline.layers and protocol in ('parameters', 'depth'):
        raise ValueError(f'layers={frame.layers}: {protocol=} takes the depth from the Baseline; leave layers at 0')
    if protocol == 'budgets':
        return match(baseline, middle_loop(frame, span, visits), mean_attended_keys, rules, count)
    if protocol == 'flops':
        rules = dataclasses.replace(rules, tolerance=Ratios(flops, FREE, FREE))
        return match(baseline, middle_loop(frame, span, visits), mean_attended_keys, rules, count)
    if protocol == 'parameters':
        model = dataclasses.replace(baseline, loop=middle_loop(frame, span, visits))
        return [partner(model, baseline, mean_attended_keys, Ratios(FREE, parameters, FREE))]
    if protocol == 'depth':
        model = same_depth(baseline, span, visits)
        return [partner(model, baseline, mean_attended_keys, Ratios(flops, FREE, kv))]
    raise ValueError(f'{protocol=}: choose one of {", ".join(PROTOCOLS)}')


def remedies(
    protocol: str, baseline: ModelConfig, visits: int, span: float, mean_attended_keys: float, rules: Rules
) -> list[str]:
    """Which single rule, loosened, leads to a partner within tolerance where `rules` do not: lines `rule=value`."""
    loosened: dict[str, dict[str, Any]] = {
        f'{name}={value}': {name: value}
        for name, value in (('experts_multiple', 1), ('multiple_of', 8), ('head_dim_multiple', 2))
        if getattr(rules, name) > value
    }
    if baseline.experts.count == baseline.experts.per_token < 8:  # dense: parameters have nowhere to go
        loosened['per_token=8 and experts_multiple=1'] = {'per_token': 8, 'experts_multiple': 1}
    found = []
    for words, change in loosened.items():
        looser = dataclasses.replace(rules, **change)
        if find_partners(protocol, baseline, visits, span, mean_attended_keys, looser, 1)[0].within:
            found.append(words)
    return found


def middle_loop(model: ModelConfig, span: float, visits: int) -> LoopConfig:
    """A loop over the middle `span` of the layers; of an odd rest the larger part goes behind it."""
    length = _looped(model.layers, span, visits)
    return dataclasses.replace(model.loop, start=(model.layers - length) // 2, length=length, visits=visits)


def same_depth(baseline: ModelConfig, span: float, visits: int) -> ModelConfig:
    """`baseline` with the middle `span` of its layers replaced by a loop that executes as many, `visits` times fewer."""
    replaced = _looped(baseline.layers, span, visits)
    if replaced % visits:
        fitting = [f'{n / baseline.layers:.3g}' for n in range(visits, baseline.layers + 1, visits)]
        remedy = f'choose a span of {" or ".join(fitting)}' if fitting else 'choose fewer visits'
        raise ValueError(
            f'{span=} of {baseline.layers} layers is {replaced} layers, which {visits=} does not divide; {remedy}'
        )
    length = replaced // visits
    start = (baseline.layers - replaced) // 2
    loop = dataclasses.replace(baseline.loop, start=start, length=length, visits=visits)
    return dataclasses.replace(baseline, layers=baseline.layers - replaced + length, loop=loop)


def _looped(layers: int, span: float, visits: int) -> int:
    if visits < 1:
        raise ValueError(f'{visits=}: a loop is visited at least once')
    if not 0 <= span <= 1:
        raise ValueError(f'{span=}: a share of the layers is between 0 and 1')
    length = math.floor(span * layers + 0.5)
    if length == 0 and visits > 1:
        raise ValueError(
            f'{span=} of {layers} layers loops none of them, but {visits=}; choose a span of {0.5 / layers:.3g} or more'
        )
    return length
