"""A sparse FFN that works through its tokens some at a time, so that buffers are for those alone."""

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels import ExpertWeights
from smelt_jax.model.share import ExpertFfn

NOBODY = 2**30  # a choice that no model has an expert for


def chunk_of(tokens: int, limit: int) -> int:
    """Tokens of each of the fewest chunks of about the same size, at most `limit`."""
    return -(-tokens // -(-tokens // limit))


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
        return _joined(y_CSD, x_TD.shape[0]), jnp.sum(dropped_C)

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
        return _joined(dx, tokens[0].shape[0]), _joined(dw, tokens[0].shape[0]), None, dweights

    chunked.defvjp(forward, backward)
    return chunked


def _joined(chunks: jax.Array, tokens: int) -> jax.Array:
    return chunks.reshape(-1, *chunks.shape[2:])[:tokens]


def _cut(arrays, limit):
    """[T, …] → [chunks, tokens of one, …], the last one filled up with zeros; of choices with such as use no expert."""
    tokens = arrays[0].shape[0]
    size = chunk_of(tokens, limit)

    def one(array):
        fill = NOBODY if jnp.issubdtype(array.dtype, jnp.integer) else 0
        padding = [(0, -tokens % size)] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, padding, constant_values=fill).reshape(-1, size, *array.shape[1:])

    return jax.tree.map(one, arrays)
