"""Dispatch and combine on GPUs: rows gathered, and rows gathered and summed."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from pallas_kernels.dtypes import check_dtype
from pallas_kernels.gpu import tiles

ROWS, COLUMNS = 16, 256  # of a tile


def weighted_rows(rows_SD: jax.Array, place_TK: jax.Array, weight_TK: jax.Array, interpret: bool = False) -> jax.Array:
    """Σ_k weight[t, k] · rows[place[t, k]], summed in float32; a negative place adds nothing, whatever is there."""
    check_dtype('GPU', rows_SD.dtype)
    tokens, width = place_TK.shape[0], rows_SD.shape[1]
    columns = tiles.tile(width, COLUMNS)
    return tiles.call(
        functools.partial(_kernel, place_TK.shape[1], columns),
        (tiles.count(tokens, ROWS), tiles.count(width, columns)),  # of the first axis a GPU has 2^31, of others 65,535
        jax.ShapeDtypeStruct((tokens, width), rows_SD.dtype),
        warps=4,
        interpret=interpret,
        name='weighted_rows',
    )(rows_SD, place_TK, weight_TK)


def _kernel(choices, columns, rows_ref, place_ref, weight_ref, y_ref):
    token_R = tiles.indices(pl.program_id(0), ROWS)
    column_C = tiles.indices(pl.program_id(1), columns)
    inside_R = token_R < y_ref.shape[0]
    total_RC = jnp.zeros((ROWS, columns), jnp.float32)
    for choice in range(choices):
        place_R = triton.load(place_ref.at[token_R, choice], mask=inside_R, other=-1)
        weight_R = triton.load(weight_ref.at[token_R, choice], mask=inside_R, other=0)
        there_R = place_R >= 0
        row_RC = tiles.load(rows_ref, place_R, column_C, there_R).astype(jnp.float32)
        # A weight may be anything where there is no row, NaN too.
        total_RC += jnp.where(there_R[:, None], row_RC * weight_R[:, None], 0)
    tiles.store(y_ref, token_R, column_C, total_RC, inside_R)
