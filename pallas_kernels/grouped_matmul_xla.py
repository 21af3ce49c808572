"""The grouped matmul in plain XLA: one loop over blocks of one expert each, as many as there are.

`jax.lax.ragged_dot` becomes a masked product of all rows with all matrices on CPUs.
"""

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels.blocks import spans
from pallas_kernels.expert_ffn_xla import block_rows as block_rows


def product(x_SD, weights_EDF, ends_E, *, transposed: bool, rows: int, interpret: bool = False) -> jax.Array:
    """y_SF, each group times its matrix, or times its transpose; 0 behind the last group."""
    slots = x_SD.shape[0]
    rows = min(rows, slots)
    blocks = spans(ends_E, slots, rows)

    def step(n: jax.Array, y_SF: jax.Array) -> jax.Array:
        start, inside_M1 = _within(blocks, n, slots, rows)
        x_MD = jnp.where(inside_M1, lax.dynamic_slice_in_dim(x_SD, start, rows), 0)
        weights = weights_EDF[blocks.expert_N[n]]
        y_MF = _dot(x_MD, weights.T if transposed else weights).astype(y_SF.dtype)
        # The rest of these rows are another block's.
        y_MF = jnp.where(inside_M1, y_MF, lax.dynamic_slice_in_dim(y_SF, start, rows))
        return lax.dynamic_update_slice_in_dim(y_SF, y_MF, start, 0)

    width = weights_EDF.shape[1 if transposed else 2]
    return lax.fori_loop(0, blocks.used, step, jnp.zeros((slots, width), x_SD.dtype))


def outer(x_SD, dy_SF, ends_E, *, rows: int, interpret: bool = False) -> jax.Array:
    """float32 [E, D, F], xᵀ · dy over each group's rows."""
    slots = x_SD.shape[0]
    rows = min(rows, slots)
    blocks = spans(ends_E, slots, rows)

    def step(n: jax.Array, dw_EDF: jax.Array) -> jax.Array:
        start, inside_M1 = _within(blocks, n, slots, rows)
        x_MD, dy_MF = (jnp.where(inside_M1, lax.dynamic_slice_in_dim(a, start, rows), 0) for a in (x_SD, dy_SF))
        return dw_EDF.at[blocks.expert_N[n]].add(_dot(x_MD.T, dy_MF))

    shape = (ends_E.size, x_SD.shape[1], dy_SF.shape[1])
    return lax.fori_loop(0, blocks.used, step, jnp.zeros(shape, jnp.float32))


def _within(blocks, n, slots, rows):
    """The first row to read, so that a whole block of rows can be, and which of them are the block's."""
    start = jnp.minimum(blocks.start_N[n], slots - rows)
    row_M = start + jnp.arange(rows)
    inside_M = (row_M >= blocks.start_N[n]) & (row_M < blocks.start_N[n] + blocks.count_N[n])
    return start, inside_M[:, None]


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)
