"""What all layers share of the rows' positions, and the rotation by it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from smelt_jax.model.config import AttentionConfig


class Context(NamedTuple):
    """What every layer of a forward pass needs to know of the rows; computed once.

    Attributes:
      segment_ids_BT: int32, 0 for padding.
      positions_BT: int32, within the document.
      cos_BTH, sin_BTH: float32, of the rotary angles.
    """

    segment_ids_BT: jax.Array
    positions_BT: jax.Array
    cos_BTH: jax.Array
    sin_BTH: jax.Array


def context_of(segment_ids_BT: jax.Array, positions_BT: jax.Array, config: AttentionConfig) -> Context:
    """Rotary tables for the positions. Halves are rotated against each other (not neighbours), as in Llama and Qwen."""
    half = config.head_dim // 2
    frequency_H = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle_BTH = positions_BT[..., None].astype(jnp.float32) * frequency_H
    angle_BTH = jnp.concatenate([angle_BTH, angle_BTH], axis=-1)
    return Context(segment_ids_BT, positions_BT, jnp.cos(angle_BTH), jnp.sin(angle_BTH))


def rotate(x_BTNH: jax.Array, context: Context) -> jax.Array:
    """Rotary position embedding (Su et al., 2021), in float32."""
    first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    turned_BTNH = jnp.concatenate([-second, first], axis=-1)
    cos, sin = context.cos_BTH[:, :, None], context.sin_BTH[:, :, None]
    return (x_BTNH * cos + turned_BTNH * sin).astype(x_BTNH.dtype)
