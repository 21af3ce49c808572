"""Laws of the counts, over models of every size: what grows with what, and what does not."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smelt_jax.budget.accounting import budget_of, compare, reference_of
from smelt_jax.model.config import AttentionConfig, ExpertsConfig, LoopConfig, ModelConfig

keys = st.floats(1, 5000)


@st.composite
def models(draw, min_length=0):
    layers = draw(st.integers(max(1, min_length), 12))
    length = draw(st.integers(min_length, layers))
    kv_heads = draw(st.integers(1, 4))
    per_token = draw(st.integers(1, 8))
    return ModelConfig(
        vocab=draw(st.integers(1, 1000)),
        width=draw(st.integers(1, 512)),
        layers=layers,
        loop=LoopConfig(
            start=draw(st.integers(0, layers - length)),
            length=length,
            visits=draw(st.integers(1, 4)) if length else 1,
        ),
        attention=AttentionConfig(
            heads=kv_heads * draw(st.integers(1, 4)),
            kv_heads=kv_heads,
            head_dim=2 * draw(st.integers(1, 64)),
            qk_norm=draw(st.booleans()),
        ),
        experts=ExpertsConfig(
            count=per_token + draw(st.integers(0, 64)), per_token=per_token, width=draw(st.integers(1, 512))
        ),
    )


def edit(model, **changes):
    """`model` with `room__field=value` or `field=value`."""
    for name, value in changes.items():
        room, _, field = name.rpartition('__')
        if room:
            value = dataclasses.replace(getattr(model, room), **{field: value})
        model = dataclasses.replace(model, **{room or field: value})
    return model


@given(models(), keys)
def test_doubling_experts_adds_only_the_routers_flops(model, t):
    before, after = budget_of(model, t), budget_of(edit(model, experts__count=2 * model.experts.count), t)
    assert after.train_flops == dataclasses.replace(before.train_flops, router=2 * before.train_flops.router)
    assert after.stored.experts == 2 * before.stored.experts
    assert after.active.experts == before.active.experts
    assert after.kv_values == before.kv_values


@given(models(min_length=1), keys)
def test_doubling_visits_doubles_only_the_loop(model, t):
    before, after = budget_of(model, t), budget_of(edit(model, loop__visits=2 * model.loop.visits), t)
    one_visit = budget_of(edit(model, layers=model.loop.length, loop=LoopConfig()), t)
    added = after.train_flops.non_embedding - before.train_flops.non_embedding
    assert added == pytest.approx(model.loop.visits * one_visit.train_flops.non_embedding)
    assert after.kv_values - before.kv_values == model.loop.visits * one_visit.kv_values
    assert after.train_flops.head == before.train_flops.head
    assert (after.stored, after.active, after.looped) == (before.stored, before.active, before.looped)


@given(models(), keys)
def test_unrolled_is_active_and_the_loop_at_every_further_visit(model, t):
    b = budget_of(model, t)
    assert b.unrolled.total == b.active.total + (model.loop.visits - 1) * b.looped.total
    assert b.train_flops.non_embedding == pytest.approx(6 * b.unrolled.non_embedding + b.train_flops.attended)
    assert b.train_flops.total == pytest.approx(3 * b.inference_flops.total)


@pytest.mark.parametrize(
    ('change', 'grows'),
    [
        ('width', 'flops_per_token parameters active_parameters'),
        ('layers', 'flops_per_token parameters active_parameters kv_values_per_token'),
        ('experts__count', 'flops_per_token parameters'),
        ('experts__width', 'flops_per_token parameters active_parameters'),
        ('attention__kv_heads', 'flops_per_token parameters active_parameters kv_values_per_token'),
        ('attention__head_dim', 'flops_per_token parameters active_parameters kv_values_per_token'),
        ('vocab', 'flops_per_token_with_head parameters_with_embeddings'),
    ],
)
@given(model=models(), t=keys)
def test_counts_grow_with_every_size(change, grows, model, t):
    room, _, field = change.rpartition('__')
    size = getattr(getattr(model, room) if room else model, field)
    more = edit(model, **{change: 2 * size})
    if change == 'attention__kv_heads':
        more = edit(more, attention__heads=2 * model.attention.heads)
    before, after = budget_of(model, t).as_dict(), budget_of(more, t).as_dict()
    for name in ('flops_per_token', 'parameters', 'kv_values_per_token', 'parameters_with_embeddings'):
        assert after[name] >= before[name]
    for name in grows.split():
        assert after[name] > before[name], name


@given(models(), keys)
def test_a_model_matches_itself_exactly(model, t):
    assert compare(budget_of(model, t), budget_of(model, t)) == (1, 1, 1)


@given(models(), keys)
def test_the_reference_is_dense_and_sparsity_is_measured_against_it(model, t):
    dense = reference_of(model)
    assert budget_of(dense, t).sparsity == pytest.approx(0, abs=1e-12)
    assert budget_of(dense, t).active == budget_of(dense, t).stored
    b = budget_of(model, t, baseline=model)
    assert b == budget_of(model, t)
    assert b.tokens_per_parameter(1e9) == pytest.approx(1e9 / ((1 - b.sparsity) * b.stored.non_embedding))


def test_bytes_and_compute():
    b = budget_of(ModelConfig(), 100)
    assert b.kv_values == 2 * 2 * 64 * 4
    assert b.kv_bytes(16) == 2 * b.kv_values
    assert b.weight_bytes(4) == b.stored.non_embedding / 2
    assert b.compute(10) == 10 * b.train_flops.non_embedding
    assert b.active_share == b.active.non_embedding / b.stored.non_embedding


def test_a_record_is_json_and_carries_both_counts():
    record = json.loads(json.dumps(budget_of(ModelConfig(), 100).as_dict()))
    model = ModelConfig()
    assert record['parameters_with_embeddings'] - record['parameters_with_norms'] == 2 * model.vocab * model.width
    assert {'flops_per_token', 'parameters', 'sparsity', 'kv_values_per_token', 'visits', 'loop_span'} <= record.keys()


@pytest.mark.parametrize('t', [0, 0.5, -3, float('nan')])
def test_fewer_than_one_key_is_refused(t):
    with pytest.raises(ValueError, match='at least to itself'):
        budget_of(ModelConfig(), t)


def test_a_model_that_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match='visits=2'):
        budget_of(ModelConfig(loop=LoopConfig(visits=2)), 100)
