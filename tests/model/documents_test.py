"""Documents of a row do not see each other, and padding is nothing: with values and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import assert_close, assert_same, jit, looped, packed, params_of, run

from smelt_jax.batch import Batch
from smelt_jax.model.transformer import Transformer
from smelt_jax.train.config import LossConfig
from smelt_jax.train.loss import objective

LENGTH = 20
MODEL = looped(0, 2, 0, visits=2)
PARAMS = params_of(MODEL)
# One document, padding, a row that is full, and one whose last document is cut off at the row's end.
BATCH = packed((7, 6), (LENGTH + 1,), (5, 9, 7), length=LENGTH, seed=1)
PADDING_BT = BATCH.segment_ids_BT == 0


@jit
def logits(batch):
    return run(MODEL, PARAMS, batch)[0]


@jit
def trained(params, batch):
    """(loss sums and expert choices, gradients) of a training step, the batch's own counts given."""
    targets, tokens = jnp.sum(batch.loss_mask_BT), jnp.sum(batch.segment_ids_BT > 0, dtype=jnp.float32)
    grad = jax.grad(objective, has_aux=True)
    grads, sums = grad(params, Transformer(MODEL), batch, LossConfig(0.1, 0.1, chunk_tokens=8), targets, tokens)
    return sums, grads


expected = functools.cache(lambda: trained(PARAMS, BATCH))


@pytest.mark.parametrize(('row', 'segment'), [(0, 1), (0, 2), (2, 1), (2, 2), (2, 3)])
def test_editing_a_document_changes_no_logit_of_another(row, segment):
    edited_BT = (BATCH.segment_ids_BT == segment) & (np.arange(3)[:, None] == row)
    tokens_BT = np.where(edited_BT, (BATCH.tokens_BT + 1) % MODEL.vocab, BATCH.tokens_BT)
    before, after = logits(BATCH), logits(BATCH._replace(tokens_BT=tokens_BT))
    assert_close(after[~edited_BT], before[~edited_BT], 1e-6)
    assert np.all(np.max(np.abs(np.asarray(after - before)), axis=-1)[edited_BT] > 1e-2)


def test_a_later_token_changes_no_earlier_logit():
    tokens_BT = BATCH.tokens_BT.copy()
    tokens_BT[1, 12] = (tokens_BT[1, 12] + 1) % MODEL.vocab
    before, after = logits(BATCH)[1], logits(BATCH._replace(tokens_BT=tokens_BT))[1]
    assert_close(after[:12], before[:12], 1e-6)
    assert np.all(np.max(np.abs(np.asarray(after - before)), axis=-1)[12:] > 1e-3)


@pytest.mark.parametrize(('row', 'segment'), [(0, 2), (2, 1), (2, 2), (2, 3)])
def test_a_packed_document_equals_the_document_alone(row, segment):
    """Positions start again with each document, so its place in the row does not matter, nor its company."""
    inside_T = BATCH.segment_ids_BT[row] == segment
    size = int(np.sum(inside_T))
    alone = Batch(*(np.zeros((3, LENGTH), array.dtype) for array in BATCH))
    alone.tokens_BT[0, :size] = BATCH.tokens_BT[row, inside_T]
    alone.segment_ids_BT[0, :size] = 1
    alone.positions_BT[0, :size] = np.arange(size)
    assert_close(logits(alone)[0, :size], logits(BATCH)[row, inside_T], 1e-5)


def test_a_document_alone_needs_no_padding():
    inside_T = BATCH.segment_ids_BT[2] == 2
    alone = Batch(*(array[2:3, inside_T] for array in BATCH))
    assert_close(logits(alone)[0], logits(BATCH)[2, inside_T], 1e-5)


def test_what_padding_holds_changes_nothing():
    """Whatever stands there as token, target and position: losses, expert choices and gradients are the same bits."""
    rng = np.random.default_rng(5)

    def junk(array):
        return np.where(PADDING_BT, rng.integers(0, MODEL.vocab, array.shape, array.dtype), array)

    noisy = BATCH._replace(
        tokens_BT=junk(BATCH.tokens_BT), targets_BT=junk(BATCH.targets_BT), positions_BT=junk(BATCH.positions_BT)
    )
    assert_same(trained(PARAMS, noisy), expected())


def test_how_much_padding_there_is_changes_nothing():
    wide = [np.pad(array, ((0, 2), (0, 9))) for array in BATCH]
    assert_close(trained(PARAMS, Batch(*wide)), expected())


def test_padding_is_not_counted():
    sums, router = expected()[0]
    real = np.sum(~PADDING_BT)
    assert sums.tokens == real
    assert sums.targets == np.sum(BATCH.loss_mask_BT)
    np.testing.assert_array_equal(np.sum(router.counts_E, axis=1), MODEL.experts.per_token * real)


@pytest.mark.parametrize('token', [3, -1, MODEL.vocab, -100])
def test_the_embedding_and_the_target_of_padding_are_never_read(token):
    """Padding may carry any token, one outside the vocabulary too, and its embedding may be NaN."""
    clean = BATCH._replace(tokens_BT=np.where(BATCH.tokens_BT == 3, 4, BATCH.tokens_BT))
    padded = BATCH._replace(
        tokens_BT=np.where(PADDING_BT, token, clean.tokens_BT), targets_BT=np.where(PADDING_BT, token, BATCH.targets_BT)
    )
    poisoned = {**PARAMS, 'embed': PARAMS['embed'].at[3].set(jnp.nan)}
    assert_same(trained(poisoned, padded), trained(PARAMS, clean))


def test_a_batch_of_padding_alone_trains_nothing():
    """Loss 0 and gradients 0, not NaN."""
    (sums, router), grads = trained(PARAMS, Batch(*(np.zeros_like(array) for array in BATCH)))
    assert not np.any(router.counts_E)
    assert all(not np.any(leaf) for leaf in (*sums, *jax.tree.leaves(grads)))
