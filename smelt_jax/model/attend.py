"""Causal attention within documents, by blocks of queries: the scores of one block exist at a time."""

import functools
import math

import jax
import jax.numpy as jnp

QUERY_BLOCK = 256
MASKED = -1e30  # finite: a padding query sees nothing, and -inf would make its softmax NaN


def attend(q_BTNH: jax.Array, k_BTGH: jax.Array, v_BTGH: jax.Array, segment_ids_BT: jax.Array) -> jax.Array:
    """softmax(q kᵀ / √H) v over the keys of the query's own document that are not after it.

    Args:
      q_BTNH, k_BTGH, v_BTGH: N is a multiple of G; query heads n·N/G … share key-value head n.
      segment_ids_BT: int32; 0 marks padding, whose output is 0.

    Returns:
      out_BTNH in the dtype of v. Scores and softmax are float32.
    """
    rows, length, heads, head_dim = q_BTNH.shape
    groups = k_BTGH.shape[2]
    q_BGnTH = q_BTNH.reshape(rows, length, groups, heads // groups, head_dim).transpose(0, 2, 3, 1, 4)
    q_BGnTH = q_BGnTH * (1 / math.sqrt(head_dim))
    k_BGTH, v_BGTH = k_BTGH.transpose(0, 2, 1, 3), v_BTGH.transpose(0, 2, 1, 3)
    outs = []
    for start in range(0, length, QUERY_BLOCK):
        stop = min(start + QUERY_BLOCK, length)
        # Keys after the block's last query are never visible: the causal half of the work is not done at all.
        block = functools.partial(_block, start=start)
        outs.append(
            jax.checkpoint(block)(
                q_BGnTH[:, :, :, start:stop],
                k_BGTH[:, :, :stop],
                v_BGTH[:, :, :stop],
                segment_ids_BT[:, start:stop],
                segment_ids_BT[:, :stop],
            )
        )
    out_BGnTH = jnp.concatenate(outs, axis=3)
    return out_BGnTH.transpose(0, 3, 1, 2, 4).reshape(rows, length, heads, head_dim)


def _block(q_BGnQH, k_BGTH, v_BGTH, query_segments_BQ, key_segments_BT, start):
    scores_BGnQT = jnp.einsum('bgnqh,bgth->bgnqt', q_BGnQH, k_BGTH, preferred_element_type=jnp.float32)
    same_BQT = query_segments_BQ[:, :, None] == key_segments_BT[:, None, :]
    real_BQT = same_BQT & (query_segments_BQ > 0)[:, :, None]
    causal_QT = start + jnp.arange(q_BGnQH.shape[3])[:, None] >= jnp.arange(k_BGTH.shape[2])
    visible_BQT = (real_BQT & causal_QT)[:, None, None]
    scores_BGnQT = jnp.where(visible_BQT, scores_BGnQT, MASKED)
    weights_BGnQT = jnp.where(visible_BQT, jax.nn.softmax(scores_BGnQT, axis=-1), 0)
    return jnp.einsum('bgnqt,bgth->bgnqh', weights_BGnQT.astype(v_BGTH.dtype), v_BGTH)
