"""`grouped_matmul`: sorted rows, each group times a matrix of its own."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels import grouped_matmul_xla
from pallas_kernels.choice import one_by_one
from pallas_kernels.gpu import grouped_matmul as grouped_matmul_gpu
from pallas_kernels.settings import settings
from pallas_kernels.tpu import grouped_matmul as grouped_matmul_tpu

_MODULES: dict[str, Any] = {
    'xla': grouped_matmul_xla,
    'pallas_tpu': grouped_matmul_tpu,
    'pallas_gpu': grouped_matmul_gpu,
}


def grouped_matmul(
    x_SD: jax.Array,
    weights_EDF: jax.Array,
    ends_E: jax.Array,
    *,
    implementation: str = 'auto',
    block_rows: int | None = None,
    interpret: bool = False,
) -> jax.Array:
    """y[s] = x[s] · weights[e] for the rows s of group e.

    Args:
      x_SD: rows, sorted by group.
      weights_EDF: in the dtype of `x_SD`.
      ends_E: int32, where each group ends; it begins where the one before it ends (`Plan.ends_E`).
      implementation: see the README of this package.
      block_rows: rows of a block; None for those of `settings`.
      interpret: runs Pallas kernels on a CPU, for tests.

    Returns:
      y_SF in the dtype of `x_SD`, summed in float32; 0 for rows behind the last group, which are not read, here or in
      the gradient. Differentiable in `x_SD` and `weights_EDF`; the gradient of an empty group's matrix is 0.

    Raises:
      ValueError: for shapes or dtypes that do not go together, or an implementation that is not there.
    """
    if weights_EDF.shape[:2] != (*ends_E.shape, x_SD.shape[1]) or weights_EDF.dtype != x_SD.dtype:
        raise ValueError(
            f'grouped_matmul: x {x_SD.dtype}{x_SD.shape}, weights {weights_EDF.dtype}{weights_EDF.shape}, ends '
            f'{ends_E.shape}; meant are x [S, D] and weights [E, D, F] of one dtype, and ends [E]'
        )
    slots, width = x_SD.shape
    chosen = settings(
        'grouped_matmul',
        slots=slots,
        experts=ends_E.size,
        width=width,
        ffn_width=weights_EDF.shape[2],
        dtype=x_SD.dtype,
        implementation=implementation,
        block_rows=block_rows,
        interpret=interpret,
    )
    if chosen.implementation == 'reference':
        return _reference(x_SD, weights_EDF, ends_E)
    return _grouped(x_SD, weights_EDF, ends_E, chosen.implementation, chosen.block_rows, interpret)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _grouped(x_SD, weights_EDF, ends_E, implementation, rows, interpret):
    return _product(x_SD, weights_EDF, ends_E, False, implementation, rows, interpret)


def _forward(x_SD, weights_EDF, ends_E, *static):
    return _grouped(x_SD, weights_EDF, ends_E, *static), (x_SD, weights_EDF, ends_E)


def _backward(implementation, rows, interpret, residuals, dy_SF):
    x_SD, weights_EDF, ends_E = residuals
    dx_SD = _product(dy_SF, weights_EDF, ends_E, True, implementation, rows, interpret)
    outer = functools.partial(_MODULES[implementation].outer, rows=rows, interpret=interpret)
    return dx_SD, one_by_one(outer, x_SD, dy_SF, ends_E).astype(weights_EDF.dtype), None


_grouped.defvjp(_forward, _backward)


def _product(x_SD, weights_EDF, ends_E, transposed, implementation, rows, interpret):
    product = functools.partial(_MODULES[implementation].product, transposed=transposed, rows=rows, interpret=interpret)
    return one_by_one(product, x_SD, weights_EDF, ends_E)


def _reference(x_SD: jax.Array, weights_EDF: jax.Array, ends_E: jax.Array) -> jax.Array:
    row_S = jnp.arange(x_SD.shape[0])
    member_ES = (row_S < ends_E[:, None]) & (row_S >= (ends_E - jnp.diff(ends_E, prepend=0))[:, None])
    x_ESD = jnp.where(member_ES[..., None], x_SD, 0)
    exact = jax.lax.Precision.HIGHEST
    y_ESF = jnp.einsum('esd,edf->esf', x_ESD, weights_EDF, precision=exact, preferred_element_type=jnp.float32)
    return jnp.where((row_S < ends_E[-1])[:, None], jnp.sum(y_ESF, axis=0), 0).astype(x_SD.dtype)
