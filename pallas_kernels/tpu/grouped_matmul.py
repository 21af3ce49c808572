"""The grouped matmul on TPUs, by JAX's own kernels (megablox): rows padded to blocks, and what they leave undefined masked."""

import contextlib

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm, tgmm

from pallas_kernels.dtypes import check_dtype

LANES = 128
# Of the inner and the outer width, by bytes of a number: two buffers of every block stay within 16 MiB of fast memory.
MAX_WIDTHS = {2: (1024, 512), 4: (512, 512)}
MIN_ROWS, MAX_ROWS = 128, 512


def block_rows(slots: int, experts: int) -> int:
    """Rows of a block by rule of thumb: near the mean group, a power of two between MIN_ROWS and MAX_ROWS."""
    mean = max(1, slots // experts)
    return min(MAX_ROWS, max(MIN_ROWS, 1 << (mean - 1).bit_length()))


def product(x_SD, weights_EDF, ends_E, *, transposed: bool, rows: int, interpret: bool = False) -> jax.Array:
    """y_SF, each group times its matrix, or times its transpose; 0 behind the last group."""
    slots, width = x_SD.shape
    inner, outer_width = _widths(x_SD, width, weights_EDF.shape[1 if transposed else 2])
    x_SD = _padded(x_SD, rows)
    with _float32_products(x_SD.dtype):
        y_SF = gmm(
            x_SD,
            weights_EDF,
            jnp.diff(ends_E, prepend=0),
            x_SD.dtype,
            (rows, inner, outer_width),
            transpose_rhs=transposed,
            interpret=interpret,
        )
    # Blocks that no group reaches were never written.
    return jnp.where((jnp.arange(slots) < ends_E[-1])[:, None], y_SF[:slots], 0)


def outer(x_SD, dy_SF, ends_E, *, rows: int, interpret: bool = False) -> jax.Array:
    """float32 [E, D, F], xᵀ · dy over each group's rows."""
    tiling = (rows, *_widths(x_SD, x_SD.shape[1], dy_SF.shape[1]))
    x_DS, dy_SF, sizes_E = _padded(x_SD, rows).T, _padded(dy_SF, rows), jnp.diff(ends_E, prepend=0)
    with _float32_products(x_SD.dtype):
        return tgmm(x_DS, dy_SF, sizes_E, jnp.float32, tiling, interpret=interpret)


def _widths(x_SD: jax.Array, *widths: int) -> tuple[int, ...]:
    """Blocks of both widths: as few as fit, and of those about equal ones."""
    check_dtype('TPU', x_SD.dtype)
    limits = MAX_WIDTHS[x_SD.dtype.itemsize]
    return tuple(_part(width, limit) for width, limit in zip(widths, limits, strict=True))


def _part(width: int, limit: int) -> int:
    return width if width <= limit else -(-width // (-(-width // limit) * LANES)) * LANES


def _padded(array_SD: jax.Array, rows: int) -> jax.Array:
    return jnp.pad(array_SD, ((0, -array_SD.shape[0] % rows), (0, 0)))


def _float32_products(dtype: jnp.dtype) -> contextlib.AbstractContextManager:
    """Products of float32 are those of float32, as everywhere."""
    return jax.default_matmul_precision('highest') if dtype == jnp.float32 else contextlib.nullcontext()
