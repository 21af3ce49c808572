"""`expert_ffn`: the whole sparse SwiGLU of a mixture of experts, one function over its implementations."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pallas_kernels import expert_ffn_xla
from pallas_kernels.gpu import expert_ffn as expert_ffn_gpu
from pallas_kernels.settings import settings
from pallas_kernels.tpu import expert_ffn as expert_ffn_tpu


class ExpertWeights(NamedTuple):
    """Weights of E SwiGLU experts: `down(silu(gate(x)) · up(x))`."""

    gate_EDF: jax.Array
    up_EDF: jax.Array
    down_EFD: jax.Array


def expert_ffn(
    x_TD: jax.Array,
    weights_TK: jax.Array,
    experts_TK: jax.Array,
    expert_weights: ExpertWeights,
    *,
    implementation: str = 'auto',
    block_rows: int | None = None,
    interpret: bool = False,
) -> jax.Array:
    """Σ_k weights[t, k] · expert[experts[t, k]](x[t]), dropless.

    Args:
      x_TD: tokens.
      weights_TK: float32, the router's weights.
      experts_TK: int32, the router's choices; a choice equal to E uses no expert and adds nothing. A token's choices
        are distinct. Rows of a token without any expert are not read, here or in the gradient: they may be NaN.
      expert_weights: in the dtype of `x_TD`.
      implementation: `reference` runs every expert on every token; `xla` sorts the tokens by expert and works through
        them in blocks, in any program XLA compiles; `pallas_tpu` and `pallas_gpu` do so in kernels that gather the rows
        they need; `auto` takes the best that this backend has. More in the README of this package.
      block_rows: rows of a block; None for those of `settings`.
      interpret: runs Pallas kernels on a CPU, for tests.

    Returns:
      y_TD in the dtype of `x_TD`; sums are taken in float32. Differentiable in all but the choices.

    Raises:
      ValueError: for shapes or dtypes that do not go together, or an implementation that is not there.
    """
    _check(x_TD, weights_TK, experts_TK, expert_weights)
    experts, width, ffn_width = expert_weights.gate_EDF.shape
    chosen = settings(
        'expert_ffn',
        slots=experts_TK.size,
        experts=experts,
        width=width,
        ffn_width=ffn_width,
        dtype=x_TD.dtype,
        implementation=implementation,
        block_rows=block_rows,
        interpret=interpret,
    )
    if chosen.implementation == 'reference':
        return _reference(x_TD, weights_TK, experts_TK, expert_weights)
    if chosen.implementation == 'xla':
        return expert_ffn_xla.expert_ffn(x_TD, weights_TK, experts_TK, *expert_weights, chosen.block_rows)
    kernels = expert_ffn_tpu if chosen.implementation == 'pallas_tpu' else expert_ffn_gpu
    return kernels.expert_ffn(x_TD, weights_TK, experts_TK, *expert_weights, chosen.block_rows, interpret)


def _check(x_TD, weights_TK, experts_TK, expert_weights) -> None:
    experts, width, ffn_width = expert_weights.gate_EDF.shape
    meant = (experts, width, ffn_width), (experts, width, ffn_width), (experts, ffn_width, width)
    shapes = tuple(weight.shape for weight in expert_weights)
    tokens_match = x_TD.shape == (len(experts_TK), width) and weights_TK.shape == experts_TK.shape
    if not jnp.issubdtype(experts_TK.dtype, jnp.integer) or not x_TD.size or not experts_TK.size:
        raise ValueError(
            f'expert_ffn: x {x_TD.shape}, choices {experts_TK.dtype}{experts_TK.shape}; meant are integers as choices, '
            f'and T, K and D of 1 or more'
        )
    if shapes != meant or not tokens_match or any(weight.dtype != x_TD.dtype for weight in expert_weights):
        dtypes = ', '.join(str(array.dtype) for array in (x_TD, *expert_weights))
        raise ValueError(
            f'expert_ffn: x {x_TD.shape}, weights {weights_TK.shape}, choices {experts_TK.shape}, experts {shapes} of '
            f'{dtypes}; meant are [T, D], [T, K], [T, K], and [E, D, F], [E, D, F], [E, F, D] of one dtype'
        )


def _reference(x_TD, weights_TK, experts_TK, expert_weights):
    experts = expert_weights.gate_EDF.shape[0]
    chosen_TKE = experts_TK[..., None] == jnp.arange(experts)
    used_T1 = jnp.any(chosen_TKE, axis=(1, 2))[:, None]
    # Rows that use no expert may hold anything, NaN too: zeroed on both ways in, they reach neither y nor a gradient.
    x_TD = jnp.where(used_T1, x_TD, 0)
    weights_TE = jnp.sum(jnp.where(chosen_TKE, weights_TK[..., None], 0), axis=1)
    product = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
    gate_ETF = product('td,edf->etf', x_TD, expert_weights.gate_EDF)
    up_ETF = product('td,edf->etf', x_TD, expert_weights.up_EDF)
    hidden_ETF = jax.nn.silu(gate_ETF) * up_ETF * weights_TE.T[..., None]
    y_TD = product('etf,efd->td', hidden_ETF, expert_weights.down_EFD.astype(jnp.float32))
    return jnp.where(used_T1, y_TD, 0).astype(x_TD.dtype)
