"""Every kernel as one function of its differentiable inputs and a routing, beside the same thing written out plainly."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import naive
import numpy as np
from models import jit

import pallas_kernels
from pallas_kernels import IMPLEMENTATIONS, ExpertWeights, route

T, D, F = 130, 96, 40  # no multiple of a tile, a lane or a block
# (experts, D, F) of the 200M and 1.6B models, baseline and looped, with as many experts as one of several devices has.
MODELS = {
    '200m': (8, 1280, 432),
    '200m looped': (16, 1056, 352),
    '1.6b': (12, 2304, 768),
    '1.6b looped': (18, 1848, 640),
}
COMPILED = 1024, 4  # tokens and choices of what is compiled at those widths
REAL = tuple(name for name in IMPLEMENTATIONS if name != 'auto')


class Kernel(NamedTuple):
    """Attributes:
    inputs: (rng, experts_TK, E) → primals, all that a gradient is taken of.
    call: (primals, experts_TK, E, keywords) → the kernel's result.
    plain: (primals, experts_TK, E) → the same.
    unread: (experts_TK, E) → of each primal and of the result, which of its first (two) axes' entries are not read.
    blocks: whether `block_rows` is an argument.
    bfloat16: allowed error, of the largest entry; 0 where every result is rounded once.
    """

    inputs: Callable
    call: Callable
    plain: Callable
    unread: Callable
    blocks: bool = False
    bfloat16: float = 0.0


def normal(rng, *shape):
    return jnp.asarray(rng.standard_normal(shape, np.float32) / np.sqrt(shape[-2]).astype(np.float32))


def sorted_slots(experts_TK, experts):
    """(slots in the order of experts, the expert of each; E where none is used)."""
    ids_S = jnp.minimum(experts_TK.reshape(-1), experts)
    order_S = jnp.argsort(ids_S, stable=True)
    return order_S, ids_S[order_S]


def unused_tokens(experts_TK, experts):
    return np.all(np.asarray(experts_TK) >= experts, axis=1)


def unused_rows(experts_TK, experts):
    used = np.sum(np.asarray(experts_TK) < experts)
    return np.arange(experts_TK.size) >= used


def unused_slots(experts_TK, experts):
    return np.asarray(experts_TK) >= experts


def _plain_dispatch(primals, experts_TK, experts):
    order_S, expert_S = sorted_slots(experts_TK, experts)
    return jnp.where((expert_S < experts)[:, None], primals[0][order_S // experts_TK.shape[1]], 0)


def _plain_combine(primals, experts_TK, experts):
    y_SD, weights_TK = primals
    order_S, expert_S = sorted_slots(experts_TK, experts)
    weighted_SD = jnp.where((expert_S < experts)[:, None], y_SD * weights_TK.reshape(-1)[order_S][:, None], 0)
    slots_SD = jnp.zeros_like(weighted_SD).at[order_S].set(weighted_SD)
    return jnp.sum(slots_SD.reshape(*experts_TK.shape, -1), axis=1)


def _plain_grouped(primals, experts_TK, experts):
    x_SD, weights_EDF = primals
    expert_S = sorted_slots(experts_TK, experts)[1]
    parts = [jnp.where((expert_S == e)[:, None], x_SD @ weights_EDF[e], 0) for e in range(experts)]
    return sum(parts, jnp.zeros((x_SD.shape[0], weights_EDF.shape[2])))


def _router_weights(rng, experts_TK):
    return jnp.asarray(rng.random(experts_TK.shape, np.float32))


def _expert_weights(rng, experts):
    return ExpertWeights(normal(rng, experts, D, F), normal(rng, experts, D, F), normal(rng, experts, F, D))


KERNELS = {
    'dispatch': Kernel(
        lambda rng, experts_TK, experts: (normal(rng, len(experts_TK), D),),
        lambda primals, experts_TK, experts, more: pallas_kernels.dispatch(
            *primals, route(experts_TK, experts), **more
        ),
        _plain_dispatch,
        lambda *routing: ((unused_tokens(*routing),), unused_rows(*routing)),
    ),
    'combine': Kernel(
        lambda rng, experts_TK, experts: (normal(rng, experts_TK.size, D), _router_weights(rng, experts_TK)),
        lambda primals, experts_TK, experts, more: pallas_kernels.combine(*primals, route(experts_TK, experts), **more),
        _plain_combine,
        lambda *routing: ((unused_rows(*routing), unused_slots(*routing)), unused_tokens(*routing)),
    ),
    'grouped_matmul': Kernel(
        lambda rng, experts_TK, experts: (normal(rng, experts_TK.size, D), normal(rng, experts, D, F)),
        lambda primals, experts_TK, experts, more: pallas_kernels.grouped_matmul(
            *primals, route(experts_TK, experts).ends_E, **more
        ),
        _plain_grouped,
        lambda *routing: ((unused_rows(*routing), None), unused_rows(*routing)),
        blocks=True,
    ),
    'expert_ffn': Kernel(
        lambda rng, experts_TK, experts: (
            5 * normal(rng, len(experts_TK), D),
            _router_weights(rng, experts_TK),
            _expert_weights(rng, experts),
        ),
        lambda primals, experts_TK, experts, more: pallas_kernels.expert_ffn(
            primals[0], primals[1], experts_TK, primals[2], **more
        ),
        lambda primals, experts_TK, experts: naive.experts(primals[0], primals[1], experts_TK, *primals[2]),
        lambda *routing: ((unused_tokens(*routing), unused_slots(*routing), None), unused_tokens(*routing)),
        blocks=True,
        bfloat16=0.0075,  # hidden numbers and their gradients are rounded, too
    ),
}


def inputs(name: str, experts_TK: np.ndarray, experts: int, dtype: Any = jnp.float32, seed: int = 0) -> tuple:
    """(primals, cotangent). Router weights stay float32."""
    rng = np.random.default_rng(seed)
    kernel = KERNELS[name]
    primals = kernel.inputs(rng, experts_TK, experts)
    shape = jax.eval_shape(lambda p, e: kernel.plain(p, e, experts), primals, experts_TK).shape

    def rounded(leaf: jax.Array) -> jax.Array:
        return leaf if leaf.shape == experts_TK.shape else leaf.astype(dtype)

    return jax.tree.map(rounded, primals), normal(rng, *shape).astype(dtype)


@functools.partial(jit, static_argnums=(0, 1, 2), static_argnames='block_rows')
def measured(name, implementation, experts, primals, experts_TK, dy, *, block_rows=None):
    """The result of a kernel and its gradients. `plain` is an implementation, too. One program for all routings."""
    kernel = KERNELS[name]

    def forward(*primals):
        if implementation == 'plain':
            return kernel.plain(primals, experts_TK, experts)
        more = {'implementation': implementation, 'interpret': implementation.startswith('pallas')}
        if kernel.blocks:
            more['block_rows'] = block_rows
        return kernel.call(primals, experts_TK, experts, more)

    y, pull = jax.vjp(forward, *primals)
    return y, pull(dy.astype(y.dtype))


def assert_rounded_once(actual: Any, expected: Any) -> None:
    """Every bfloat16 in `actual` is a float32 of `expected`, rounded: off by 2^-8 of itself at most."""
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        excess = np.abs(a - b) - 2**-8 * np.abs(b)
        assert np.max(excess) <= 1e-5 * np.max(np.abs(b)), f'{np.max(excess):.2e} more than one rounding'


def distinct(tokens: int, choices: int, among: Any, seed: int = 0) -> np.ndarray:
    """Random distinct choices for each token, of the experts listed in `among`."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(among)[:choices] for _ in range(tokens)]).astype(np.int32)


def shapes(name: str, tokens: int, choices: int, experts: int, width: int, ffn_width: int, dtype: Any) -> tuple:
    """(primals, experts_TK, cotangent) of a kernel as shapes alone, in any size."""

    def array(*shape: int, dtype: Any = dtype) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    slots = tokens * choices
    router, wide = array(tokens, choices, dtype=jnp.float32), array(experts, width, ffn_width)
    primals, result = {
        'dispatch': ((array(tokens, width),), array(slots, width)),
        'combine': ((array(slots, width), router), array(tokens, width)),
        'grouped_matmul': ((array(slots, width), wide), array(slots, ffn_width)),
        'expert_ffn': (
            (array(tokens, width), router, ExpertWeights(wide, wide, array(experts, ffn_width, width))),
            array(tokens, width),
        ),
    }[name]
    return primals, array(tokens, choices, dtype=jnp.int32), result


def with_gradients(name: str, implementation: str, experts: int) -> Callable:
    """(primals, experts_TK, cotangent) → result and gradients, to be compiled for hardware elsewhere."""

    def function(primals: tuple, experts_TK: jax.Array, dy: jax.Array) -> Any:
        more = {'implementation': implementation}
        y, pull = jax.vjp(lambda *primals: KERNELS[name].call(primals, experts_TK, experts, more), *primals)
        return y, pull(dy)

    return function
