"""Digests of arrays: any bit, any place, any dtype; the same on any mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from smelt_jax.train.digest import look_over


def digest(array: object) -> str:
    return look_over({'a': jnp.asarray(array)})[0]['a']


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16, jnp.int32, jnp.int8])
@pytest.mark.parametrize('shape', [(), (1,), (7,), (3, 5), (2, 3, 4)])
def test_any_bit_counts(dtype: jnp.dtype, shape: tuple[int, ...]) -> None:
    array = np.asarray(jax.random.normal(jax.random.key(0), shape) * 9).astype(dtype)
    before, seen = digest(array), set()
    for byte in range(array.nbytes):
        for bit in range(8):
            data = bytearray(array.tobytes())
            data[byte] ^= 1 << bit
            seen.add(digest(np.frombuffer(bytes(data), dtype).reshape(shape)))
    assert before not in seen
    assert len(seen) == 8 * array.nbytes  # and each in its own way


def test_places_and_shapes_count() -> None:
    array = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    others = [array[::-1], array[:, ::-1], np.roll(array, 1), array.reshape(4, 3).T]
    assert len({digest(array), *map(digest, others)}) == 5
    assert digest(np.zeros(3, np.float32)) != digest(np.zeros(4, np.float32))
    assert digest(np.float32(0.0)) != digest(np.float32(-0.0))


def test_a_mesh_changes_nothing() -> None:
    mesh = jax.make_mesh((2, 4), ('x', 'y'))
    array = jax.random.normal(jax.random.key(1), (8, 16))
    for spec in (P('x', 'y'), P(None, 'y'), P('y', 'x'), P()):
        assert digest(jax.device_put(array, NamedSharding(mesh, spec))) == digest(array)


@pytest.mark.parametrize('value', [jnp.nan, jnp.inf, -jnp.inf])
def test_what_is_not_finite_is_seen(value: float) -> None:
    tree = {'a': jnp.ones(5), 'step': jnp.int32(3), 'b': {'c': jnp.ones((2, 3))}}
    assert look_over(tree)[1]
    assert not look_over(tree | {'b': {'c': jnp.ones((2, 3)).at[1, 2].set(value)}})[1]
    assert list(look_over(tree)[0]) == ['a', 'b/c', 'step']
