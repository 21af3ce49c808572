"""A layer, and a stack of layers with its parameters stacked on a leading axis."""

from typing import NamedTuple

import flax.linen as nn
import jax

from smelt_jax.model.attention import Attention
from smelt_jax.model.cache import Slots
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.experts import Experts, RouterSums
from smelt_jax.model.norm import RMSNorm
from smelt_jax.model.rotary import Context
from smelt_jax.model.share import ALL, Share, kept


class Seen(NamedTuple):
    """What a layer gives beside its output: its router's sums, and its slots with the new tokens (None without a cache)."""

    router: RouterSums
    slots: Slots | None


class Block(nn.Module):
    """x + s · attention(norm(x)), then x + s · experts(norm(x)), with s the residual scale: 1 outside the loop."""

    config: ModelConfig
    share: Share = ALL

    @nn.compact
    def __call__(
        self, x_BTD: jax.Array, context: Context, residual_scale: float, slots: Slots | None = None
    ) -> tuple[jax.Array, Seen]:
        config = self.config
        attention = Attention(config.attention, config.init_std, config.norm_eps, self.share, name='attention')
        experts = Experts(config.experts, config.init_std, self.share, name='experts')
        update_BTD, slots = attention(RMSNorm(config.norm_eps, name='attention_norm')(x_BTD), context, slots)
        x_BTD = x_BTD + residual_scale * update_BTD
        update_BTD, sums = experts(RMSNorm(config.norm_eps, name='experts_norm')(x_BTD), context.segment_ids_BT)
        return x_BTD + residual_scale * update_BTD, Seen(sums, slots)


class Stack(nn.Module):
    """`layers` blocks under one scan: the program's size does not depend on their number.

    Parameters have a leading axis of length `layers`; so have `slots` and what is returned of each layer.
    """

    config: ModelConfig
    layers: int
    share: Share = ALL

    @nn.compact
    def __call__(
        self, x_BTD: jax.Array, context: Context, residual_scale: float, slots: Slots | None = None
    ) -> tuple[jax.Array, Seen]:
        block = nn.scan(
            _rematerialised(self.config.remat, self.share),
            variable_axes={'params': 0, 'intermediates': 0},
            split_rngs={'params': True},
            length=self.layers,
            in_axes=(nn.broadcast, nn.broadcast, 0),
        )
        return block(self.config, self.share, name='blocks')(x_BTD, context, residual_scale, slots)


def _rematerialised(remat: str, share: Share) -> type[Block]:
    if remat == 'none' and share.whole == ALL.whole:
        return Block
    policies = {'none': kept, 'layer': None, 'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable}
    # prevent_cse=False: inside a scan the two computations cannot be merged anyway.
    return nn.remat(Block, policy=policies[remat], prevent_cse=False, static_argnums=(3,))
