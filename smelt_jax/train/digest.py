"""A number for every array, by which a checkpoint knows that it comes back as it was saved."""

import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}


def look_over(tree: Any) -> tuple[dict[str, str], bool]:
    """Path → digest of every array, as 8 hexadecimal digits, and whether all numbers are finite.

    A digest depends on bits, places and dtype. Any single bit that differs changes it; of other differences one in 2 ** 32 is
    missed. It is a sum over the elements, so that it is the same however the array is cut over devices.
    """
    paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(tree), strict=True)
    digests, finite = jax.device_get(_look(list(leaves)))
    names = (jax.tree_util.keystr(path, simple=True, separator='/') for path in paths)
    return {name: f'{int(digest):08x}' for name, digest in zip(names, digests, strict=True)}, bool(finite)


@jax.jit
def _look(leaves: list[jax.Array]) -> tuple[list[jax.Array], jax.Array]:
    finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])
    return [_digest(leaf) for leaf in leaves], jnp.all(finite)


def _digest(array: jax.Array) -> jax.Array:
    words = lax.bitcast_convert_type(array, _UNSIGNED[array.dtype.itemsize]).astype(jnp.uint32)
    place = jnp.uint32(1)
    for axis, size in enumerate(words.shape):
        place = place * jnp.uint32(size) + lax.broadcasted_iota(jnp.uint32, words.shape, axis)
    # Mixed, each step one to one in the word: a sum of plain words would not notice two that have changed places.
    mixed = words ^ (place * jnp.uint32(0x9E3779B1))
    for factor in (0x85EBCA6B, 0xC2B2AE35):
        mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(factor)
    return jnp.sum(mixed ^ (mixed >> 16), dtype=jnp.uint32)


def sealed(facts: dict[str, Any]) -> dict[str, Any]:
    """With a digest of its own, since the digests of a checkpoint may be damaged, too."""
    return facts | {'seal': _seal(facts)}


def opened(sealed: dict[str, Any]) -> dict[str, Any]:
    """The facts. Raises ValueError if they are not those that were sealed."""
    facts = dict(sealed)
    if facts.pop('seal', None) != _seal(facts):
        raise ValueError('its digests are not those that were written')
    return facts


def _seal(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
