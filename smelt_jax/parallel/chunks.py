"""A sparse FFN that works through its tokens some at a time, so that buffers are for those alone."""

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels import ExpertWeights
from smelt_jax.model.share import ExpertFfn


def chunks_of(tokens: int, limit: int) -> int:
    """The fewest equal chunks of at most `limit` tokens."""
    return next(count for count in range(-(-tokens // limit), tokens + 1) if tokens % count == 0)


def in_chunks(ffn: ExpertFfn, limit: int) -> ExpertFfn:
    """`ffn`, of at most `limit` tokens at a time. Nothing but the arguments is kept for the backward pass, which runs `ffn`
    again, chunk by chunk; gradients of the weights add up in float32."""

    @jax.custom_vjp
    def chunked(
        x_TD: jax.Array, weights_TK: jax.Array, experts_TK: jax.Array, weights: ExpertWeights
    ) -> tuple[jax.Array, jax.Array]:
        y_CSD, dropped_C = lax.map(
            lambda chunk: ffn(chunk[0], chunk[1], chunk[2], weights), _cut((x_TD, weights_TK, experts_TK), limit)
        )
        return y_CSD.reshape(x_TD.shape), jnp.sum(dropped_C)

    def forward(*arguments):
        return chunked(*arguments), arguments

    def backward(arguments, cotangents):
        *tokens, weights = arguments
        dy_TD, _ = cotangents  # what was dropped is counted, and has no gradient

        def one(sums, chunk):
            x_SD, weights_SK, experts_SK, dy_SD = chunk
            _, pull = jax.vjp(lambda x, w, weights: ffn(x, w, experts_SK, weights), x_SD, weights_SK, weights)
            dx_SD, dweights_SK, dweights = pull((dy_SD, jnp.zeros((), jnp.float32)))
            sums = jax.tree.map(lambda total, part: total + part.astype(jnp.float32), sums, dweights)
            return sums, (dx_SD, dweights_SK)

        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), weights)
        sums, (dx, dw) = lax.scan(one, zeros, _cut((*tokens, dy_TD), limit))
        dweights = jax.tree.map(lambda total, leaf: total.astype(leaf.dtype), sums, weights)
        return dx.reshape(tokens[0].shape), dw.reshape(tokens[1].shape), None, dweights

    chunked.defvjp(forward, backward)
    return chunked


def _cut(arrays, limit):
    count = chunks_of(arrays[0].shape[0], limit)
    return jax.tree.map(lambda array: array.reshape(count, -1, *array.shape[1:]), arrays)
