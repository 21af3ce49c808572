"""The network written out plainly, sharing no code with smelt_jax: one row, one layer, one expert at a time.

Every formula stands here once more, as a text book has it; nothing is fast.
"""

from typing import Any

import jax
import jax.numpy as jnp

from smelt_jax.model.config import ModelConfig


def norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * scale


def rotate(x_TNH: jax.Array, positions_T: jax.Array, theta: float) -> jax.Array:
    """Component i and i + H/2 as a complex number, turned by position · theta^(−2i/H)."""
    half = x_TNH.shape[-1] // 2
    angles = positions_T[:, None, None] * theta ** (-2 * jnp.arange(half) / (2 * half))
    turned = (x_TNH[..., :half] + 1j * x_TNH[..., half:]) * jnp.exp(1j * angles)
    return jnp.concatenate([turned.real, turned.imag], axis=-1)


def attention(q_TNH: jax.Array, k_TGH: jax.Array, v_TGH: jax.Array, segments_T: jax.Array) -> jax.Array:
    """Scores over the whole row, softmax over what may be seen. Padding gets 0."""
    shared = q_TNH.shape[1] // k_TGH.shape[1]
    k_TNH, v_TNH = jnp.repeat(k_TGH, shared, axis=1), jnp.repeat(v_TGH, shared, axis=1)
    index = jnp.arange(len(segments_T))
    seen_TS = (index[:, None] >= index) & (segments_T[:, None] == segments_T)
    scores_NTS = jnp.einsum('tnh,snh->nts', q_TNH, k_TNH) / q_TNH.shape[-1] ** 0.5
    weights_NTS = jax.nn.softmax(jnp.where(seen_TS, scores_NTS, -jnp.inf))
    out_TNH = jnp.einsum('nts,snh->tnh', weights_NTS, v_TNH)
    return jnp.where((segments_T > 0)[:, None, None], out_TNH, 0)


def experts(
    x_TD: jax.Array, weights_TK: jax.Array, experts_TK: jax.Array, gate: jax.Array, up: jax.Array, down: jax.Array
) -> jax.Array:
    """Every expert on every token, one after the other, weighted by what the token gives it."""
    y_TD = jnp.zeros(x_TD.shape, jnp.float32)
    for expert in range(gate.shape[0]):
        weight_T = jnp.sum(jnp.where(experts_TK == expert, weights_TK, 0), axis=1)
        hidden_TF = x_TD @ gate[expert]
        hidden_TF = hidden_TF / (1 + jnp.exp(-hidden_TF)) * (x_TD @ up[expert])
        y_TD += weight_T[:, None] * (hidden_TF @ down[expert])
    return y_TD


def layer(
    params: dict, x_TD: jax.Array, segments_T: jax.Array, positions_T: jax.Array, scale: float, config: ModelConfig
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    """One layer on one row. Returns x, and (choices of each expert, sum of probabilities, sum of squared log-partition)."""
    length, eps = len(x_TD), config.norm_eps
    real_T = segments_T > 0
    weights, settings = params['attention'], config.attention
    h_TD = norm(x_TD, params['attention_norm']['scale'], eps)
    q, k, v = ((h_TD @ weights[name]).reshape(length, -1, settings.head_dim) for name in 'qkv')
    if settings.qk_norm:
        q, k = norm(q, weights['q_norm']['scale'], eps), norm(k, weights['k_norm']['scale'], eps)
    q, k = (rotate(part, positions_T, settings.rope_theta) for part in (q, k))
    x_TD = x_TD + scale * (attention(q, k, v, segments_T).reshape(length, -1) @ weights['o'])

    weights = params['experts']
    h_TD = norm(x_TD, params['experts_norm']['scale'], eps)
    logits_TE = h_TD @ weights['router']
    probs_TE = jnp.exp(logits_TE) / jnp.sum(jnp.exp(logits_TE), axis=-1, keepdims=True)
    experts_TK = jnp.argsort(-probs_TE, axis=-1, stable=True)[:, : config.experts.per_token]
    weights_TK = jnp.take_along_axis(probs_TE, experts_TK, axis=-1)
    if config.experts.normalize:
        weights_TK = weights_TK / jnp.sum(weights_TK, axis=-1, keepdims=True)
    weights_TK = jnp.where(real_T[:, None], weights_TK, 0)
    y_TD = experts(h_TD, weights_TK, experts_TK, weights['gate'], weights['up'], weights['down'])
    chosen_TKE = (experts_TK[..., None] == jnp.arange(config.experts.count)) & real_T[:, None, None]
    sums = (
        jnp.sum(chosen_TKE, axis=(0, 1), dtype=jnp.float32),
        real_T @ probs_TE,
        real_T @ jnp.log(jnp.sum(jnp.exp(logits_TE), axis=-1)) ** 2,
    )
    return x_TD + scale * y_TD, sums


def executed(params: dict, config: ModelConfig) -> list[tuple[dict, float]]:
    """(parameters, residual scale) of every executed layer in order."""

    def unstack(name: str, count: int) -> list[dict]:
        return [jax.tree.map(lambda leaf, i=i: leaf[i], params[name]['blocks']) for i in range(count)]

    loop = config.loop
    layers: list[tuple[Any, float]] = [(part, 1.0) for part in unstack('prelude', loop.start)]
    layers += [(part, loop.visits**-loop.residual_exponent) for part in unstack('recur', loop.length)] * loop.visits
    return layers + [(part, 1.0) for part in unstack('coda', config.coda_layers)]
