"""Rows as 32-bit words: single rows of a TPU's memory can be copied only in that width.

A row of 16-bit numbers has its first part in the low halves of its words and the rest in the high halves, so that both come
apart without a shuffle.
"""

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels.dtypes import check_dtype

LANES = 128
_HIGH = 0xFFFF0000


def word_count(width: int, dtype: jnp.dtype) -> int:
    """Words of a row of `width` numbers."""
    if jnp.dtype(dtype).itemsize == 4:
        return width
    return -(-width // (2 * LANES)) * LANES


def to_words(x_TD: jax.Array) -> jax.Array:
    """float32 as it is, bfloat16 as uint32 [T, W]. In kernels and outside."""
    check_dtype('TPU', x_TD.dtype)
    if x_TD.dtype == jnp.float32:
        return x_TD
    width = x_TD.shape[1]
    words = word_count(width, x_TD.dtype)
    bits = lax.bitcast_convert_type(x_TD.astype(jnp.float32), jnp.uint32)
    low, high = _padded(bits[:, : min(words, width)], words), _padded(bits[:, words:], words)
    return (low >> 16) | (high & jnp.uint32(_HIGH))


def from_words(words_TW: jax.Array, width: int) -> jax.Array:
    """The rows again, of `width` numbers."""
    if words_TW.dtype == jnp.float32:
        return words_TW
    words = words_TW.shape[1]
    low = _numbers(words_TW << 16)[:, : min(words, width)]
    if width <= words:
        return low
    return jnp.concatenate([low, _numbers(words_TW & jnp.uint32(_HIGH))[:, : width - words]], axis=1)


def _numbers(bits: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(bits, jnp.float32).astype(jnp.bfloat16)


def _padded(bits: jax.Array, words: int) -> jax.Array:
    rows, there = bits.shape
    if there == 0:
        return jnp.zeros((rows, words), bits.dtype)
    return bits if there == words else jnp.concatenate([bits, jnp.zeros((rows, words - there), bits.dtype)], axis=1)
