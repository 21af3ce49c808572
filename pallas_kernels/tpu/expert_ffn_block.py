"""Both passes of the sparse SwiGLU over one block of rows of one expert, inside a TPU kernel."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from pallas_kernels.tpu import rows as moved
from pallas_kernels.tpu.words import from_words, to_words

SUBLANES = 8


def _dot(a: jax.Array, b: jax.Array, a_axis: int, b_axis: int) -> jax.Array:
    # Products of float32 are those of float32, as everywhere.
    precision = lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    dims = (((a_axis,), (b_axis,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=jnp.float32)


def _rows_there(count_N, rows_MD):
    """Rows of other blocks are zeroed, not multiplied by zero: they may hold anything, NaN too."""
    there_M1 = lax.broadcasted_iota(jnp.int32, (rows_MD.shape[0], 1), 0) < count_N[pl.program_id(1)]
    return jnp.where(there_M1, rows_MD, 0)


def forward(
    width, expert_N, count_N, here_ref, next_ref, gate_ref, up_ref, down_ref, x_ref, y_ref, buffer_ref, semaphores
):
    (x_MW,) = moved.fetch(1, here_ref, next_ref, [x_ref], buffer_ref, semaphores)
    x_MD = _rows_there(count_N, from_words(x_MW, width))
    act_MF = jax.nn.silu(_dot(x_MD, gate_ref[0], 1, 0)) * _dot(x_MD, up_ref[0], 1, 0)
    y_ref[0] = to_words(_dot(act_MF.astype(x_MD.dtype), down_ref[0], 1, 0).astype(x_MD.dtype))


def backward(
    width,
    expert_N,
    count_N,
    here_ref,
    next_ref,
    weight_ref,
    gate_ref,
    up_ref,
    down_ref,
    x_ref,
    dy_ref,
    dx_ref,
    dweight_ref,
    dgate_ref,
    dup_ref,
    ddown_ref,
    buffer_ref,
    semaphores,
):
    x_MW, dy_MW = moved.fetch(1, here_ref, next_ref, [x_ref, dy_ref], buffer_ref, semaphores)
    x_MD, dy_MD = (_rows_there(count_N, from_words(words, width)) for words in (x_MW, dy_MW))
    dtype = x_MD.dtype
    gate_MF, up_MF = _dot(x_MD, gate_ref[0], 1, 0), _dot(x_MD, up_ref[0], 1, 0)
    sigmoid_MF = jax.nn.sigmoid(gate_MF)
    silu_MF = gate_MF * sigmoid_MF
    act_MF = silu_MF * up_MF
    dact_MF = _dot(dy_MD, down_ref[0], 1, 1)
    # A row of sums, not a column: by a product with ones, since a sum along a row would have to be turned.
    ones = jnp.ones((SUBLANES, act_MF.shape[1]), jnp.float32)
    dweight_ref[0, 0] = _dot(ones, dact_MF * act_MF, 1, 1)[:1]
    weight_M1 = weight_ref[0].reshape(-1, 1)
    dact_MF = dact_MF * weight_M1
    dgate_MF = (dact_MF * up_MF * (sigmoid_MF + silu_MF * (1 - sigmoid_MF))).astype(dtype)
    dup_MF = (dact_MF * silu_MF).astype(dtype)
    dx_MD = _dot(dgate_MF, gate_ref[0], 1, 1) + _dot(dup_MF, up_ref[0], 1, 1)
    dx_ref[0] = to_words(dx_MD.astype(dtype))

    block = pl.program_id(1)
    first = (block == 0) | (expert_N[block] != expert_N[jnp.maximum(block - 1, 0)])
    products = (
        (dgate_ref, x_MD, dgate_MF),
        (dup_ref, x_MD, dup_MF),
        (ddown_ref, (act_MF * weight_M1).astype(dtype), dy_MD),
    )

    @pl.when(first)
    def _() -> None:
        for ref, a, b in products:
            ref[0] = _dot(a, b, 0, 0)

    @pl.when(jnp.logical_not(first))
    def _() -> None:
        for ref, a, b in products:
            ref[0] += _dot(a, b, 0, 0)
