"""Causal attention within documents, by pairs of blocks: flash attention in plain XLA (Dao et al., 2022).

One loop goes over the pairs (block of queries, block of keys) in which a query sees a key at all: not those above the
diagonal, nor those of documents that ended before the queries' began. Scores of one pair exist at a time, forward and
backward, and the program's size does not depend on the length.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

BLOCK = 128
MASKED = -1e30  # finite: a query that has seen nothing yet would get exp(-inf + inf), which is NaN


def attend(q_BTNH: jax.Array, k_BTGH: jax.Array, v_BTGH: jax.Array, segment_ids_BT: jax.Array) -> jax.Array:
    """See `smelt_jax.model.attend.attend`."""
    rows, length, heads, head_dim = q_BTNH.shape
    groups = k_BTGH.shape[2]
    block = min(BLOCK, length)
    padding = -length % block
    segment_ids_BT = jnp.pad(segment_ids_BT, ((0, 0), (0, padding)))
    # The n query heads of a group are rows of one product: n · T rows against the group's keys.
    q_BGnTH = _head_major(q_BTNH * (1 / math.sqrt(head_dim)), padding).reshape(
        rows, groups, heads // groups, -1, head_dim
    )
    out_BGnTH = _attend(q_BGnTH, _head_major(k_BTGH, padding), _head_major(v_BTGH, padding), segment_ids_BT, block)
    out_BNTH = out_BGnTH.reshape(rows, heads, -1, head_dim)[:, :, :length]
    return out_BNTH.transpose(0, 2, 1, 3)


def _head_major(x_BTNH: jax.Array, padding: int) -> jax.Array:
    return jnp.pad(x_BTNH.transpose(0, 2, 1, 3), ((0, 0), (0, 0), (0, padding), (0, 0)))


def _pairs(segment_ids_BT: jax.Array, block: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Block numbers (queries, keys) of all pairs on or under the diagonal, those in use first, and how many are in use."""
    blocks = segment_ids_BT.shape[1] // block
    query_P, key_P = jnp.tril_indices(blocks)
    ids_BMb = segment_ids_BT.reshape(segment_ids_BT.shape[0], blocks, block)
    last = jnp.iinfo(jnp.int32).max
    first_BM = jnp.min(jnp.where(ids_BMb > 0, ids_BMb, last), axis=2)
    used_P = jnp.any(first_BM[:, query_P] <= jnp.max(ids_BMb, axis=2)[:, key_P], axis=0)
    order_P = jnp.argsort(~used_P, stable=True)
    return query_P[order_P], key_P[order_P], jnp.sum(used_P)


def _take(array: jax.Array, block_index: jax.Array, block: int, axis: int = -2) -> jax.Array:
    return lax.dynamic_slice_in_dim(array, block_index * block, block, axis)


def _put(array: jax.Array, update: jax.Array, block_index: jax.Array, block: int, axis: int = -2) -> jax.Array:
    return lax.dynamic_update_slice_in_dim(array, update.astype(array.dtype), block_index * block, axis % array.ndim)


def _seen(segment_ids_BT, i, j, block):
    """Which keys of block j the queries of block i see, [B, Q, K]."""
    queries, keys = _take(segment_ids_BT, i, block, 1), _take(segment_ids_BT, j, block, 1)
    at = jnp.arange(block)
    causal_QK = i * block + at[:, None] >= j * block + at
    return (queries[:, :, None] == keys[:, None, :]) & (queries > 0)[:, :, None] & causal_QK


def _over_pairs(step: Callable, carry: Any, query_P: jax.Array, used: jax.Array) -> Any:
    """The loop over the pairs in use; a row of one block has one pair, and no loop."""
    return step(0, carry) if query_P.size == 1 else lax.fori_loop(0, used, step, carry)


def _product(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attend(q_BGnTH, k_BGTH, v_BGTH, segment_ids_BT, block):
    return _forward(q_BGnTH, k_BGTH, v_BGTH, segment_ids_BT, block)[0]


def _forward(q_BGnTH, k_BGTH, v_BGTH, segment_ids_BT, block):
    query_P, key_P, count = _pairs(segment_ids_BT, block)

    def step(p, carry):
        sum_BGnTH, max_BGnT1, total_BGnT1 = carry
        i, j = query_P[p], key_P[p]
        seen = _seen(segment_ids_BT, i, j, block)[:, None, None]
        scores = _product('bgnqh,bgkh->bgnqk', _take(q_BGnTH, i, block), _take(k_BGTH, j, block))
        old_max = _take(max_BGnT1, i, block)
        new_max = jnp.maximum(old_max, jnp.max(jnp.where(seen, scores, MASKED), axis=-1, keepdims=True))
        weights = jnp.where(seen, jnp.exp(scores - new_max), 0)
        shrink = jnp.exp(old_max - new_max)
        total = _take(total_BGnT1, i, block) * shrink + jnp.sum(weights, axis=-1, keepdims=True)
        v_BGKH = _take(v_BGTH, j, block)
        add = _product('bgnqk,bgkh->bgnqh', weights.astype(v_BGKH.dtype), v_BGKH)
        return (
            _put(sum_BGnTH, _take(sum_BGnTH, i, block) * shrink + add, i, block),
            _put(max_BGnT1, new_max, i, block),
            _put(total_BGnT1, total, i, block),
        )

    row_shape = (*q_BGnTH.shape[:-1], 1)
    start = (jnp.zeros(q_BGnTH.shape, jnp.float32), jnp.full(row_shape, MASKED), jnp.zeros(row_shape))
    sum_BGnTH, max_BGnT1, total_BGnT1 = _over_pairs(step, start, query_P, count)
    # Padding has seen nothing: 0 / 1, and a log-sum that makes all its weights 0 in the backward pass.
    total_BGnT1 = jnp.where(total_BGnT1 == 0, 1, total_BGnT1)
    out_BGnTH = (sum_BGnTH / total_BGnT1).astype(v_BGTH.dtype)
    log_sum_BGnT = (max_BGnT1 + jnp.log(total_BGnT1))[..., 0]
    return out_BGnTH, (q_BGnTH, k_BGTH, v_BGTH, segment_ids_BT, out_BGnTH, log_sum_BGnT)


def _backward(block, residuals, dout_BGnTH):
    q_BGnTH, k_BGTH, v_BGTH, segment_ids_BT, out_BGnTH, log_sum_BGnT = residuals
    query_P, key_P, count = _pairs(segment_ids_BT, block)
    product = dout_BGnTH.astype(jnp.float32) * out_BGnTH.astype(jnp.float32)
    delta_BGnT = jnp.sum(product, axis=-1)

    def step(p, carry):
        dq_BGHnT, dk_BGTH, dv_BGTH = carry
        i, j = query_P[p], key_P[p]
        q_BGnQH, dout_BGnQH = _take(q_BGnTH, i, block), _take(dout_BGnTH, i, block)
        k_BGKH, v_BGKH = _take(k_BGTH, j, block), _take(v_BGTH, j, block)
        # Keys are the rows here, and dq has its positions last: so no product needs a transposed copy of a score array.
        seen = _seen(segment_ids_BT, i, j, block).transpose(0, 2, 1)[:, None, :, None]
        scores = _product('bgkh,bgnqh->bgknq', k_BGKH, q_BGnQH)
        weights = jnp.where(seen, jnp.exp(scores - _take(log_sum_BGnT, i, block, -1)[:, :, None]), 0)
        dweights = _product('bgkh,bgnqh->bgknq', v_BGKH, dout_BGnQH)
        dscores = (weights * (dweights - _take(delta_BGnT, i, block, -1)[:, :, None])).astype(q_BGnQH.dtype)
        dq = _product('bgkh,bgknq->bghnq', k_BGKH, dscores)
        dk = _product('bgknq,bgnqh->bgkh', dscores, q_BGnQH)
        dv = _product('bgknq,bgnqh->bgkh', weights.astype(dout_BGnQH.dtype), dout_BGnQH)
        return (
            _put(dq_BGHnT, _take(dq_BGHnT, i, block, -1) + dq, i, block, -1),
            _put(dk_BGTH, _take(dk_BGTH, j, block) + dk, j, block),
            _put(dv_BGTH, _take(dv_BGTH, j, block) + dv, j, block),
        )

    rows, groups, heads, length, head_dim = q_BGnTH.shape
    dq_BGHnT = jnp.zeros((rows, groups, head_dim, heads, length), jnp.float32)
    start = (dq_BGHnT, jnp.zeros(k_BGTH.shape, jnp.float32), jnp.zeros(v_BGTH.shape, jnp.float32))
    dq_BGHnT, dk_BGTH, dv_BGTH = _over_pairs(step, start, query_P, count)
    dq_BGnTH = dq_BGHnT.transpose(0, 1, 3, 4, 2)
    return dq_BGnTH.astype(q_BGnTH.dtype), dk_BGTH.astype(k_BGTH.dtype), dv_BGTH.astype(v_BGTH.dtype), None


_attend.defvjp(_forward, _backward)
