"""Rows of an array from each device to each, as many as there are: `ragged_all_to_all` with a gradient."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

AXIS = 'expert'


class Moves(NamedTuple):
    """What one device sends and receives, int32 [P], an entry a device of the axis.

    Attributes:
      send_from, send: where in the own array the rows for each device begin, and how many they are.
      send_to: where they begin in that device's array.
      receive: rows that come from each device.
      receive_at: where they begin in the own new array.
      receive_from: where they began in that device's array.
    """

    send_from: jax.Array
    send: jax.Array
    send_to: jax.Array
    receive: jax.Array
    receive_at: jax.Array
    receive_from: jax.Array

    def reversed(self) -> 'Moves':
        """The way back."""
        return Moves(self.receive_at, self.receive, self.receive_from, self.send, self.send_from, self.send_to)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def send(rows_SD: jax.Array, moves: Moves, room: int, op: Callable) -> jax.Array:
    """received_RD [room, D]; places that nothing is sent to are 0. The gradient goes the way back."""
    empty_RD = jnp.zeros((room, rows_SD.shape[1]), rows_SD.dtype)
    sizes = (moves.send_from, moves.send, moves.send_to, moves.receive)
    return op(rows_SD, empty_RD, *(array.astype(jnp.int32) for array in sizes), axis_name=AXIS)


def _forward(rows_SD, moves, room, op):
    return send(rows_SD, moves, room, op), (moves, rows_SD.shape[0])


def _backward(room, op, residuals, dreceived_RD):
    moves, slots = residuals
    return send(dreceived_RD, moves.reversed(), slots, op), None


send.defvjp(_forward, _backward)


def emulated(
    operand: jax.Array,
    output: jax.Array,
    input_offsets: jax.Array,
    send_sizes: jax.Array,
    output_offsets: jax.Array,
    recv_sizes: jax.Array,
    *,
    axis_name: str,
) -> jax.Array:
    """`jax.lax.ragged_all_to_all` by all-gather, for backends that have none: the same result, at P times the traffic."""
    del recv_sizes  # follows from what the others send
    me = lax.axis_index(axis_name)
    operand_PSD = lax.all_gather(operand, axis_name)
    begin_P, size_P, to_P = (lax.all_gather(a, axis_name)[:, me] for a in (input_offsets, send_sizes, output_offsets))
    at_R = jnp.arange(output.shape[0])
    inside_RP = (at_R[:, None] >= to_P) & (at_R[:, None] < to_P + size_P)
    sender_R = jnp.argmax(inside_RP, axis=1)
    row_R = at_R - to_P[sender_R] + begin_P[sender_R]
    found_RD = operand_PSD[sender_R, jnp.clip(row_R, 0, operand.shape[0] - 1)]
    return jnp.where(jnp.any(inside_RP, axis=1)[:, None], found_RD, output)
