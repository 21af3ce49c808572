"""The compiled functions of decoding: an empty cache, a piece of the prompts, a stretch of new tokens."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from smelt_jax.generate.sampling import Numbers, pick
from smelt_jax.model.cache import Cache, empty_cache
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.transformer import Transformer, logits_of
from smelt_jax.parallel.devices import BATCH, EVERYWHERE, Devices
from smelt_jax.parallel.mesh import AXES, RULES
from smelt_jax.parallel.shares import FLOAT32

STRETCH = 8  # new tokens of a row between two looks of the host
NOTHING = -1  # in the place of a token of a row that had ended


class Rows(NamedTuple):
    """The state of each row between two stretches.

    Attributes:
      token_B: its last token, which is not in the cache yet.
      position_B: of that token.
      left_B: new tokens that may still come; 0 is a row that has ended.
      row_B: its number, for the draws.
    """

    token_B: jax.Array
    position_B: jax.Array
    left_B: jax.Array
    row_B: jax.Array


class Programs(NamedTuple):
    """Attributes:
    ready: params → the same in the dtypes that they are computed with, which changes no number of the output.
    empty: (rows, capacity) → a cache.
    read: (params, cache, tokens_BT, counts_B, start) → the cache with `counts_B` tokens of each row, from position `start`.
    stretch: (params, cache, rows, numbers, enders) → (cache, tokens_BI of STRETCH steps, on every device). A row ends with one
      of `enders`, which is its last entry but for NOTHING.
    """

    ready: Callable[[dict], dict]
    empty: Callable[[int, int], Cache]
    read: Callable[..., Cache]
    stretch: Callable[..., tuple[Cache, jax.Array]]


@functools.cache
def programs(model: ModelConfig, visits: int, devices: Devices, vocab: int, greedy: bool, narrow: bool) -> Programs:
    """Those of a model at some visits. Tokens are below `vocab`; `greedy` and `narrow` as in `Sampling`."""
    transformer = Transformer(model, devices.share(model))
    share, where = transformer.share, cache_specs(model, visits)
    pick_next = functools.partial(pick, greedy=greedy, narrow=narrow)

    def forward(params: dict, cache: Cache, tokens_BT: jax.Array, segments_BT: jax.Array, positions_BT: jax.Array):
        output = transformer.apply({'params': params}, tokens_BT, segments_BT, positions_BT, visits=visits, cache=cache)
        return output.hidden_BTD, output.cache

    def read(params: dict, cache: Cache, tokens_BT: jax.Array, counts_B: jax.Array, start: jax.Array) -> Cache:
        ahead_T = jnp.arange(tokens_BT.shape[1])
        segments_BT = (ahead_T < counts_B[:, None]).astype(jnp.int32)
        positions_BT = jnp.broadcast_to(start + ahead_T, tokens_BT.shape)
        return forward(share.outer(params), cache, tokens_BT, segments_BT, positions_BT)[1]

    def stretch(params: dict, cache: Cache, rows: Rows, numbers: Numbers, enders: jax.Array):
        params = share.outer(params)
        new_BI = jnp.full((rows.token_B.shape[0], STRETCH), NOTHING, jnp.int32)

        def step(carry: tuple) -> tuple:
            i, _, cache, rows, new_BI = carry
            alive_B = rows.left_B > 0
            hidden_B1D, cache = forward(
                params, cache, rows.token_B[:, None], alive_B[:, None].astype(jnp.int32), rows.position_B[:, None]
            )
            position_B = rows.position_B + 1
            logits_BV = logits_of(params, hidden_B1D[:, 0])[:, :vocab]
            token_B = pick_next(logits_BV, rows.row_B, position_B, numbers)
            ends_B = jnp.any(token_B[:, None] == enders, axis=1)
            rows = Rows(
                jnp.where(alive_B, token_B, rows.token_B),
                jnp.where(alive_B, position_B, rows.position_B),
                jnp.where(alive_B & ~ends_B, rows.left_B - 1, 0),
                rows.row_B,
            )
            new_BI = new_BI.at[:, i].set(jnp.where(alive_B, token_B, NOTHING))
            return i + 1, any_left(rows), cache, rows, new_BI

        def any_left(rows: Rows) -> jax.Array:
            # Of all devices: they exchange within a step, so all take it or none does.
            return devices.total(jnp.sum(rows.left_B, dtype=jnp.float32)) > 0

        carry = (jnp.int32(0), any_left(rows), cache, rows, new_BI)
        _, _, cache, _, new_BI = lax.while_loop(lambda carry: (carry[0] < STRETCH) & carry[1], step, carry)
        return cache, new_BI

    def read_each(params: dict, cache: Cache, tokens_BT: jax.Array, counts_B: jax.Array, start: jax.Array) -> Cache:
        specs = (devices.specs(params), where, BATCH, BATCH, EVERYWHERE)
        return devices.each(read, specs, where)(params, cache, tokens_BT, counts_B, start)

    def stretch_each(params: dict, cache: Cache, rows: Rows, numbers: Numbers, enders: jax.Array):
        specs = (devices.specs(params), where, BATCH, EVERYWHERE, EVERYWHERE)
        cache, new_BI = devices.each(stretch, specs, (where, BATCH))(params, cache, rows, numbers, enders)
        return cache, devices.everywhere(new_BI)

    def empty(rows: int, capacity: int) -> Cache:
        return devices.each(lambda: empty_cache(model, rows // devices.count, capacity, visits), (), where)()

    return Programs(
        jax.jit(functools.partial(_ready, jnp.dtype(model.dtype))),
        jax.jit(empty, static_argnums=(0, 1)),
        jax.jit(read_each, donate_argnums=1),
        jax.jit(stretch_each, donate_argnums=1),
    )


def cache_specs(model: ModelConfig, visits: int) -> Cache:
    """Where a cache lies: cut by rows, as batches are."""
    shapes = jax.eval_shape(lambda: empty_cache(model, 1, 1, visits))
    return jax.tree.map(lambda leaf: P(*(None,) * (leaf.ndim - 4), AXES), shapes)


def _ready(dtype: jnp.dtype, params: dict) -> dict:
    def one(path: tuple, leaf: jax.Array) -> jax.Array:
        name = getattr(path[-1], 'key', '')
        return leaf.astype(dtype) if name in RULES and name not in FLOAT32 else leaf

    return jax.tree_util.tree_map_with_path(one, params)
