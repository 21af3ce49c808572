"""Tokens to the devices that have their experts, and back. For use inside `shard_map`; the axis is `expert`.

`gather` shows every token of a group of devices to all of it; each adds up what its experts make of them, and the sums are
scattered. `ragged` sends each choice's row to the one device that has the expert. Dropless both, but for a `ragged` buffer
that is bounded on purpose.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels import ExpertWeights, expert_ffn, route
from smelt_jax.model.share import ExpertFfn
from smelt_jax.parallel.rows import AXIS, Moves, send


def by_gather(experts: Callable = expert_ffn) -> ExpertFfn:
    """`model.share.ExpertFfn`: all-gather of tokens and choices, own `experts`, reduce-scatter of the results in float32."""
    return functools.partial(_by_gather, experts)


def _by_gather(
    experts: Callable, x_TD: jax.Array, weights_TK: jax.Array, experts_TK: jax.Array, weights: ExpertWeights
) -> tuple[jax.Array, jax.Array]:
    own = weights.gate_EDF.shape[0]
    first = lax.axis_index(AXIS) * own
    x_UD, weights_UK, experts_UK = (lax.all_gather(array, AXIS, tiled=True) for array in (x_TD, weights_TK, experts_TK))
    mine_UK = jnp.where((experts_UK >= first) & (experts_UK < first + own), experts_UK - first, own)
    y_UD = experts(x_UD, weights_UK, mine_UK, weights)
    y_TD = lax.psum_scatter(y_UD.astype(jnp.float32), AXIS, tiled=True)
    return y_TD.astype(x_TD.dtype), jnp.zeros((), jnp.float32)


class _Plan(NamedTuple):
    """Who sends what, from every device's number of choices for every expert.

    Attributes:
      there: rows from here to their experts.
      expert_R: own expert of each received row; the number of own experts where there is no row.
      kept_P: rows to each device that find room there.
      first_P: where they begin among the sorted rows here.
    """

    there: Moves
    expert_R: jax.Array
    kept_P: jax.Array
    first_P: jax.Array


def _plan(counts_E: jax.Array, room: int) -> _Plan:
    shards, me = lax.axis_size(AXIS), lax.axis_index(AXIS)
    counts_SPE = lax.all_gather(counts_E, AXIS).reshape(shards, shards, -1)  # sender, receiver, receiver's expert
    sizes_SP = jnp.sum(counts_SPE, axis=2)
    firsts_SP = jnp.cumsum(sizes_SP, axis=1) - sizes_SP  # in the sender's sorted rows
    places_SP = jnp.cumsum(sizes_SP, axis=0) - sizes_SP  # in the receiver's buffer
    kept_SP = jnp.clip(room - places_SP, 0, sizes_SP)
    there = Moves(firsts_SP[me], kept_SP[me], places_SP[me], kept_SP[:, me], places_SP[:, me], firsts_SP[:, me])
    # A received row's expert: in the order of senders, and of experts within one.
    ends_SE = places_SP[:, me, None] + jnp.minimum(jnp.cumsum(counts_SPE[:, me], axis=1), kept_SP[:, me, None])
    own = counts_SPE.shape[2]
    at_R = jnp.searchsorted(ends_SE.reshape(-1), jnp.arange(room, dtype=ends_SE.dtype), side='right')
    expert_R = jnp.where(at_R < ends_SE.size, at_R % own, own)
    return _Plan(there, expert_R.astype(jnp.int32), kept_SP[me], firsts_SP[me])


def by_sending(op: Callable, buffer: float, experts: Callable = expert_ffn) -> ExpertFfn:
    """`model.share.ExpertFfn`: rows are sent to their experts' devices, and the results back.

    Args:
      op: `jax.lax.ragged_all_to_all`, or `rows.emulated` where there is none.
      buffer: rows that a device has room for, as a multiple of the choices it makes; 0 for the worst case.
      experts: what is done there, with a signature like `expert_ffn`.
    """

    def ffn(
        x_TD: jax.Array, weights_TK: jax.Array, experts_TK: jax.Array, weights: ExpertWeights
    ) -> tuple[jax.Array, jax.Array]:
        (tokens, choices), own = experts_TK.shape, weights.gate_EDF.shape[0]
        slots, shards = tokens * choices, lax.axis_size(AXIS)
        order = route(experts_TK, own * shards)
        room = slots * shards if not buffer else min(slots * shards, int(-(-slots * buffer // 1)))
        plan = _plan(order.sizes_E, room)
        # Of a token without an expert nothing is read, not even NaN: its row is not among those that are sent.
        sorted_SD = x_TD[order.order_S // choices]
        received_RD = send(sorted_SD, plan.there, room, op)
        ones_R1 = jnp.ones((room, 1), jnp.float32)
        made_RD = experts(received_RD, ones_R1, plan.expert_R[:, None], weights)
        back_SD = send(made_RD, plan.there.reversed(), slots, op)
        routed_S1 = (jnp.arange(slots) < order.ends_E[-1])[:, None]
        weighted_SD = back_SD.astype(jnp.float32) * weights_TK.reshape(-1)[order.order_S][:, None]
        y_TD = jnp.zeros(x_TD.shape, jnp.float32)
        y_TD = y_TD.at[order.order_S // choices].add(jnp.where(routed_S1, weighted_SD, 0))
        dropped = order.ends_E[-1] - jnp.sum(plan.kept_P)
        return y_TD.astype(x_TD.dtype), dropped.astype(jnp.float32)

    return ffn
