"""The sparse SwiGLU as others would write it, to be measured against: sorted rows, ragged products, and a scatter."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels.expert_ffn import ExpertWeights
from pallas_kernels.routing import route

SIDE = 128  # what JAX's Hopper kernels want widths to be multiples of
TILES: dict[str, Any] = {'block_m': 128, 'block_n': 128, 'block_k': 64, 'max_concurrent_steps': 4, 'grid_block_n': 1}


def _with(product: Callable, experts: int) -> Callable:
    """(experts_TK, x_TD, weights_TK, ExpertWeights) → y_TD, by XLA's gather, three products, and XLA's scatter."""

    def ffn(experts_TK: jax.Array, x_TD: jax.Array, weights_TK: jax.Array, weights: ExpertWeights) -> jax.Array:
        plan = route(experts_TK, experts)
        token_S = plan.order_S // experts_TK.shape[1]
        x_SD = x_TD[token_S]
        gate_SF, up_SF = (product(x_SD, weight, plan.sizes_E) for weight in (weights.gate_EDF, weights.up_EDF))
        y_SD = product(jax.nn.silu(gate_SF) * up_SF, weights.down_EFD, plan.sizes_E)
        weighted_SD = y_SD.astype(jnp.float32) * weights_TK.reshape(-1)[plan.order_S][:, None]
        return jnp.zeros(x_TD.shape, jnp.float32).at[token_S].add(weighted_SD).astype(x_TD.dtype)

    return ffn


@jax.custom_vjp
def _hopper_product(x_SD: jax.Array, weights_EDF: jax.Array, sizes_E: jax.Array) -> jax.Array:
    return _hopper(x_SD, weights_EDF, sizes_E, False)


def _hopper(x_SD, weights_EDF, sizes_E, transposed):
    from jax.experimental.pallas.ops.gpu.ragged_dot_mgpu import ragged_dot

    width = weights_EDF.shape[1 if transposed else 2]
    y_SF = ragged_dot(_padded(x_SD), _padded(weights_EDF), group_sizes=sizes_E, transpose_rhs=transposed, **TILES)
    return y_SF[:, :width]


def _hopper_forward(x_SD, weights_EDF, sizes_E):
    return _hopper(x_SD, weights_EDF, sizes_E, False), (x_SD, weights_EDF, sizes_E)


def _hopper_backward(residuals, dy_SF):
    from jax.experimental.pallas.ops.gpu.transposed_ragged_dot_mgpu import transposed_ragged_dot

    x_SD, weights_EDF, sizes_E = residuals
    dw_EDF = transposed_ragged_dot(_padded(x_SD), _padded(dy_SF), group_sizes=sizes_E, **TILES)
    _, width, ffn_width = weights_EDF.shape
    return _hopper(dy_SF, weights_EDF, sizes_E, True), dw_EDF[:, :width, :ffn_width], None


_hopper_product.defvjp(_hopper_forward, _hopper_backward)


def _padded(array: jax.Array) -> jax.Array:
    """Both widths of matrices, and the width of rows, up to a multiple of SIDE."""
    widths = [(0, 0)] + [(0, -size % SIDE) for size in array.shape[1:]]
    return jnp.pad(array, widths)


# Name → (experts) → the FFN.
PEERS: dict[str, Callable[[int], Callable]] = {
    'ragged_dot': functools.partial(_with, lax.ragged_dot),
    'hopper ragged_dot': functools.partial(_with, _hopper_product),
}
