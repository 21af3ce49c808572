"""Tiles of arrays in Triton kernels. Sizes are powers of two; what lies beyond an array, or is no row of the block, is 0."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

WHOLE = pl.BlockSpec(memory_space=pl.ANY)  # arrays are indexed by the kernels themselves
SMALLEST = 16  # side of a tile that a tensor core takes


def tile(size: int, largest: int) -> int:
    """The side of a tile along `size` numbers."""
    return min(largest, max(SMALLEST, 1 << (size - 1).bit_length()))


def depth(dtype: jnp.dtype) -> int:
    """How many numbers of a row a turn of a product takes: 128 bytes."""
    return 128 // jnp.dtype(dtype).itemsize


def count(size: int, side: int) -> int:
    """Tiles that cover `size`."""
    return -(-size // side)


def indices(number: jax.Array | int, side: int) -> jax.Array:
    """int32, those of a tile."""
    return number * side + lax.iota(jnp.int32, side)


def load(ref, row_M: jax.Array, column_C: jax.Array, there_M: jax.Array | None = None, expert=None) -> jax.Array:
    """[M, C], rows and columns of a matrix; `there_M` is false for rows that are not read."""
    rows, columns = ref.shape[-2:]
    inside_M = row_M < rows if there_M is None else there_M
    return triton.load(_at(ref, row_M, column_C, expert), mask=inside_M[:, None] & (column_C < columns)[None], other=0)


def store(ref, row_M: jax.Array, column_C: jax.Array, value_MC: jax.Array, there_M=None, expert=None) -> None:
    """The rows that are there, rounded to the matrix's dtype."""
    rows, columns = ref.shape[-2:]
    inside_M = row_M < rows if there_M is None else there_M
    mask = inside_M[:, None] & (column_C < columns)[None]
    triton.store(_at(ref, row_M, column_C, expert), value_MC.astype(ref.dtype), mask=mask)


def load_vector(ref, row_M: jax.Array, there_M: jax.Array) -> jax.Array:
    """[M], 0 where there is no row."""
    return triton.load(ref.at[row_M], mask=there_M, other=0)


def _at(ref, row_M, column_C, expert):
    place = (row_M[:, None], column_C[None])
    return ref.at[place] if expert is None else ref.at[(expert, *place)]


def dot(a: jax.Array, b: jax.Array, a_axis: int = 1, b_axis: int = 0) -> jax.Array:
    """A product, summed in float32. Products of float32 are those of float32, as everywhere."""
    precision = lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    dims = (((a_axis,), (b_axis,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=jnp.float32)


def call(kernel, grid, out_shape, warps: int, interpret: bool, name: str):
    """A Triton kernel over whole arrays."""
    return pl.pallas_call(
        kernel,
        grid=grid,
        out_shape=out_shape,
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=3),
        interpret=interpret,
        name=name,
    )
