"""The router: what it chooses, what its choices weigh, what it counts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from models import assert_close, jit

from smelt_jax.model.config import ExpertsConfig
from smelt_jax.model.experts import Experts, choose

# A few values only, so that ties are the rule.
logits = arrays(np.float32, (8, 6), elements=st.sampled_from([-3.0, 0.0, 0.5, 2.0]))
chosen = jax.jit(choose, static_argnums=(1, 2))


@settings(deadline=None)
@given(logits, st.sampled_from([1, 3, 6]))
def test_the_largest_are_chosen_and_ties_go_to_the_lower_expert(logits_TE, per_token):
    _, experts_TK, _ = chosen(logits_TE, per_token, True)
    np.testing.assert_array_equal(experts_TK, np.argsort(-logits_TE, axis=1, kind='stable')[:, :per_token])


@settings(deadline=None)
@given(logits, st.sampled_from([1, 3, 6]), st.booleans())
def test_weights_are_the_chosen_probabilities_and_sum_to_1_if_normalised(logits_TE, per_token, normalize):
    weights_TK, experts_TK, probs_TE = chosen(logits_TE, per_token, normalize)
    np.testing.assert_allclose(np.sum(probs_TE, axis=1), 1, rtol=1e-6)
    expected_TK = np.take_along_axis(np.asarray(probs_TE), np.asarray(experts_TK), axis=1)
    if normalize:
        np.testing.assert_allclose(np.sum(weights_TK, axis=1), 1, rtol=1e-6)
        expected_TK = expected_TK / np.sum(expected_TK, axis=1, keepdims=True)
    np.testing.assert_allclose(weights_TK, expected_TK, rtol=1e-6)


CONFIG = ExpertsConfig(count=6, per_token=2, width=5)
SEGMENTS_BT = np.array([[1] * 9 + [0] * 3, [1] * 4 + [2] * 8], np.int32)
REAL_BT = SEGMENTS_BT > 0


def layer(config=CONFIG, width=16, seed=0):
    """The module, its parameters, and tokens."""
    rng = np.random.default_rng(seed)
    module = Experts(config, init_std=1.0)
    x_BTD = rng.standard_normal((*SEGMENTS_BT.shape, width), np.float32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), x_BTD, SEGMENTS_BT)
    return module, jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape, np.float32)), shapes), x_BTD


def test_counts_are_of_real_tokens_by_brute_force():
    module, params, x_BTD = layer()
    _, sums = jit(module.apply)(params, x_BTD, SEGMENTS_BT)
    counts_E, probs_E, z = np.zeros(6), np.zeros(6), 0.0
    for x_D in x_BTD[REAL_BT]:
        exp_E = np.exp(x_D @ np.asarray(params['params']['router'], np.float64))
        counts_E[np.argsort(-exp_E)[:2]] += 1
        probs_E += exp_E / np.sum(exp_E)
        z += np.log(np.sum(exp_E)) ** 2
    np.testing.assert_array_equal(sums.counts_E, counts_E)
    np.testing.assert_allclose(sums.probs_E, probs_E, rtol=1e-5)
    np.testing.assert_allclose(sums.z, z, rtol=1e-5)


def test_padding_is_routed_nowhere_and_comes_out_as_0():
    module, params, x_BTD = layer()
    apply = jit(module.apply)
    y_BTD, sums = apply(params, x_BTD, SEGMENTS_BT)
    assert not np.any(np.asarray(y_BTD)[~REAL_BT])
    other_BTD, other_sums = apply(params, np.where(REAL_BT[..., None], x_BTD, 7), SEGMENTS_BT)
    assert_close((other_BTD, other_sums), (y_BTD, sums), 1e-6)


@pytest.mark.parametrize('gap', [1e-4, -1e-4])
def test_routing_is_float32_under_bfloat16(gap):
    """Two experts whose logits differ by less than bfloat16 can tell: the larger one wins, not the lower one."""
    module, params, x_BTD = layer(dataclasses.replace(CONFIG, count=2, per_token=1))
    x_BTD = jnp.asarray(x_BTD, jnp.bfloat16)
    router_D = 0.3 + jnp.zeros(x_BTD.shape[-1])
    sign_BT = jnp.sign(jnp.sum(x_BTD.astype(jnp.float32), axis=-1))
    params['params']['router'] = jnp.stack([router_D, router_D * (1 + gap)], axis=1)
    _, state = jit(lambda p, x: module.apply(p, x, SEGMENTS_BT, mutable='intermediates'))(params, x_BTD)
    experts_TK = state['intermediates']['experts']
    expected_BT = (sign_BT * gap > 0).astype(np.int32)
    np.testing.assert_array_equal(experts_TK.reshape(SEGMENTS_BT.shape)[REAL_BT], expected_BT[REAL_BT])


def test_router_sums_reach_the_router_through_real_tokens_alone():
    """The gradient of the probabilities and of z in the input is 0 at padding."""
    module, params, x_BTD = layer()

    def scalar(x_BTD):
        _, sums = module.apply(params, x_BTD, SEGMENTS_BT)
        return sums.z + jnp.sum(sums.probs_E * jnp.arange(6))

    dx_BTD = np.asarray(jit(jax.grad(scalar))(x_BTD))
    assert not np.any(dx_BTD[~REAL_BT])
    assert np.all(np.any(dx_BTD[REAL_BT] != 0, axis=-1))
