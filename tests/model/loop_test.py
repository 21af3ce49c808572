"""A looped model is its layers executed in order, the looped ones again and again: values and gradients."""

import functools

import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest
from models import TINY, assert_close, assert_same, edit, jit, looped, mix, packed, params_of, rows_of, run

from smelt_jax.model.block import Block
from smelt_jax.model.rotary import context_of
from smelt_jax.model.transformer import Transformer

BATCH = packed((6, 8, 3), (9, 4))
# Rotations depend on distances alone: only gaps between positions tell whether positions are read.
BATCH = BATCH._replace(positions_BT=3 * BATCH.positions_BT)
REAL_BT = BATCH.segment_ids_BT > 0


@jax.jit
def naive_layer(params, x_BTD, scale):
    """The layer of tests/naive.py on every row; its router's sums over rows."""
    layer = functools.partial(naive.layer, config=TINY)
    x_BTD, sums = jax.vmap(layer, in_axes=(None, 0, 0, 0, None))(
        params, x_BTD, BATCH.segment_ids_BT, BATCH.positions_BT, scale
    )
    return x_BTD, jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), sums)


@jax.jit
def block_layer(params, x_BTD, scale):
    """The project's own block, alone."""
    context = context_of(BATCH.segment_ids_BT, BATCH.positions_BT, TINY.attention)
    x_BTD, seen = Block(TINY).apply({'params': params}, x_BTD, context, scale)
    return x_BTD, tuple(seen.router)[:3]


def by_hand(layer, params, model):
    """Logits and router sums, one executed layer after the other."""
    x_BTD = params['embed'][BATCH.tokens_BT]
    sums = []
    for weights, scale in naive.executed(params, model):
        x_BTD, layer_sums = layer(weights, x_BTD, scale)
        sums.append(layer_sums)
    hidden_BTD = naive.norm(x_BTD, params['final_norm']['scale'], model.norm_eps)
    return hidden_BTD @ params['head'], jax.tree.map(lambda *leaves: jnp.stack(leaves), *sums)


def measured(forward, params):
    """(what `forward` returns of real tokens, its gradient under a random cotangent)."""

    def scalar(params):
        logits_BTV, (counts_XE, probs_XE, z_X, *_) = forward(params)
        outputs = jnp.where(REAL_BT[..., None], logits_BTV, 0), probs_XE, z_X
        return mix(outputs), (*outputs, counts_XE)

    grads, outputs = jax.grad(scalar, has_aux=True)(params)
    return outputs, grads


@functools.cache
def actual(model):
    """Of the model under test, with `params_of(model)`."""
    return jit(lambda params: measured(lambda p: run(model, p, BATCH), params))(params_of(model))


SMELT = looped(2, 3, 2, visits=2)  # and the middle cycle: two layers before and two behind, all others looped
BASELINE = looped(2, 3, 2, visits=1)
HALF_EXPONENT = looped(0, 2, 1, visits=3, exponent=0.5)


@pytest.mark.parametrize(
    'model',
    [
        pytest.param(SMELT, id='SMELT'),
        pytest.param(BASELINE, id='Baseline'),
        pytest.param(HALF_EXPONENT, id='no prelude'),
        pytest.param(looped(1, 2, 0, visits=2, exponent=0.0), id='no coda'),
        pytest.param(looped(0, 1, 0, visits=4), id='loop alone'),
        pytest.param(looped(2, 0, 1, visits=1), id='no loop'),
    ],
)
def test_equals_its_layers_written_out_naively(model):
    expected = measured(lambda p: by_hand(naive_layer, p, model), params_of(model))
    assert_close(actual(model), expected)


def test_two_visits_equal_two_hand_written_applications_of_the_block():
    expected = measured(lambda p: by_hand(block_layer, p, SMELT), params_of(SMELT))
    assert_close(actual(SMELT), expected)


def unrolled(params, model):
    """A model without a loop that has the looped layers once a visit, o and down times the residual scale."""
    loop = model.loop

    def scaled(path, leaf):
        return leaf * loop.visits**-loop.residual_exponent if path[-1].key in ('o', 'down') else leaf

    once = jax.tree_util.tree_map_with_path(scaled, params['recur'])
    stacks = {**params, 'recur': once}
    order = ['prelude', *['recur'] * loop.visits, 'coda']
    stack = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(stacks[name] for name in order if name in stacks))
    twin = edit(model, layers=model.executed_layers, loop__start=0, loop__length=0, loop__visits=1)
    return twin, {'embed': params['embed'], 'head': params['head'], 'final_norm': params['final_norm'], 'coda': stack}


@pytest.mark.parametrize('model', [BASELINE, SMELT, HALF_EXPONENT], ids=['one visit', 'two visits', 'three visits'])
def test_equals_its_unrolled_twin_with_scaled_output_projections(model):
    """At one visit the twin is the Baseline, all its layers in one stack."""

    def twin(params):
        twin_model, twin_params = unrolled(params, model)
        return run(twin_model, twin_params, BATCH)

    assert_close(actual(model), jit(lambda params: measured(twin, params))(params_of(model)))


def test_visits_can_be_overridden_when_applied():
    """It is the program of a model with that many visits, the residual scale included."""
    two, three = SMELT, looped(2, 3, 2, visits=3)
    params = params_of(two)

    def program(model, visits):
        return str(jax.make_jaxpr(lambda p: run(model, p, BATCH, visits))(params))

    assert program(two, 3) == program(three, None)
    assert program(two, 1) == program(three, 1)
    assert program(two, None) != program(two, 3)


@pytest.mark.parametrize(('model', 'visits'), [(SMELT, 0), (SMELT, -1), (looped(2, 0, 1, visits=1), 2)])
def test_impossible_visits_are_refused(model, visits):
    with pytest.raises(ValueError, match=rf'{visits=}.*loop length {model.loop.length}'):
        jax.eval_shape(lambda p: run(model, p, BATCH, visits), params_of(model))


def test_parameters_do_not_know_the_visits():
    """Fresh parameters of both arms of one geometry are the same, and a checkpoint runs at any number of visits."""

    def fresh(visits):
        return jit(Transformer(looped(0, 1, 0, visits)).init)(jax.random.key(3), *rows_of(BATCH))['params']

    assert_same(fresh(1), fresh(3))


def test_bfloat16_stays_near_float32():
    """The residual stream and the updates are bfloat16 throughout, the router's sums float32."""
    params = params_of(SMELT)
    low = edit(SMELT, dtype='bfloat16')
    output = jax.eval_shape(lambda p: Transformer(low).apply({'params': p}, *rows_of(BATCH)), params)
    assert output.hidden_BTD.dtype == jnp.bfloat16
    assert all(leaf.dtype == jnp.float32 for leaf in output.router)
    exact = actual(SMELT)[0][0]
    rough, _ = jit(lambda p: run(low, p, BATCH))(params)
    error_N, norm_N = (np.linalg.norm(logits[REAL_BT], axis=-1) for logits in (rough - exact, exact))
    # Some tokens sit between two experts and go to another one: the median says what rounding does.
    assert np.median(error_N / norm_N) < 0.03
