"""What `smelt budget` answers: tables for people, the same as data for programs, and whether the answer is a yes."""

import dataclasses
from collections.abc import Container, Mapping, Sequence

from smelt_jax.budget import report
from smelt_jax.budget.accounting import Ratios, budget_of, compare
from smelt_jax.budget.grid import cells, worst
from smelt_jax.budget.matching import Rules
from smelt_jax.budget.protocols import find_partners, remedies
from smelt_jax.model.config import ModelConfig
from smelt_jax.screen import Answer


def count(name: str, model: ModelConfig, mean_attended_keys: float, tokens: float) -> Answer:
    """All counts of `model`, and what they make of `tokens` tokens."""
    budget = budget_of(model, mean_attended_keys)
    data = {
        'name': name,
        **report.as_dict(model, budget),
        'tokens': tokens,
        'compute': budget.compute(tokens),
        'tokens_per_parameter': budget.tokens_per_parameter(tokens),
    }
    return Answer(report.budget_tables(name, model, budget, tokens), data)


def against(
    name: str, model: ModelConfig, other_name: str, other: ModelConfig, mean_attended_keys: float, bounds: Ratios
) -> Answer:
    """The three budgets of `model` over those of `other`, which is also what both S are measured against, and which of them
    are within `bounds` (fractions)."""
    names = (name, other_name) if name != other_name else (f'{name} (config)', f'{other_name} (against)')
    budget, other_budget = budget_of(model, mean_attended_keys, other), budget_of(other, mean_attended_keys, other)
    ratios = compare(budget, other_budget)
    lines = [f'{label}: {report.shape_of(each)}' for label, each in zip(names, (model, other), strict=True)]
    off = [key for key, ratio in ratios._asdict().items() if abs(ratio - 1) > getattr(bounds, key)]
    lines.append(f'tolerance {_bounds(bounds)}: {", ".join(off) or "nothing"} outside')
    data = {
        'config': {'name': names[0], **report.as_dict(model, budget)},
        'against': {'name': names[1], **report.as_dict(other, other_budget)},
        'ratios': ratios._asdict(),
        'outside': off,
    }
    return Answer([report.comparison_table(names[0], budget, names[1], other_budget, ratios)], data, lines)


def partners(
    name: str,
    baseline: ModelConfig,
    protocol: str,
    visits: int,
    span: float,
    mean_attended_keys: float,
    rules: Rules,
    count: int,
) -> Answer:
    """Looped partners of `baseline`; or the nearest models, said to be such, and which rule stands in the way."""
    found = find_partners(protocol, baseline, visits, span, mean_attended_keys, rules, count)
    bounds = f'tolerance {_bounds(rules.tolerance)}'
    trouble = ''
    if not found[0].within:
        helpful = remedies(protocol, baseline, visits, span, mean_attended_keys, rules)
        advice = f'loosen a rule: {" or ".join(helpful)}' if helpful else 'no single rule that is loosened helps'
        trouble = f'no partner within {bounds}; the nearest is off by {_signed(found[0].ratios)}; {advice}'
    data = {
        'baseline': {'name': name, **report.as_dict(baseline, budget_of(baseline, mean_attended_keys))},
        'protocol': protocol,
        'rules': {**dataclasses.asdict(rules), 'tolerance': rules.tolerance._asdict()},
        'within': found[0].within,
        'partners': [
            {
                'reason': each.reason,
                'within': each.within,
                'mismatch': each.mismatch,
                'shape': each.shape,
                'ratios': each.ratios._asdict(),
                **report.as_dict(each.model, each.budget),
            }
            for each in found
        ],
    }
    lines = [f'{rank}. {each.reason}' for rank, each in enumerate(found, start=1)]
    lines += ['', f'{name}: {report.shape_of(baseline)}; {bounds}']
    return Answer([report.partners_table(f'partners of {name}, protocol {protocol}', found)], data, lines, trouble)


def grid(models: Mapping[str, ModelConfig], starred: Container[str], mean_attended_keys: float) -> Answer:
    """Every pair of `models`, and the largest mismatch of each budget."""
    found = cells(models, mean_attended_keys)
    data = {
        'mean_attended_keys': mean_attended_keys,
        'worst': worst(found)._asdict(),
        'cells': [
            {
                'name': cell.name,
                'arm': cell.arm,
                'published': cell.name in starred,
                'ratios': cell.ratios._asdict(),
                'baseline': report.as_dict(cell.baseline, cell.baseline_budget),
                'looped': report.as_dict(cell.model, cell.budget),
            }
            for cell in found
        ],
    }
    flops, parameters, kv = worst(found)
    stars = '; a star marks the published ones' if any(cell.name in starred for cell in found) else ''
    lines = [
        f'{len(found)} pairs at T̄ = {mean_attended_keys:g}{stars}. '
        f'Largest mismatch: FLOPs {flops:.1%}, parameters {parameters:.1%}, KV {kv:.1%}'
    ]
    return Answer(report.grid_tables(found, starred), data, lines)


def one_question(**asked: object) -> None:
    """Raises ValueError if more than one of these flags is given: only one would be answered."""
    given = [f'--{name}' for name, value in asked.items() if value]
    if len(given) > 1:
        raise ValueError(f'{" and ".join(given)}: ask one thing at a time')


def tolerance(words: Sequence[str]) -> Ratios:
    """Reads one fraction for all budgets, or three: FLOPs, parameters, KV."""
    try:
        bounds = [float(word) for word in words]
    except ValueError:
        bounds = []
    if len(bounds) not in (1, 3):
        raise ValueError(f'tolerance={",".join(words)}: give one fraction, or three for FLOPs, parameters and KV')
    if not all(0 < bound < 1 for bound in bounds):
        raise ValueError(f'tolerance={",".join(words)}: a fraction is more than 0 and less than 1, as 0.04 for 4%')
    return Ratios(*(bounds * 3 if len(bounds) == 1 else bounds))


def _bounds(bounds: Ratios) -> str:
    flops, parameters, kv = (f'{bound:.3g}' for bound in bounds)
    return f'{flops} of FLOPs, {parameters} of parameters, {kv} of KV'


def _signed(ratios: Ratios) -> str:
    return ', '.join(f'{ratio - 1:+.2%} {name}' for name, ratio in ratios._asdict().items())
