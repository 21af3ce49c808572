"""The grouped matmul on GPUs, in Triton: a tile of one group's rows and of the width a program."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from pallas_kernels.blocks import Spans, spans
from pallas_kernels.dtypes import check_dtype
from pallas_kernels.gpu import tiles

MAX_ROWS = 128
COLUMNS = 128


def block_rows(slots: int, experts: int) -> int:
    """Rows of a block by rule of thumb: near the mean group, a power of two between 16 and MAX_ROWS."""
    return tiles.tile(max(1, slots // experts), MAX_ROWS)


def check_rows(rows: int) -> None:
    """Raises ValueError for rows that make no tile."""
    if rows < tiles.SMALLEST or rows & (rows - 1):
        raise ValueError(f'block_rows={rows}: a tile of a GPU has a power of two of rows, {tiles.SMALLEST} at least')


def product(x_SD, weights_EDF, ends_E, *, transposed: bool, rows: int, interpret: bool = False) -> jax.Array:
    """y_SF, each group times its matrix, or times its transpose; 0 behind the last group."""
    blocks = spans(ends_E, x_SD.shape[0], rows)
    y_SF = products([(x_SD, weights_EDF)], blocks, transposed=transposed, rows=rows, interpret=interpret)
    return jnp.where((jnp.arange(x_SD.shape[0]) < ends_E[-1])[:, None], y_SF, 0)


def products(pairs, blocks: Spans, *, transposed: bool, rows: int, interpret: bool) -> jax.Array:
    """The sum of products of several (rows, weights). Rows behind the last group are not written."""
    (slots, inner), dtype = pairs[0][0].shape, pairs[0][0].dtype
    check_dtype('GPU', dtype)
    check_rows(rows)
    width = pairs[0][1].shape[1 if transposed else 2]
    columns = tiles.tile(width, COLUMNS if dtype == jnp.bfloat16 else COLUMNS // 2)
    kernel = functools.partial(
        _product_kernel, len(pairs), transposed, rows, columns, tiles.tile(inner, tiles.depth(dtype))
    )
    return tiles.call(
        kernel,
        (tiles.count(width, columns), blocks.expert_N.size),
        jax.ShapeDtypeStruct((slots, width), dtype),
        warps=8 if rows * columns >= 128 * 128 else 4,
        interpret=interpret,
        name='grouped_product',
    )(blocks.expert_N, blocks.start_N, blocks.count_N, *(array for pair in pairs for array in pair))


def _product_kernel(count, transposed, rows, columns, depth, expert_ref, start_ref, count_ref, *refs):
    pairs, y_ref = [refs[2 * i : 2 * i + 2] for i in range(count)], refs[-1]
    part, block = pl.program_id(0), pl.program_id(1)
    expert, there = expert_ref[block], count_ref[block]

    @pl.when(there > 0)
    def _() -> None:
        row_M = start_ref[block] + lax.iota(jnp.int32, rows)
        there_M = lax.iota(jnp.int32, rows) < there
        column_C = tiles.indices(part, columns)

        def step(turn: jax.Array, total_MC: jax.Array) -> jax.Array:
            inner_I = tiles.indices(turn, depth)
            for x_ref, w_ref in pairs:
                x_MI = tiles.load(x_ref, row_M, inner_I, there_M)
                if transposed:
                    total_MC += tiles.dot(x_MI, tiles.load(w_ref, column_C, inner_I, expert=expert), 1, 1)
                else:
                    total_MC += tiles.dot(x_MI, tiles.load(w_ref, inner_I, column_C, expert=expert))
            return total_MC

        turns = tiles.count(pairs[0][0].shape[1], depth)
        total_MC = lax.fori_loop(0, turns, step, jnp.zeros((rows, columns), jnp.float32))
        tiles.store(y_ref, row_M, column_C, total_MC, there_M)


def outer(x_SD, dy_SF, ends_E, *, rows: int, interpret: bool = False) -> jax.Array:
    """float32 [E, D, F], xᵀ · dy over each group's rows."""
    row_S = jnp.arange(x_SD.shape[0], dtype=jnp.int32)
    return outer_rows(x_SD, row_S, dy_SF, row_S, ends_E, rows=rows, interpret=interpret)


def outer_rows(a_TA, a_row_S, b_TB, b_row_S, ends_E, *, rows: int, interpret: bool) -> jax.Array:
    """float32 [E, A, B], the sum of a[a_row[s]] ⊗ b[b_row[s]] over each group's slots s."""
    check_dtype('GPU', a_TA.dtype)
    check_rows(rows)
    largest = COLUMNS if a_TA.dtype == jnp.bfloat16 else COLUMNS // 2
    a_side, b_side = (tiles.tile(array.shape[1], largest) for array in (a_TA, b_TB))
    depth = min(rows, tiles.depth(a_TA.dtype))
    return tiles.call(
        functools.partial(_outer_kernel, a_side, b_side, depth),
        (tiles.count(b_TB.shape[1], b_side), tiles.count(a_TA.shape[1], a_side), ends_E.size),
        jax.ShapeDtypeStruct((ends_E.size, a_TA.shape[1], b_TB.shape[1]), jnp.float32),
        warps=8 if a_side * b_side >= 128 * 128 else 4,
        interpret=interpret,
        name='grouped_outer',
    )(ends_E - jnp.diff(ends_E, prepend=0), ends_E, a_row_S, b_row_S, a_TA, b_TB)


def _outer_kernel(a_side, b_side, depth, start_ref, end_ref, a_row_ref, b_row_ref, a_ref, b_ref, out_ref):
    b_column_B, a_column_A = tiles.indices(pl.program_id(0), b_side), tiles.indices(pl.program_id(1), a_side)
    expert = pl.program_id(2)
    start, end = start_ref[expert], end_ref[expert]

    def step(turn: jax.Array, total_AB: jax.Array) -> jax.Array:
        slot_M = start + tiles.indices(turn, depth)
        there_M = slot_M < end
        a_MA = tiles.load(a_ref, tiles.load_vector(a_row_ref, slot_M, there_M), a_column_A, there_M)
        b_MB = tiles.load(b_ref, tiles.load_vector(b_row_ref, slot_M, there_M), b_column_B, there_M)
        return total_AB + tiles.dot(a_MA, b_MB, 0, 0)

    turns = lax.div(end - start + (depth - 1), depth)
    total_AB = lax.fori_loop(0, turns, step, jnp.zeros((a_side, b_side), jnp.float32))
    tiles.store(out_ref, a_column_A, b_column_B, total_AB, expert=expert)
