"""Dispatch and combine on TPUs: rows gathered, and rows gathered and summed."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.tpu.rows import fetch, index_specs, scratch
from pallas_kernels.tpu.words import from_words, to_words

ROWS = 128  # of a block
SUBLANES = 8
BUFFER_BYTES = 16 * 2**20  # of the rows that are fetched; two blocks of them


def weighted_rows(rows_SD: jax.Array, place_TK: jax.Array, weight_TK: jax.Array, interpret: bool = False) -> jax.Array:
    """Σ_k weight[t, k] · rows[place[t, k]], summed in float32; a negative place adds nothing, whatever is there."""
    return gather_sum(to_words(rows_SD), rows_SD.shape[1], place_TK, weight_TK, rows_SD.dtype, interpret)


def gather_sum(
    words_SW: jax.Array,
    width: int,
    place_TK: jax.Array,
    weight_TK: jax.Array,
    dtype: jnp.dtype,
    interpret: bool = False,
) -> jax.Array:
    """Σ_k weight[t, k] · rows[place[t, k]], summed in float32; a negative place adds nothing, whatever is there.

    Args:
      words_SW: rows of `width` numbers, see `words.to_words`.

    Returns:
      y_TD in `dtype`.
    """
    tokens, choices = place_TK.shape
    fit = BUFFER_BYTES // (2 * 4 * choices * words_SW.shape[1])
    rows = max(SUBLANES, min(ROWS, fit, -(-tokens // SUBLANES) * SUBLANES) // SUBLANES * SUBLANES)
    padding = -tokens % rows
    place_TK = jnp.pad(place_TK, ((0, padding), (0, 0)), constant_values=-1)
    weight_TK = jnp.pad(weight_TK, ((0, padding), (0, 0)))
    blocks = place_TK.shape[0] // rows
    # Choice by choice: a choice's rows of the block lie together.
    index_N1R = jnp.maximum(place_TK, 0).reshape(blocks, rows, choices).swapaxes(1, 2).reshape(blocks, 1, -1)
    block_of = pl.BlockSpec((rows, choices), lambda n: (n, 0))
    y_TD = pl.pallas_call(
        functools.partial(_sum_kernel, width, choices),
        grid=(blocks,),
        in_specs=[
            *index_specs(rows * choices, 0, blocks),
            block_of,
            block_of,
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((rows, width), lambda n: (n, 0)),
        out_shape=jax.ShapeDtypeStruct((blocks * rows, width), dtype),
        scratch_shapes=scratch(rows * choices, words_SW.shape[1], words_SW.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=('arbitrary',), vmem_limit_bytes=3 * BUFFER_BYTES),
        cost_estimate=pl.CostEstimate(
            flops=2 * place_TK.size * width, bytes_accessed=place_TK.size * words_SW.shape[1] * 4, transcendentals=0
        ),
        interpret=interpret,
        name='gather_sum',
    )(index_N1R, index_N1R, place_TK, weight_TK.astype(jnp.float32), words_SW)
    return y_TD[:tokens]


def _sum_kernel(width, choices, here_ref, next_ref, place_ref, weight_ref, rows_ref, y_ref, buffer_ref, semaphores):
    (words_RW,) = fetch(0, here_ref, next_ref, [rows_ref], buffer_ref, semaphores)
    rows = y_ref.shape[0]
    total_MD = jnp.zeros((rows, width), jnp.float32)
    for choice in range(choices):
        row_MD = from_words(words_RW[choice * rows : (choice + 1) * rows], width).astype(jnp.float32)
        there_M1 = place_ref[:, choice : choice + 1] >= 0
        # Where there is no row, one was read that may hold anything, NaN too.
        total_MD += jnp.where(there_M1, row_MD * weight_ref[:, choice : choice + 1], 0)
    y_ref[...] = total_MD.astype(y_ref.dtype)
