"""The network of both arms: embedding, prelude, loop, coda, norm, head."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from smelt_jax.model.attention import context_of
from smelt_jax.model.block import Stack
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.experts import RouterSums
from smelt_jax.model.norm import RMSNorm


class Output(NamedTuple):
    """Attributes:
    hidden_BTD: after the final norm; `hidden @ params['head']` are the logits.
    router: `RouterSums` of every executed layer in order: leading axis X = prelude + visits · loop + coda.
    """

    hidden_BTD: jax.Array
    router: RouterSums


class Transformer(nn.Module):
    """A decoder-only Transformer whose middle layers are executed `visits` times with the same weights (SMELT, §recipe).

    At one visit it computes what Qwen3-MoE computes. Parameters: `embed` [V, D], `prelude`, `recur`, `coda` (each with
    `blocks`, stacked over its physical layers; an empty one is absent), `final_norm`, `head` [D, V].
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        tokens_BT: jax.Array,
        segment_ids_BT: jax.Array,
        positions_BT: jax.Array,
        visits: int | None = None,
    ) -> Output:
        """Runs the network over packed rows.

        Args:
          tokens_BT, segment_ids_BT, positions_BT: int32, see `Batch`.
          visits: overrides the config's. The residual scale follows: visits ** -residual_exponent.
        """
        config = self.config
        loop = config.loop
        visits = loop.visits if visits is None else visits
        if visits < 1 or (visits > 1 and loop.length == 0):
            raise ValueError(
                f'{visits=} with loop length {loop.length}: needs at least one visit, and a loop to repeat'
            )
        init = nn.initializers.normal(config.init_std)
        embed_VD = self.param('embed', init, (config.vocab, config.width), jnp.float32)
        self.param('head', init, (config.width, config.vocab), jnp.float32)
        context = context_of(segment_ids_BT, positions_BT, config.attention)
        # Padding enters as zeros and stays zero: what its tokens are, or their embeddings, reaches nothing.
        x_BTD = jnp.where(segment_ids_BT[..., None] > 0, embed_VD[tokens_BT], 0).astype(config.dtype)
        sums = []
        if loop.start:
            x_BTD, prelude_sums = Stack(config, loop.start, name='prelude')(x_BTD, context, 1.0)
            sums.append(prelude_sums)
        if loop.length:
            scale = float(visits) ** -loop.residual_exponent
            x_BTD, visit_sums = self._loop(visits)(x_BTD, context, scale)
            sums.append(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), visit_sums))
        if config.coda_layers:
            x_BTD, coda_sums = Stack(config, config.coda_layers, name='coda')(x_BTD, context, 1.0)
            sums.append(coda_sums)
        hidden_BTD = RMSNorm(config.norm_eps, name='final_norm')(x_BTD)
        return Output(hidden_BTD, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *sums))

    def _loop(self, visits: int):
        """The loop: one stack, scanned over visits with its parameters broadcast."""
        stack = nn.scan(
            Stack,
            variable_broadcast='params',
            variable_axes={'intermediates': 0},
            split_rngs={'params': False},
            length=visits,
            in_axes=nn.broadcast,
        )
        return stack(self.config, self.config.loop.length, name='recur')


def logits_of(params: dict, hidden_BTD: jax.Array) -> jax.Array:
    """float32 logits_BTV. For a few positions or a small vocabulary; training goes through the chunked loss."""
    head_DV = params['head'].astype(hidden_BTD.dtype)
    return jnp.einsum('...d,dv->...v', hidden_BTD, head_DV, preferred_element_type=jnp.float32)
