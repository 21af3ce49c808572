"""Sorted rows cut into blocks of one expert each: what kernels work through."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pallas_kernels.routing import Plan


class Blocks(NamedTuple):
    """Blocks of `M` rows; the last of an expert may have fewer. N of them are enough for any routing; `used` are there.

    Attributes:
      slot_NM: int32, the slot of each row; 0 where there is no row.
      count_N: int32, rows that are there: the first ones.
      expert_N: int32, ascending. Behind the blocks in use, that of the last one with rows.
      used: int32 scalar.
      place_S: int32, n · M + m of each slot's row; -1 for a slot that uses no expert.
    """

    slot_NM: jax.Array
    count_N: jax.Array
    expert_N: jax.Array
    used: jax.Array
    place_S: jax.Array


class Spans(NamedTuple):
    """The same blocks as spans of sorted rows. N of them are enough for any routing; `used` are there.

    Attributes:
      expert_N: int32, ascending. Behind the blocks in use, that of the last one with rows.
      start_N: int32, the first row.
      count_N: int32, rows that are there, at most as many as a block has; 0 behind the blocks in use.
      used: int32 scalar.
      first_E: int32, each expert's first block.
    """

    expert_N: jax.Array
    start_N: jax.Array
    count_N: jax.Array
    used: jax.Array
    first_E: jax.Array


def spans(ends_E: jax.Array, slots: int, rows: int) -> Spans:
    """Cuts groups of `slots` sorted rows that end at `ends_E` into blocks of `rows` rows."""
    (experts,) = ends_E.shape
    sizes_E = jnp.diff(ends_E, prepend=0)
    starts_E = ends_E - sizes_E
    last_E = jnp.cumsum((sizes_E + rows - 1) // rows)  # the block behind each expert's last
    first_E = last_E - (sizes_E + rows - 1) // rows
    block_N = jnp.arange(slots // rows + min(experts, slots), dtype=jnp.int32)
    expert_N = jnp.searchsorted(last_E, block_N, side='right').astype(jnp.int32)
    expert_N = jnp.minimum(expert_N, jnp.max(jnp.where(sizes_E > 0, jnp.arange(experts), 0))).astype(jnp.int32)
    start_N = (starts_E[expert_N] + (block_N - first_E[expert_N]) * rows).astype(jnp.int32)
    used = last_E[-1].astype(jnp.int32)
    count_N = jnp.where(block_N < used, jnp.clip(ends_E[expert_N] - start_N, 0, rows), 0).astype(jnp.int32)
    return Spans(expert_N, start_N, count_N, used, first_E.astype(jnp.int32))


def cut(plan: Plan, rows: int) -> Blocks:
    """Cuts a plan into blocks of `rows` rows."""
    slots, (experts,) = plan.order_S.size, plan.ends_E.shape
    starts_E = plan.ends_E - plan.sizes_E
    expert_N, start_N, count_N, used, first_E = spans(plan.ends_E, slots, rows)
    at_NM = start_N[:, None] + jnp.arange(rows, dtype=jnp.int32)
    there_NM = jnp.arange(rows) < count_N[:, None]
    slot_NM = jnp.where(there_NM, plan.order_S[jnp.minimum(at_NM, slots - 1)], 0)

    sorted_S = jnp.arange(slots, dtype=jnp.int32)
    expert_S = jnp.minimum(jnp.searchsorted(plan.ends_E, sorted_S, side='right'), experts - 1)
    place_S = first_E[expert_S] * rows + sorted_S - starts_E[expert_S]
    place_S = jnp.where(sorted_S < plan.ends_E[-1], place_S, -1).astype(jnp.int32)
    return Blocks(slot_NM, count_N, expert_N, used, plan.to_slots(place_S))
