"""Grouped-query attention over packed documents, with rotary positions."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from smelt_jax.model.attend import attend
from smelt_jax.model.config import AttentionConfig
from smelt_jax.model.norm import RMSNorm


class Context(NamedTuple):
    """What every layer of a forward pass needs to know of the rows; computed once.

    Attributes:
      segment_ids_BT: int32, 0 for padding.
      cos_BTH, sin_BTH: float32, of the rotary angles.
    """

    segment_ids_BT: jax.Array
    cos_BTH: jax.Array
    sin_BTH: jax.Array


def context_of(segment_ids_BT: jax.Array, positions_BT: jax.Array, config: AttentionConfig) -> Context:
    """Rotary tables for the positions. Halves are rotated against each other (not neighbours), as in Llama and Qwen."""
    half = config.head_dim // 2
    frequency_H = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle_BTH = positions_BT[..., None].astype(jnp.float32) * frequency_H
    angle_BTH = jnp.concatenate([angle_BTH, angle_BTH], axis=-1)
    return Context(segment_ids_BT, jnp.cos(angle_BTH), jnp.sin(angle_BTH))


class Attention(nn.Module):
    """x_BTD → x_BTD: projections without biases, QK-norm, rotation, attention within each document, output projection."""

    config: AttentionConfig
    init_std: float
    norm_eps: float

    @nn.compact
    def __call__(self, x_BTD: jax.Array, context: Context) -> jax.Array:
        config, width = self.config, x_BTD.shape[-1]
        head_dim = config.head_dim
        q_BTNH = self._project('q', x_BTD, config.heads)
        k_BTGH = self._project('k', x_BTD, config.kv_heads)
        v_BTGH = self._project('v', x_BTD, config.kv_heads)
        if config.qk_norm:
            q_BTNH = RMSNorm(self.norm_eps, name='q_norm')(q_BTNH)
            k_BTGH = RMSNorm(self.norm_eps, name='k_norm')(k_BTGH)
        q_BTNH, k_BTGH = rotate(q_BTNH, context), rotate(k_BTGH, context)
        out_BTNH = attend(q_BTNH, k_BTGH, v_BTGH, context.segment_ids_BT)
        out_shape = (config.heads * head_dim, width)
        o_ND = self.param('o', nn.initializers.normal(self.init_std), out_shape, jnp.float32)
        return out_BTNH.reshape(*x_BTD.shape[:2], -1) @ o_ND.astype(x_BTD.dtype)

    def _project(self, name: str, x_BTD: jax.Array, heads: int) -> jax.Array:
        shape = (x_BTD.shape[-1], heads * self.config.head_dim)
        kernel = self.param(name, nn.initializers.normal(self.init_std), shape, jnp.float32)
        return (x_BTD @ kernel.astype(x_BTD.dtype)).reshape(*x_BTD.shape[:2], heads, self.config.head_dim)


def rotate(x_BTNH: jax.Array, context: Context) -> jax.Array:
    """Rotary position embedding (Su et al., 2021), in float32."""
    first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    turned_BTNH = jnp.concatenate([-second, first], axis=-1)
    cos, sin = context.cos_BTH[:, :, None], context.sin_BTH[:, :, None]
    return (x_BTNH * cos + turned_BTNH * sin).astype(x_BTNH.dtype)
