"""The network of both arms: embedding, prelude, loop, coda, norm, head."""

from collections.abc import Iterator
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from smelt_jax.model.block import Stack
from smelt_jax.model.cache import Cache
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.experts import RouterSums
from smelt_jax.model.norm import RMSNorm
from smelt_jax.model.rotary import context_of
from smelt_jax.model.share import ALL, Share


class Output(NamedTuple):
    """Attributes:
    hidden_BTD: after the final norm; `hidden @ params['head']` are the logits.
    router: `RouterSums` of every executed layer in order: leading axis X = prelude + visits · loop + coda.
      cache: with the new tokens in; None if none was given.
    """

    hidden_BTD: jax.Array
    router: RouterSums
    cache: Cache | None


class Transformer(nn.Module):
    """A decoder-only Transformer whose middle layers are executed `visits` times with the same weights (SMELT, §recipe).

    At one visit it computes what Qwen3-MoE computes. Parameters: `embed` [V, D], `prelude`, `recur`, `coda` (each with
    `blocks`, stacked over its physical layers; an empty one is absent), `final_norm`, `head` [D, V].

    `share` is what a device of a mesh has of the parameters; embedding, head and final norm are given whole.
    """

    config: ModelConfig
    share: Share = ALL

    @nn.compact
    def __call__(
        self,
        tokens_BT: jax.Array,
        segment_ids_BT: jax.Array,
        positions_BT: jax.Array,
        visits: int | None = None,
        cache: Cache | None = None,
    ) -> Output:
        """Runs the network over packed rows; with a cache, over the next tokens of one document a row.

        Args:
          tokens_BT, segment_ids_BT, positions_BT: int32, see `Batch`.
          visits: overrides the config's. The residual scale follows: visits ** -residual_exponent.
          cache: what `empty_cache` or an earlier call gave. Segment ids are then 1, or 0 for padding, and positions go on
            where the row's earlier tokens ended.
        """
        config = self.config
        loop = config.loop
        visits = loop.visits if visits is None else visits
        if visits < 1 or (visits > 1 and loop.length == 0):
            raise ValueError(
                f'{visits=} with loop length {loop.length}: needs at least one visit, and a loop to repeat'
            )
        if cache and cache.visits not in (None, visits):
            raise ValueError(
                f'{visits=} with a cache for {cache.visits}: make one with empty_cache(…, visits={visits})'
            )
        init = nn.initializers.normal(config.init_std)
        embed_VD = self.param('embed', init, (config.vocab, config.width), jnp.float32)
        self.param('head', init, (config.width, config.vocab), jnp.float32)
        context = context_of(segment_ids_BT, positions_BT, config.attention)
        # Padding enters as zeros and stays zero: what its tokens are, or their embeddings, reaches nothing.
        x_BTD = jnp.where(segment_ids_BT[..., None] > 0, embed_VD[tokens_BT], 0).astype(config.dtype)
        given, kept, routers = cache or Cache(None, None, None), {}, []
        for name, stack, scale in self._stacks(visits):
            x_BTD, (router, kept[name]) = stack(x_BTD, context, scale, getattr(given, name))
            if name == 'recur':
                router = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), router)
            routers.append(router)
        hidden_BTD = RMSNorm(config.norm_eps, name='final_norm')(x_BTD)
        router = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *routers)
        return Output(hidden_BTD, router, given._replace(**kept) if cache else None)

    def _stacks(self, visits: int) -> Iterator[tuple[str, nn.Module, float]]:
        """Name, module and residual scale of each stack that has layers, in their order."""
        config, loop = self.config, self.config.loop
        if loop.start:
            yield 'prelude', Stack(config, loop.start, self.share, name='prelude'), 1.0
        if loop.length:
            yield 'recur', self._loop(visits), float(visits) ** -loop.residual_exponent
        if config.coda_layers:
            yield 'coda', Stack(config, config.coda_layers, self.share, name='coda'), 1.0

    def _loop(self, visits: int):
        """The loop: one stack, scanned over visits with its parameters broadcast."""
        stack = nn.scan(
            Stack,
            variable_broadcast='params',
            variable_axes={'intermediates': 0},
            split_rngs={'params': False},
            length=visits,
            in_axes=(nn.broadcast, nn.broadcast, 0),
        )
        return stack(self.config, self.config.loop.length, self.share, name='recur')


def logits_of(params: dict, hidden_BTD: jax.Array) -> jax.Array:
    """float32 logits_BTV. For a few positions or a small vocabulary; training goes through the chunked loss."""
    head_DV = params['head'].astype(hidden_BTD.dtype)
    return jnp.einsum('...d,dv->...v', hidden_BTD, head_DV, preferred_element_type=jnp.float32)
