"""Attention on NVIDIA's GPUs: the flash attention that JAX has in Triton through Pallas, which knows documents by their ids."""

import math

import jax
import jax.numpy as jnp

BLOCK = 64  # positions of queries, and of keys, that are worked on at a time


def attend(
    q_BTNH: jax.Array,
    k_BTGH: jax.Array,
    v_BTGH: jax.Array,
    segment_ids_BT: jax.Array,
    interpret: bool = False,
) -> jax.Array:
    """See `smelt_jax.model.attend.attend`. `interpret`: on a CPU, for tests."""
    from jax.experimental.pallas.ops.gpu import attention as flash  # newer jax warns of it: for those who use it alone

    length, heads, head_dim = q_BTNH.shape[1:]
    # Heads of 36, 42 or 44 are padded to a power of two: what the kernel reads beside them would be another head's.
    padding, room = -length % BLOCK, (1 << (head_dim - 1).bit_length()) - head_dim
    q_BTNH, k_BTGH, v_BTGH = (
        jnp.pad(array, ((0, 0), (0, padding), (0, 0), (0, room))) for array in (q_BTNH, k_BTGH, v_BTGH)
    )
    # It wants as many key heads as there are query heads; gradients of the copies are added up.
    k_BTNH, v_BTNH = (jnp.repeat(array, heads // array.shape[2], axis=2) for array in (k_BTGH, v_BTGH))
    ids_BT = jnp.pad(segment_ids_BT, ((0, 0), (0, padding)))
    sizes = flash.BlockSizes(
        block_q=BLOCK, block_k=BLOCK, block_q_dkv=BLOCK, block_kv_dkv=BLOCK, block_q_dq=BLOCK, block_kv_dq=BLOCK
    )
    scale = 1 / math.sqrt(head_dim)
    out_BTNH = flash.mha(
        q_BTNH, k_BTNH, v_BTNH, ids_BT, sm_scale=scale, causal=True, block_sizes=sizes, interpret=interpret
    )
    # Padding has seen padding; nobody sees it again, and no gradient comes back through it.
    return jnp.where(ids_BT[:, :, None, None] > 0, out_BTNH, 0)[:, :length, :, :head_dim]
