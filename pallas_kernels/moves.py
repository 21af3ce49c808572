"""`dispatch` and `combine`: token rows into the order of experts, and back as weighted sums.

All implementations share one gradient: both functions, and what is left of their gradients, are sums of gathered rows.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from pallas_kernels import moves_xla
from pallas_kernels.choice import choose, one_by_one
from pallas_kernels.gpu import moves as moves_gpu
from pallas_kernels.routing import Plan
from pallas_kernels.tpu import moves as moves_tpu


def dispatch(x_TD: jax.Array, plan: Plan, *, implementation: str = 'auto', interpret: bool = False) -> jax.Array:
    """Each slot's token row, in the order of `plan`.

    Args:
      x_TD: tokens.
      plan: of T · K slots.
      implementation: see the README of this package.
      interpret: runs Pallas kernels on a CPU, for tests.

    Returns:
      x_SD, S = T · K, in the dtype of `x_TD`; 0 for the slots that use no expert, which come last. The row of a token
      without any expert is not read, here or in the gradient. A token's gradient is summed over its slots in float32.

    Raises:
      ValueError: for a plan of other tokens, an implementation that is not there, or a dtype that it does not take.
    """
    implementation = choose('dispatch', implementation, interpret)
    _choices(plan, x_TD)
    if implementation == 'reference':
        return _dispatch_reference(x_TD, plan)
    return _dispatch(x_TD, plan, implementation, interpret)


def combine(
    y_SD: jax.Array, weights_TK: jax.Array, plan: Plan, *, implementation: str = 'auto', interpret: bool = False
) -> jax.Array:
    """Σ_k weights[t, k] · y[the place of slot (t, k) in `plan`].

    Args:
      y_SD: rows in the order of `plan`, S = T · K.
      weights_TK: of every slot; that of a slot that uses no expert counts for nothing.
      plan: of the T · K slots.
      implementation, interpret: see `dispatch`.

    Returns:
      y_TD in the dtype of `y_SD`, summed in float32. Rows of slots that use no expert are not read, here or in the
      gradient.

    Raises:
      ValueError: for a plan of other rows, an implementation that is not there, or a dtype that it does not take.
    """
    implementation = choose('combine', implementation, interpret)
    if not y_SD.shape[0] == weights_TK.size == plan.order_S.size:
        raise ValueError(
            f'combine: {y_SD.shape[0]} rows, {weights_TK.shape} weights, a plan of {plan.order_S.size} slots'
        )
    if implementation == 'reference':
        return _combine_reference(y_SD, weights_TK, plan)
    return _combine(y_SD, weights_TK, plan, implementation, interpret)


def _choices(plan: Plan, x_TD: jax.Array) -> int:
    choices, rest = divmod(plan.order_S.size, x_TD.shape[0])
    if rest:
        raise ValueError(f'dispatch: {plan.order_S.size} slots are no multiple of {x_TD.shape[0]} tokens')
    return choices


def _token_S(plan: Plan, choices: int) -> jax.Array:
    """The token of each sorted slot; -1 for slots that use no expert."""
    used_S = jnp.arange(plan.order_S.size) < plan.ends_E[-1]
    return jnp.where(used_S, plan.order_S // choices, -1)


def _place_TK(plan: Plan, tokens: int) -> jax.Array:
    """Where each slot's row is; -1 for slots that use no expert."""
    inverse_S = plan.inverse_S
    return jnp.where(inverse_S < plan.ends_E[-1], inverse_S, -1).reshape(tokens, -1)


def _gather_sum(implementation: str, interpret: bool) -> Callable:
    """(rows_SD, place_TK, weight_TK) → Σ_k weight · rows[place], by an implementation."""
    if implementation == 'pallas_tpu':
        return functools.partial(moves_tpu.weighted_rows, interpret=interpret)
    if implementation == 'pallas_gpu':
        return functools.partial(moves_gpu.weighted_rows, interpret=interpret)
    return moves_xla.weighted_rows


def _gather(implementation: str, interpret: bool, x_TD: jax.Array, token_S: jax.Array) -> jax.Array:
    ones_S1 = jnp.ones((token_S.size, 1), jnp.float32)
    return one_by_one(_gather_sum(implementation, interpret), x_TD, token_S[:, None], ones_S1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _dispatch(x_TD, plan, implementation, interpret):
    return _gather(implementation, interpret, x_TD, _token_S(plan, _choices(plan, x_TD)))


def _dispatch_forward(x_TD, plan, implementation, interpret):
    return _dispatch(x_TD, plan, implementation, interpret), (plan, x_TD[:, :0])


def _dispatch_backward(implementation, interpret, residuals, dx_SD):
    plan, like_T0 = residuals
    place_TK = _place_TK(plan, like_T0.shape[0])
    ones_TK = jnp.ones(place_TK.shape, jnp.float32)
    return one_by_one(_gather_sum(implementation, interpret), dx_SD, place_TK, ones_TK), None


_dispatch.defvjp(_dispatch_forward, _dispatch_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _combine(y_SD, weights_TK, plan, implementation, interpret):
    place_TK = _place_TK(plan, weights_TK.shape[0])
    return one_by_one(_gather_sum(implementation, interpret), y_SD, place_TK, weights_TK.astype(jnp.float32))


def _combine_forward(y_SD, weights_TK, plan, implementation, interpret):
    return _combine(y_SD, weights_TK, plan, implementation, interpret), (y_SD, weights_TK, plan)


def _combine_backward(implementation, interpret, residuals, dy_TD):
    y_SD, weights_TK, plan = residuals
    token_S = _token_S(plan, weights_TK.shape[1])
    dy_SD = _gather(implementation, interpret, dy_TD, token_S).astype(jnp.float32)
    # Where no expert is used, y may hold anything, NaN too; and the weight, which is not multiplied by zero either.
    dweights_S = jnp.sum(jnp.where(token_S[:, None] >= 0, dy_SD * y_SD.astype(jnp.float32), 0), axis=1)
    weights_S = jnp.where(token_S >= 0, weights_TK.reshape(-1)[plan.order_S], 0).astype(jnp.float32)
    dweights_TK = plan.to_slots(dweights_S).reshape(weights_TK.shape).astype(weights_TK.dtype)
    return (weights_S[:, None] * dy_SD).astype(y_SD.dtype), dweights_TK, None


_combine.defvjp(_combine_forward, _combine_backward)


def _dispatch_reference(x_TD: jax.Array, plan: Plan) -> jax.Array:
    token_S = _token_S(plan, _choices(plan, x_TD))
    here_ST = token_S[:, None] == jnp.arange(x_TD.shape[0])
    # Zeroed on the way in and out: what is not dispatched reaches neither the rows nor, times zero, a gradient.
    x_TD = jnp.where(jnp.any(here_ST, axis=0)[:, None], x_TD, 0)
    exact = jax.lax.Precision.HIGHEST
    x_SD = jnp.dot(here_ST.astype(jnp.float32), x_TD.astype(jnp.float32), precision=exact).astype(x_TD.dtype)
    return jnp.where(token_S[:, None] >= 0, x_SD, 0)


def _combine_reference(y_SD: jax.Array, weights_TK: jax.Array, plan: Plan) -> jax.Array:
    used_S1 = (jnp.arange(plan.order_S.size) < plan.ends_E[-1])[:, None]
    y_SD = jnp.where(used_S1, y_SD, 0)
    place_TK = _place_TK(plan, weights_TK.shape[0])
    here_TKS = place_TK[..., None] == jnp.arange(plan.order_S.size)
    weights_TS = jnp.sum(jnp.where(here_TKS, weights_TK[..., None].astype(jnp.float32), 0), axis=1)
    exact = jax.lax.Precision.HIGHEST
    y_TD = jnp.dot(weights_TS, y_SD.astype(jnp.float32), precision=exact).astype(y_SD.dtype)
    return jnp.where(jnp.any(place_TK >= 0, axis=1)[:, None], y_TD, 0)
