"""Small models, their parameters and random packed rows, for the tests."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from smelt_jax.batch import Batch
from smelt_jax.model.config import AttentionConfig, ExpertsConfig, LoopConfig, ModelConfig
from smelt_jax.model.transformer import Transformer, logits_of

# Tests compile much and compute little: optimised code would take longer to make than it saves.
QUICK: dict[str, Any] = {'xla_backend_optimization_level': 0}
jit = functools.partial(jax.jit, compiler_options=QUICK)

TINY = ModelConfig(
    vocab=61,
    width=24,
    layers=4,
    loop=LoopConfig(start=1, length=2, visits=2),
    attention=AttentionConfig(heads=4, kv_heads=2, head_dim=6),
    experts=ExpertsConfig(count=5, per_token=2, width=10),
)


def edit(model: ModelConfig, **changes: Any) -> ModelConfig:
    """`model` with `field=value` or `room__field=value`, checked."""
    for name, value in changes.items():
        room, _, field = name.rpartition('__')
        if room:
            value = dataclasses.replace(getattr(model, room), **{field: value})
        model = dataclasses.replace(model, **{room or field: value})
    model.check()
    return model


def looped(start: int, length: int, coda: int, visits: int, exponent: float = 1.0) -> ModelConfig:
    """A tiny model of `start` + `length` × `visits` + `coda` layers."""
    loop = LoopConfig(start, length, visits, exponent)
    return edit(TINY, layers=start + length + coda, loop=loop)


def params_of(model: ModelConfig, seed: int = 0) -> dict:
    """Random parameters, drawn by NumPy: much larger than at the start of training, so that every nonlinearity matters."""
    ints = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    shapes = jax.eval_shape(Transformer(model).init, jax.random.key(0), ints, ints, ints)['params']
    rng = np.random.default_rng(seed)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        values = rng.standard_normal(leaf.shape, np.float32)
        if path[-1].key == 'scale':
            return jnp.asarray(1 + 0.2 * values)
        fan_in = 1 if path[-1].key == 'embed' else leaf.shape[-2]
        return jnp.asarray(values / np.sqrt(fan_in).astype(np.float32))

    return jax.tree_util.tree_map_with_path(draw, shapes)


def packed(*rows: tuple[int, ...], length: int = 16, vocab: int = TINY.vocab, seed: int = 0) -> Batch:
    """Rows of random documents of the given lengths (of length + 1 stored tokens); the rest of a row is padding."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, vocab, (len(rows), length + 1), np.int32)
    segments, positions = np.zeros((2, len(rows), length + 1), np.int32)
    for row, documents in enumerate(rows):
        assert sum(documents) <= length + 1, f'{documents=} do not fit into {length + 1} tokens'
        start = 0
        for number, size in enumerate(documents):
            segments[row, start : start + size] = number + 1
            positions[row, start : start + size] = np.arange(size)
            start += size
    inside = (segments[:, :-1] == segments[:, 1:]) & (segments[:, :-1] > 0)
    return Batch(tokens[:, :-1], tokens[:, 1:], segments[:, :-1], positions[:, :-1], inside.astype(np.float32))


def rows_of(batch: Batch) -> tuple:
    """What `Transformer` reads of a batch."""
    return batch.tokens_BT, batch.segment_ids_BT, batch.positions_BT


def run(model: ModelConfig, params: dict, batch: Batch, visits: int | None = None) -> tuple[jax.Array, Any]:
    """Logits [B, T, V] and `RouterSums` of every executed layer."""
    output = Transformer(model).apply({'params': params}, *rows_of(batch), visits=visits)
    return logits_of(params, output.hidden_BTD), output.router


def mix(outputs: Any, seed: int = 0) -> jax.Array:
    """One scalar that depends on every float of `outputs` with a random factor: its gradient shows any difference."""
    rng = np.random.default_rng(seed)
    leaves = jax.tree.leaves(outputs)
    return sum((jnp.sum(leaf * rng.standard_normal(leaf.shape, np.float32)) for leaf in leaves), jnp.zeros(()))


def assert_close(actual: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Trees agree, each leaf to `tolerance` of its largest magnitude (or of 1e-3, if all of it is smaller)."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape, f'{jax.tree_util.keystr(path)}: {a.shape} against {b.shape}'
        bound = tolerance * max(np.max(np.abs(b), initial=0), 1e-3)
        error = np.max(np.abs(a - b), initial=0)
        assert error <= bound, f'{jax.tree_util.keystr(path)}: off by {error:.2e}, allowed {bound:.2e}'


def assert_same(actual: Any, expected: Any) -> None:
    """Trees agree bit for bit."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        assert np.array_equal(a, b), f'{jax.tree_util.keystr(path)} differs'
