"""Grouped-query attention over packed documents, with rotary positions."""

import flax.linen as nn
import jax

from smelt_jax.model.cache import Slots, attend_slots, put
from smelt_jax.model.config import AttentionConfig
from smelt_jax.model.norm import RMSNorm
from smelt_jax.model.rotary import Context, rotate
from smelt_jax.model.share import ALL, Share


class Attention(nn.Module):
    """x_BTD → x_BTD: projections without biases, QK-norm, rotation, attention within each document, output projection.

    With `slots`, a row is the next tokens of one document whose earlier ones are in the slots; they are returned with the
    new ones in.
    """

    config: AttentionConfig
    init_std: float
    norm_eps: float
    share: Share = ALL

    @nn.compact
    def __call__(self, x_BTD: jax.Array, context: Context, slots: Slots | None) -> tuple[jax.Array, Slots | None]:
        config, width = self.config, x_BTD.shape[-1]
        head_dim = config.head_dim
        q_BTNH = self._project('q', x_BTD, config.heads)
        k_BTGH = self._project('k', x_BTD, config.kv_heads)
        v_BTGH = self._project('v', x_BTD, config.kv_heads)
        if config.qk_norm:
            q_BTNH = RMSNorm(self.norm_eps, name='q_norm')(q_BTNH)
            k_BTGH = RMSNorm(self.norm_eps, name='k_norm')(k_BTGH)
        q_BTNH, k_BTGH = rotate(q_BTNH, context), rotate(k_BTGH, context)
        if slots is None:
            out_BTNH = self.share.attend(q_BTNH, k_BTGH, v_BTGH, context.segment_ids_BT)
        else:
            slots = put(slots, k_BTGH, v_BTGH, context)
            out_BTNH = attend_slots(q_BTNH, slots, context.positions_BT)
        out_shape = (config.heads * head_dim, width)
        o_ND = self.share.weight(self, 'o', nn.initializers.normal(self.init_std), out_shape, x_BTD)
        return out_BTNH.reshape(*x_BTD.shape[:2], -1) @ o_ND.astype(x_BTD.dtype), slots

    def _project(self, name: str, x_BTD: jax.Array, heads: int) -> jax.Array:
        shape = (x_BTD.shape[-1], heads * self.config.head_dim)
        kernel = self.share.weight(self, name, nn.initializers.normal(self.init_std), shape, x_BTD)
        return (x_BTD @ kernel.astype(x_BTD.dtype)).reshape(*x_BTD.shape[:2], heads, self.config.head_dim)
