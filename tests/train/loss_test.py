"""Chunked cross-entropy equals the plain one; the balance losses are what they say, over real tokens alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from models import TINY, assert_close, jit, packed, params_of, run

from smelt_jax.model.experts import RouterSums
from smelt_jax.model.transformer import Transformer
from smelt_jax.train.config import LossConfig
from smelt_jax.train.loss import balance_sum, cross_entropy_sum, objective, token_losses

N, D, V = 37, 12, 29


def inputs(dtype=jnp.float32):
    rng = np.random.default_rng(0)
    hidden_ND = jnp.asarray(3 * rng.standard_normal((N, D)), dtype)
    head_DV = jnp.asarray(rng.standard_normal((D, V)), jnp.float32)
    mask_N = (rng.random(N) < 0.7).astype(np.float32)
    return hidden_ND, head_DV, rng.integers(0, V, N, np.int32), mask_N


def plain(hidden_ND, head_DV, targets_N):
    """All logits at once."""
    logits_NV = hidden_ND.astype(jnp.float32) @ head_DV
    return jnp.log(jnp.sum(jnp.exp(logits_NV), axis=1)) - logits_NV[jnp.arange(N), targets_N]


@functools.partial(jit, static_argnums=0)
def measured(chunk, hidden_ND, head_DV, targets_N, mask_N, scale):
    """The sum, and its gradients in hidden and head, times `scale`; `chunk` None is the plain one."""

    def scaled(hidden_ND, head_DV):
        if chunk is None:
            return scale * jnp.sum(plain(hidden_ND, head_DV, targets_N) * mask_N)
        return scale * cross_entropy_sum(hidden_ND, head_DV, targets_N, mask_N, chunk)

    return jax.value_and_grad(scaled, argnums=(0, 1))(hidden_ND, head_DV)


@pytest.mark.parametrize('chunk', [1, 8, N - 1, N, N + 1, 1000])
@pytest.mark.parametrize('scale', [1.0, -0.37])
def test_any_chunk_equals_all_logits_at_once(chunk, scale):
    """In value and gradients, whatever gradient comes from above."""
    assert_close(measured(chunk, *inputs(), scale), measured(None, *inputs(), scale), 1e-5)


def test_a_mask_of_zeros_gives_0_and_no_gradient():
    hidden_ND, head_DV, targets_N, mask_N = inputs()
    value, grads = measured(8, hidden_ND, head_DV, targets_N, 0 * mask_N, 1.0)
    assert value == 0
    assert not any(np.any(leaf) for leaf in grads)


def test_a_mask_may_weigh():
    hidden_ND, head_DV, targets_N, mask_N = inputs()
    weights_N = mask_N * np.linspace(0, 2, N, dtype=np.float32)
    assert_close(
        measured(8, hidden_ND, head_DV, targets_N, weights_N, 1.0), measured(None, *inputs()[:3], weights_N, 1.0)
    )


def test_the_value_without_a_gradient_is_the_value_with_it():
    assert_close(cross_entropy_sum(*inputs(), 8), measured(8, *inputs(), 1.0)[0], 1e-6)


def test_targets_that_carry_no_loss_are_not_read_and_others_outside_the_vocabulary_are_loud():
    hidden_ND, head_DV, targets_N, mask_N = inputs()
    outside_N = np.where(mask_N == 0, V + 3, targets_N).astype(np.int32)
    assert_close(measured(8, hidden_ND, head_DV, outside_N, mask_N, 1.0), measured(8, *inputs(), 1.0), 0)
    assert jnp.isnan(measured(8, hidden_ND, head_DV, outside_N, mask_N + 1, 1.0)[0])


@pytest.mark.parametrize('chunk', [1, 8, 1000])
def test_token_losses_equal_the_plain_ones(chunk):
    hidden_ND, head_DV, targets_N, _ = inputs()
    assert_close(token_losses(hidden_ND, head_DV, targets_N, chunk), plain(hidden_ND, head_DV, targets_N), 1e-5)


def test_bfloat16_hidden_states_have_float32_losses():
    """2% of the largest entry of each gradient; the head's stays float32."""
    hidden_ND, head_DV, targets_N, mask_N = inputs(jnp.bfloat16)
    value, (dhidden_ND, dhead_DV) = measured(8, hidden_ND, head_DV, targets_N, mask_N, 1.0)
    assert (value.dtype, dhidden_ND.dtype, dhead_DV.dtype) == (jnp.float32, jnp.bfloat16, jnp.float32)
    exact = measured(None, hidden_ND.astype(jnp.float32), head_DV, targets_N, mask_N, 1.0)
    assert_close((value, (dhidden_ND.astype(jnp.float32), dhead_DV)), exact, 0.02)


def test_extreme_logits_stay_finite():
    hidden_ND, head_DV, targets_N, mask_N = inputs()
    value, grads = measured(8, 1e4 * hidden_ND, head_DV, targets_N, mask_N, 1.0)
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in (value, *grads))


# The balance loss.


def sums_of(probs_TE, per_token, layers=1):
    """RouterSums of tokens with these probabilities, the same in every layer."""
    experts_TK = np.argsort(-probs_TE, axis=1, kind='stable')[:, :per_token]
    counts_E = np.bincount(experts_TK.reshape(-1), minlength=probs_TE.shape[1]).astype(np.float32)
    return RouterSums(
        np.tile(counts_E, (layers, 1)), np.tile(np.sum(probs_TE, axis=0), (layers, 1)), *np.zeros((2, layers))
    )


@pytest.mark.parametrize('experts', [2, 8])
def test_balance_is_1_when_uniform_and_the_number_of_experts_when_one_gets_all(experts):
    uniform = RouterSums(np.full((3, experts), 5.0), np.full((3, experts), 40.0 / experts), np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(balance_sum(uniform, uniform.counts_E) / 40, 1, rtol=1e-6)
    one = np.eye(experts, dtype=np.float32)[:1].repeat(3, axis=0) * 40
    np.testing.assert_allclose(
        balance_sum(RouterSums(one, one, np.zeros(3), np.zeros(3)), one) / 40, experts, rtol=1e-6
    )


def test_balance_without_tokens_is_0():
    none = np.zeros((2, 4))
    assert balance_sum(RouterSums(none, none, np.zeros(2), np.zeros(2)), none) == 0


@settings(deadline=None, max_examples=30)
@given(arrays(np.float32, (9, 5), elements=st.floats(0.125, 1, width=32)), st.integers(1, 5))
def test_balance_equals_a_loop_over_experts(scores_TE, per_token):
    probs_TE = scores_TE / np.sum(scores_TE, axis=1, keepdims=True)
    chosen_TK = np.argsort(-probs_TE, axis=1, kind='stable')[:, :per_token]
    expected = 0.0
    for expert in range(5):
        share = np.sum(chosen_TK == expert) / chosen_TK.size
        expected += 5 * share * np.mean(probs_TE[:, expert])
    sums = sums_of(probs_TE, per_token, layers=2)
    np.testing.assert_allclose(balance_sum(sums, sums.counts_E) / 9, expected, rtol=1e-5)


# The objective.

BATCH = packed((6, 8, 3), (9, 4))
TARGETS, TOKENS = np.sum(BATCH.loss_mask_BT), float(np.sum(BATCH.segment_ids_BT > 0))


def test_the_objective_is_cross_entropy_plus_weighted_router_losses():
    """Means over targets, and over real tokens and executed layers; what is reported as cross-entropy is that alone."""
    params = params_of(TINY)

    @jit
    def both(params):
        share, (sums, _) = objective(params, Transformer(TINY), BATCH, LossConfig(0.3, 0.2, 8), TARGETS, TOKENS)
        return share, sums, *run(TINY, params, BATCH)

    share, sums, logits_BTV, router = both(params)
    log_probs_BTV = jax.nn.log_softmax(logits_BTV)
    losses_BT = -jnp.take_along_axis(log_probs_BTV, BATCH.targets_BT[..., None], axis=-1)[..., 0]
    cross_entropy = np.sum(losses_BT * BATCH.loss_mask_BT)
    np.testing.assert_allclose(sums.cross_entropy, cross_entropy, rtol=1e-5)
    balance, z = [], []
    for counts_E, probs_E, layer_z, _ in zip(*router, strict=True):
        balance.append(np.sum(counts_E / np.sum(counts_E) * probs_E / TOKENS) * TINY.experts.count)
        z.append(layer_z / TOKENS)
    assert len(balance) == TINY.executed_layers
    np.testing.assert_allclose(sums.balance / TOKENS, np.mean(balance), rtol=1e-5)
    np.testing.assert_allclose(sums.router_z / TOKENS, np.mean(z), rtol=1e-5)
    np.testing.assert_allclose(share, cross_entropy / TARGETS + 0.3 * np.mean(balance) + 0.2 * np.mean(z), rtol=1e-5)
