"""Budgets as tables for people and as plain dicts for programs."""

import dataclasses
from collections.abc import Container, Sequence
from typing import Any

from rich import box
from rich.table import Table

from smelt_jax.budget.accounting import Budget, Ratios
from smelt_jax.budget.grid import Cell
from smelt_jax.budget.matching import Partner
from smelt_jax.model.config import ModelConfig


def budget_tables(name: str, model: ModelConfig, budget: Budget, tokens: float) -> list[Table]:
    """What `model` costs: parameters by part, FLOPs by part, and what follows from them for `tokens` tokens."""
    parameters = _table(f'{name}: parameters', 'part', 'stored', 'active', 'looped', 'unrolled')
    columns = (budget.stored, budget.active, budget.looped, budget.unrolled)
    for part in ('attention', 'router', 'experts', 'norms', 'embedding', 'head'):
        parameters.add_row(part, *(f'{getattr(column, part):,}' for column in columns))
    parameters.add_section()
    for total, label in (
        ('non_embedding', 'attention, router, experts'),
        ('with_norms', '+ norms'),
        ('total', '+ embedding and head'),
    ):
        parameters.add_row(label, *(f'{getattr(column, total):,}' for column in columns))

    flops = _table(f'FLOPs per token, T̄ = {budget.mean_attended_keys:g}', 'part', 'training', 'inference')
    for part in ('projections', 'attended', 'router', 'experts', 'head'):
        flops.add_row(part, *(f'{getattr(side, part):.4g}' for side in (budget.train_flops, budget.inference_flops)))
    flops.add_section()
    for total, label in (('non_embedding', 'F: all but the head'), ('total', 'with the head')):
        flops.add_row(label, *(f'{getattr(side, total):.4g}' for side in (budget.train_flops, budget.inference_flops)))

    rest = _table('what follows', 'quantity', 'value')
    for label, value in (
        ('shape', shape_of(model)),
        ('KV values per token', f'{budget.kv_values:,}'),
        ('KV bytes per token, bfloat16', f'{budget.kv_bytes(16):,.0f}'),
        (
            'weights at 16, 8, 4 bits',
            ', '.join(f'{budget.weight_bytes(bits) / 1e9:.3g}' for bits in (16, 8, 4)) + ' GB',
        ),
        ('S, equivalent sparsity', f'{budget.sparsity:.4f}'),
        ('N_eq_act, dense-equivalent parameters', f'{budget.dense_equivalent:.4g}'),
        ('m = N_act / N_total', f'{budget.active_share:.4f}'),
        ('D, tokens of the config', f'{tokens:.4g}'),
        ('C = F · D', f'{budget.compute(tokens):.4g}'),
        ('tokens per dense-equivalent parameter', f'{budget.tokens_per_parameter(tokens):.4g}'),
    ):
        rest.add_row(label, value)
    return [parameters, flops, rest]


def comparison_table(name: str, budget: Budget, other_name: str, other: Budget, ratios: Ratios) -> Table:
    """The three budgets of one model over another's."""
    table = _table('the three budgets', 'budget', name, other_name, 'ratio', 'off by')
    for label, value, other_value, ratio in (
        ('training FLOPs per token', budget.train_flops.non_embedding, other.train_flops.non_embedding, ratios.flops),
        (
            'stored parameters',
            budget.stored.non_embedding,
            other.stored.non_embedding,
            ratios.parameters,
        ),
        ('KV values per token', budget.kv_values, other.kv_values, ratios.kv),
    ):
        table.add_row(label, f'{value:.4g}', f'{other_value:.4g}', f'{ratio:.4f}', f'{ratio - 1:+.2%}')
    table.add_row('S', f'{budget.sparsity:.4f}', f'{other.sparsity:.4f}', '', '')
    return table


def partners_table(title: str, partners: Sequence[Partner]) -> Table:
    """Candidates, best first. A rank in brackets: outside the tolerance."""
    table = _table(
        title, '', 'D', 'N × H', 'G', 'E', 'K', 'F', 'loop', 'FLOPs', 'parameters', 'KV', 'mismatch', 'shape'
    )
    for rank, partner in enumerate(partners, start=1):
        attention, experts, loop = partner.model.attention, partner.model.experts, partner.model.loop
        table.add_row(
            f'{rank}' if partner.within else f'({rank})',
            f'{partner.model.width}',
            f'{attention.heads} × {attention.head_dim}',
            f'{attention.kv_heads}',
            f'{experts.count}',
            f'{experts.per_token}',
            f'{experts.width}',
            f'{loop.start}+{loop.length}×{loop.visits}+{partner.model.coda_layers}',
            *(f'{ratio - 1:+.2%}' for ratio in partner.ratios),
            f'{partner.mismatch:.2f}',
            f'{partner.shape:.2f}',
        )
    return table


def grid_tables(cells: Sequence[Cell], starred: Container[str]) -> list[Table]:
    """Of every arm its geometry, and then what it costs, with the ratios to its Baseline. `starred` cells get a star."""
    shapes = _table('geometry', 'cell', 'arm', 'layers', 'loop', 'D', 'N × H', 'G', 'E', 'K', 'F')
    costs = _table('budgets', 'cell', 'arm', 'active', 'total', 'F/token', 'KV', 'S', 'FLOPs', 'parameters', 'KV ratio')
    above = None
    for cell in cells:
        sides = [
            ('baseline', cell.baseline, cell.baseline_budget, ()),
            (cell.arm, cell.model, cell.budget, cell.ratios),
        ]
        for arm, model, budget, ratios in sides[cell.name == above :]:
            label = f'{cell.name}{" *" * (cell.name in starred)}'
            attention, experts, loop = model.attention, model.experts, model.loop
            shapes.add_row(
                label,
                arm,
                f'{model.layers}',
                f'{loop.start}+{loop.length}×{loop.visits}+{model.coda_layers}' if loop.visits > 1 else '',
                f'{model.width}',
                f'{attention.heads} × {attention.head_dim}',
                f'{attention.kv_heads}',
                f'{experts.count}',
                f'{experts.per_token}',
                f'{experts.width}',
            )
            costs.add_row(
                label,
                arm,
                f'{budget.active.non_embedding / 1e9:.3f}e9',
                f'{budget.stored.non_embedding / 1e9:.3f}e9',
                f'{budget.train_flops.non_embedding:.3e}',
                f'{budget.kv_values}',
                f'{budget.sparsity:.3f}',
                *(f'{ratio:.3f}' for ratio in ratios),
            )
        above = cell.name
    return [shapes, costs]


def shape_of(model: ModelConfig) -> str:
    """A model's sizes in one line."""
    attention, experts, loop = model.attention, model.experts, model.loop
    layers = f'{model.layers} layers'
    if loop.visits > 1:
        layers = f'{loop.start} + {loop.length} × {loop.visits} visits + {model.coda_layers} layers'
    return (
        f'{layers}, D {model.width}, {attention.heads} query and {attention.kv_heads} KV heads of '
        f'{attention.head_dim}, {experts.count} experts of {experts.width}, {experts.per_token} a token'
    )


def as_dict(model: ModelConfig, budget: Budget) -> dict[str, Any]:
    """The model's config and all of its budget, by part and as records carry it."""
    return {'model': dataclasses.asdict(model), 'by_part': dataclasses.asdict(budget), **budget.as_dict()}


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify='left', box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(
            column, no_wrap=column != 'value', justify='left' if i == 0 or column in ('arm', 'value') else 'right'
        )
    return table
