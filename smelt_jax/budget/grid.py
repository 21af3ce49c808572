"""Baselines and their looped partners side by side, for a whole set of configurations."""

import dataclasses
from collections.abc import Iterable, Mapping

from smelt_jax.budget.accounting import Budget, Ratios, budget_of, compare
from smelt_jax.model.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class Cell:
    """A Baseline NAME-baseline and the model NAME-ARM. S of both is measured against the Baseline."""

    name: str
    arm: str
    baseline: ModelConfig
    model: ModelConfig
    baseline_budget: Budget
    budget: Budget
    ratios: Ratios


def cells(models: Mapping[str, ModelConfig], mean_attended_keys: float) -> list[Cell]:
    """Pairs NAME-baseline with every other NAME-ARM of `models`, in their order."""
    found = []
    for full_name, model in models.items():
        name, _, arm = full_name.rpartition('-')
        if arm == 'baseline':
            continue
        if f'{name}-baseline' not in models:
            raise ValueError(f'{full_name} has no {name}-baseline beside it; there are {", ".join(models)}')
        baseline = models[f'{name}-baseline']
        baseline_budget = budget_of(baseline, mean_attended_keys, baseline)
        budget = budget_of(model, mean_attended_keys, baseline)
        found.append(Cell(name, arm, baseline, model, baseline_budget, budget, compare(budget, baseline_budget)))
    if not found:
        raise ValueError(f'no pair of NAME-baseline and NAME-ARM among {", ".join(models) or "no arguments"}')
    return found


def worst(found: Iterable[Cell]) -> Ratios:
    """The largest |ratio − 1| of each budget over the cells."""
    misses = [[abs(ratio - 1) for ratio in cell.ratios] for cell in found]
    return Ratios(*(max(column) for column in zip(*misses, strict=True)))
