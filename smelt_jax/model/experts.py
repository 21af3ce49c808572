"""The router and the sparse expert FFN."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from pallas_kernels.expert_ffn import ExpertWeights
from smelt_jax.model.config import ExpertsConfig
from smelt_jax.model.share import ALL, Share


class RouterSums(NamedTuple):
    """Sums over the real tokens of one router call. Means are taken once, in the loss, so that parts can be added first.

    Attributes:
      counts_E: float32, choices of each expert; they sum to K · tokens.
      probs_E: float32, sum of the router's probabilities; they sum to the number of tokens.
      z: float32 scalar, sum of squared log-partition functions.
      dropped: float32 scalar, choices that found no room; 0 but for a bounded exchange between devices.
    """

    counts_E: jax.Array
    probs_E: jax.Array
    z: jax.Array
    dropped: jax.Array


def choose(logits_TE: jax.Array, per_token: int, normalize: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Softmax over all experts, then the K largest.

    Returns:
      weights_TK, experts_TK, probs_TE. Choices come largest first, ties go to the lower expert; with `normalize` rows of
      weights_TK sum to 1.
    """
    probs_TE = jax.nn.softmax(logits_TE, axis=-1)
    weights_TK, experts_TK = jax.lax.top_k(probs_TE, per_token)
    if normalize:
        weights_TK = weights_TK / jnp.sum(weights_TK, axis=-1, keepdims=True)
    return weights_TK, experts_TK, probs_TE


class Experts(nn.Module):
    """x_BTD → x_BTD and `RouterSums`: top-k routing to dropless SwiGLU experts (as in Qwen3-MoE).

    Padding (segment 0) is routed nowhere: its output is 0 and no sum counts it.
    """

    config: ExpertsConfig
    init_std: float
    share: Share = ALL

    @nn.compact
    def __call__(self, x_BTD: jax.Array, segment_ids_BT: jax.Array) -> tuple[jax.Array, RouterSums]:
        config, width = self.config, x_BTD.shape[-1]
        init = nn.initializers.normal(self.init_std)
        count, share = config.count, self.share
        router_DE = share.weight(self, 'router', init, (width, count), x_BTD)
        weights = ExpertWeights(
            share.weight(self, 'gate', init, (count, width, config.width), x_BTD),
            share.weight(self, 'up', init, (count, width, config.width), x_BTD),
            share.weight(self, 'down', init, (count, config.width, width), x_BTD),
        )
        x_TD = x_BTD.reshape(-1, width)
        real_T = segment_ids_BT.reshape(-1) > 0
        # float32: bfloat16 probabilities tie and reorder experts.
        logits_TE = jnp.dot(x_TD.astype(jnp.float32), router_DE, precision=jax.lax.Precision.HIGHEST)
        weights_TK, experts_TK, probs_TE = choose(logits_TE, config.per_token, config.normalize)
        experts_TK = jnp.where(real_T[:, None], experts_TK, config.count)
        # The latest alone, not a tuple that grows when a caller hands its intermediates back in.
        self.sow('intermediates', 'experts', experts_TK, init_fn=lambda: None, reduce_fn=lambda _, latest: latest)
        weights = ExpertWeights(*(weight.astype(x_TD.dtype) for weight in weights))
        y_TD, dropped = share.expert_ffn(x_TD, weights_TK, experts_TK, weights)
        return y_TD.reshape(x_BTD.shape), _sums(logits_TE, probs_TE, experts_TK, real_T, dropped)


def _sums(logits_TE, probs_TE, experts_TK, real_T, dropped) -> RouterSums:
    real_T1 = real_T[:, None]
    log_partition_T = jax.nn.logsumexp(logits_TE, axis=-1)
    # A token's choices are distinct: its row of the one-hot sum is 0 or 1.
    chosen_TE = jnp.any(experts_TK[:, :, None] == jnp.arange(logits_TE.shape[1]), axis=1)
    return RouterSums(
        counts_E=jnp.sum(chosen_TE, axis=0, dtype=jnp.float32),
        probs_E=jnp.sum(jnp.where(real_T1, probs_TE, 0), axis=0),
        z=jnp.sum(jnp.where(real_T, jnp.square(log_partition_T), 0)),
        dropped=dropped,
    )
