"""Attention on TPUs: JAX's own splash attention, a Pallas kernel that knows documents by their ids."""

import math

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

LANES = 128
MAX_BLOCK = 512  # rows of queries, and of keys, that are in fast memory at a time


def block_of(length: int) -> int:
    """Positions of a block: a power of two of LANES that divides the padded row, at most MAX_BLOCK."""
    return math.gcd(length, MAX_BLOCK)


def attend(
    q_BTNH: jax.Array,
    k_BTGH: jax.Array,
    v_BTGH: jax.Array,
    segment_ids_BT: jax.Array,
    interpret: bool = False,
) -> jax.Array:
    """See `smelt_jax.model.attend.attend`. `interpret`: on a CPU, for tests."""
    length, heads, head_dim = q_BTNH.shape[1:]
    # Heads of 36, 42 or 44 fill a register of 128 numbers no further; said here, since the kernel leaves it undefined.
    padding, room = -length % LANES, -head_dim % LANES
    q_BNTH = _head_major(q_BTNH * (1 / math.sqrt(head_dim)), padding, room)
    k_BGTH, v_BGTH = (_head_major(array, padding, room) for array in (k_BTGH, v_BTGH))
    ids_BT = jnp.pad(segment_ids_BT, ((0, 0), (0, padding)))
    block = block_of(length + padding)
    sizes = splash.BlockSizes(
        block_q=block,
        block_kv=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
    mask = masks.MultiHeadMask([masks.CausalMask((length + padding, length + padding))] * heads)
    kernel = splash.make_splash_mha_single_device(mask, block_sizes=sizes, interpret=interpret)
    out_BNTH = jax.vmap(kernel)(q_BNTH, k_BGTH, v_BGTH, splash.SegmentIds(ids_BT, ids_BT))
    # Padding has seen padding; nobody sees it again, and no gradient comes back through it.
    out_BNTH = jnp.where(ids_BT[:, None, :, None] > 0, out_BNTH, 0)
    return out_BNTH[:, :, :length, :head_dim].transpose(0, 2, 1, 3)


def _head_major(x_BTNH: jax.Array, padding: int, room: int) -> jax.Array:
    return jnp.pad(x_BTNH.transpose(0, 2, 1, 3), ((0, 0), (0, 0), (0, padding), (0, room)))
