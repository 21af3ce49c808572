"""One update: the same however the batch is cut up, counted once, and told as it is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from models import QUICK, TINY, assert_close, assert_same, jit, packed, params_of, run

from smelt_jax.batch import Batch
from smelt_jax.model.transformer import Transformer
from smelt_jax.train.config import LossConfig, OptimConfig
from smelt_jax.train.digest import look_over
from smelt_jax.train.loss import objective
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import TrainState
from smelt_jax.train.step import gradients, make_step

# Real tokens and targets are spread unevenly: a full row, many short documents, almost nothing, and padding alone.
BATCH = packed((17,), (1, 1, 2, 1, 3), (2,), ())
LOSS = LossConfig(balance=0.0, router_z=0.1, chunk_tokens=8)
LR = jnp.float32(0.01)


def optim(accumulate):
    return OptimConfig(accumulate=accumulate, clip_norm=0.0)


def fresh(accumulate=1):
    params = jax.tree.map(jnp.array, params_of(TINY))  # a copy: the step takes its state's memory
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer(optim(accumulate)).init(params))


@functools.cache
def compiled(accumulate):
    return make_step(TINY, LOSS, optim(accumulate)).lower(fresh(), BATCH, LR).compile(QUICK)


@functools.cache
def updated(accumulate):
    """The state and the metrics after the first update, as NumPy arrays."""
    return jax.tree.map(np.asarray, compiled(accumulate)(fresh(), BATCH, LR))


def gradient(accumulate):
    """The gradient of the first update, from Adam's first moment."""
    state, _ = updated(accumulate)
    return jax.tree.map(lambda leaf: leaf / (1 - OptimConfig().b1), state.opt_state[1].mu)


@pytest.mark.parametrize('accumulate', [2, 4])
def test_accumulation_changes_neither_gradients_nor_metrics(accumulate):
    """With the balance loss at weight 0: its product of two means is of a microbatch, see below."""
    assert_close(gradient(accumulate), gradient(1), 1e-5)
    metrics, expected = updated(accumulate)[1], updated(1)[1]
    assert metrics.keys() == expected.keys()
    for name in metrics.keys() - {'balance'}:
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-5, err_msg=name)


@jit
def of_microbatch(params, rows):
    ones = jnp.ones(())
    _, (sums, _) = objective(params, Transformer(TINY), rows, LOSS, ones, ones)
    return sums.balance, sums.tokens


def test_the_balance_loss_is_of_a_microbatch_weighted_by_its_real_tokens():
    rows = [Batch(*(array[i : i + 1] for array in BATCH)) for i in range(4)]
    sums, tokens = np.array([of_microbatch(params_of(TINY), row) for row in rows]).T
    np.testing.assert_array_equal(tokens, [16, 8, 2, 0])
    assert sums[3] == 0
    np.testing.assert_allclose(updated(4)[1]['balance'], np.sum(sums) / np.sum(tokens), rtol=1e-5)


@pytest.mark.parametrize('accumulate', [1, 4])
def test_an_update_counts_once_whatever_its_microbatches(accumulate):
    """So a schedule of the step moves once an update, and Adam's correction too."""
    state = fresh(accumulate)
    for step in range(3):
        state, metrics = compiled(accumulate)(state, BATCH, jnp.float32(0.01 * step))
        assert metrics['lr'] == jnp.float32(0.01 * step)
    assert state.step == 3
    assert state.opt_state[1].count == 3


def test_the_rate_is_the_one_given():
    """At rate 0 moments move and parameters do not; the change is in proportion to the rate."""
    still, _ = compiled(1)(fresh(), BATCH, jnp.float32(0))
    assert_same(still.params, params_of(TINY))
    assert_same(still.opt_state, updated(1)[0].opt_state)
    once, _ = updated(1)
    twice, _ = compiled(1)(fresh(), BATCH, 2 * LR)
    change, double = (jax.tree.map(jnp.subtract, state.params, params_of(TINY)) for state in (once, twice))
    assert_close(double, jax.tree.map(lambda leaf: 2 * leaf, change), 1e-4)


def test_the_same_step_twice_gives_the_same_bits():
    assert_same(compiled(1)(fresh(), BATCH, LR), updated(1))


def test_metrics_are_what_the_forward_pass_says():
    """Cross-entropy alone, router losses unweighted, the gradient's norm, and the load of the experts by visit."""
    logits_BTV, router = jit(lambda params: run(TINY, params, BATCH))(params_of(TINY))
    _, metrics = updated(1)
    losses_BT = -jnp.take_along_axis(jax.nn.log_softmax(logits_BTV), BATCH.targets_BT[..., None], axis=-1)[..., 0]
    targets = np.sum(BATCH.loss_mask_BT)
    np.testing.assert_allclose(metrics['loss'], np.sum(losses_BT * BATCH.loss_mask_BT) / targets, rtol=1e-5)
    np.testing.assert_allclose(metrics['router_z'], np.mean(router.z) / 26, rtol=1e-5)
    np.testing.assert_allclose(metrics['grad_norm'], optax.tree.norm(gradient(1)), rtol=1e-5)
    assert (metrics['targets'], metrics['tokens']) == (targets, 26)
    counts_XE = np.asarray(router.counts_E)  # prelude, two loop layers twice, coda
    for visit, layers in ((1, [0, 1, 2, 5]), (2, [3, 4])):
        load_X = np.max(counts_XE[layers], axis=1) / np.mean(counts_XE[layers], axis=1)
        np.testing.assert_allclose(metrics[f'load_max_{visit}'], np.max(load_X), rtol=1e-5)
        np.testing.assert_allclose(metrics[f'unused_{visit}'], np.mean(counts_XE[layers] == 0), rtol=1e-5)
    assert 'load_max_3' not in metrics


def test_rows_that_microbatches_do_not_divide_are_an_error_with_both_numbers():
    with pytest.raises(ValueError, match=r'4 rows of a batch on a device are not divisible by optim.accumulate=3'):
        gradients({}, Transformer(TINY), BATCH, LOSS, accumulate=3)


def test_the_same_settings_share_one_step():
    assert make_step(TINY, LOSS, optim(2)) is make_step(TINY, LossConfig(0.0, 0.1, 8), optim(2))
    assert make_step(TINY, LOSS, optim(2)) is not make_step(TINY, LOSS, optim(1))


@functools.cache
def skipping():
    optim = OptimConfig(clip_norm=0.0, skip_nonfinite=3)
    return make_step(TINY, LOSS, optim).lower(fresh(), BATCH, LR).compile(QUICK)


def poisoned():
    """A state whose embedding of a token of the batch is no number."""
    state = fresh()
    state.params['embed'] = state.params['embed'].at[BATCH.tokens_BT[0, 0]].set(jnp.nan)
    return state


def test_an_update_that_is_not_finite_is_left_out_whole():
    """Parameters, moments and their count stay as they were; the step, which is the place in the data, goes on."""
    digests, _ = look_over(poisoned()._replace(step=jnp.int32(1)))
    state, metrics = skipping()(poisoned(), BATCH, LR)
    assert not np.isfinite(metrics['loss'])
    assert look_over(state)[0] == digests
    broken, _ = compiled(1)(poisoned(), BATCH, LR)
    assert not np.isfinite(broken.params['head']).all()  # what is left out


def test_a_finite_update_is_the_same_whether_others_would_be_skipped():
    assert_same(skipping()(fresh(), BATCH, LR)[0], updated(1)[0])


def test_wishes_come_back_added_up():
    wishes_DX = jnp.array([[0, 1], [2, 0], [1, 0]], jnp.int32)
    _, metrics = (
        make_step(TINY, LOSS, optim(1))
        .lower(fresh(), BATCH, LR, wishes_DX)
        .compile(QUICK)(fresh(), BATCH, LR, wishes_DX)
    )
    assert metrics['wishes_X'].tolist() == [3, 1]
    assert 'wishes_X' not in updated(1)[1]
