"""`expert_ffn`: the whole sparse SwiGLU of a mixture of experts, one function over its implementations."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pallas_kernels import expert_ffn_xla

IMPLEMENTATIONS = ('auto', 'reference', 'xla')


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
) -> jax.Array:
    """Σ_k weights[t, k] · expert[experts[t, k]](x[t]), dropless.

    Args:
      x_TD: tokens.
      weights_TK: float32, the router's weights.
      experts_TK: int32, the router's choices; a choice equal to E uses no expert and adds nothing. A token's choices
        are distinct. Rows of a token without any expert are not read, here or in the gradient: they may be NaN.
      expert_weights: in the dtype of `x_TD`.
      implementation: `reference` runs every expert on every token; `xla` sorts the tokens by expert and works through
        them in blocks, in any program XLA compiles; `auto` takes the fastest that this backend has.

    Returns:
      y_TD in the dtype of `x_TD`; sums are taken in float32. Differentiable in all but the choices.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f'expert_ffn {implementation=}: choose one of {", ".join(IMPLEMENTATIONS)}')
    if implementation == 'reference':
        return _reference(x_TD, weights_TK, experts_TK, expert_weights)
    return expert_ffn_xla.expert_ffn(x_TD, weights_TK, experts_TK, *expert_weights)


def _reference(x_TD, weights_TK, experts_TK, expert_weights):
    experts = expert_weights.gate_EDF.shape[0]
    chosen_TKE = experts_TK[..., None] == jnp.arange(experts)
    used_T1 = jnp.any(chosen_TKE, axis=(1, 2))[:, None]
    # Rows that use no expert may hold anything, NaN too: zeroed on both ways in, they reach neither y nor a gradient.
    x_TD = jnp.where(used_T1, x_TD, 0)
    weights_TE = jnp.sum(jnp.where(chosen_TKE, weights_TK[..., None], 0), axis=1)
    gate_ETF = jnp.einsum('td,edf->etf', x_TD, expert_weights.gate_EDF, preferred_element_type=jnp.float32)
    up_ETF = jnp.einsum('td,edf->etf', x_TD, expert_weights.up_EDF, preferred_element_type=jnp.float32)
    hidden_ETF = jax.nn.silu(gate_ETF) * up_ETF * weights_TE.T[..., None]
    y_TD = jnp.einsum('etf,efd->td', hidden_ETF, expert_weights.down_EFD.astype(jnp.float32))
    return jnp.where(used_T1, y_TD, 0).astype(x_TD.dtype)
