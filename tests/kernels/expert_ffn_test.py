"""`expert_ffn` beyond single calls: layers of it, experts that are worked through in parts, and rows as words."""

import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest
from models import assert_close, assert_same, jit

from pallas_kernels import ExpertWeights, expert_ffn
from pallas_kernels.tpu import expert_ffn as expert_ffn_tpu
from pallas_kernels.tpu.words import from_words, to_words
from tests.kernels.cases import REAL, D, distinct, inputs, normal

E = 4


@pytest.mark.parametrize('implementation', REAL)
def test_layers_of_it_run_under_scan_and_remat(implementation):
    """Three layers of it, rematerialised: as written out."""
    experts_LTK = np.stack([distinct(32, 2, range(E), seed) for seed in range(3)])
    (x_TD, _, expert_weights), dy_TD = inputs('expert_ffn', experts_LTK[0], E)
    weights_LTK = jnp.asarray(np.random.default_rng(0).random(experts_LTK.shape, np.float32))
    more = {'implementation': implementation, 'interpret': implementation.startswith('pallas')}

    def scanned(x_TD, weights_LTK, expert_weights):
        def layer(x_TD, arrays):
            return x_TD + expert_ffn(x_TD, *arrays, expert_weights, **more), None

        return jax.lax.scan(jax.checkpoint(layer), x_TD, (weights_LTK, experts_LTK))[0]

    def written_out(x_TD, weights_LTK, expert_weights):
        for weights_TK, experts_TK in zip(weights_LTK, experts_LTK, strict=True):
            x_TD = x_TD + naive.experts(x_TD, weights_TK, experts_TK, *expert_weights)
        return x_TD

    @jit
    def grads(x_TD, weights_LTK, expert_weights, dy_TD):
        results = []
        for forward in (scanned, written_out):
            y_TD, pull = jax.vjp(forward, x_TD, weights_LTK, expert_weights)
            results.append((y_TD, pull(dy_TD)))
        return results

    assert_close(*grads(x_TD, weights_LTK, expert_weights, dy_TD))


def test_experts_too_large_for_a_tpu_are_worked_through_in_parts(monkeypatch):
    """F = 200 in two parts of 128, of which the second is padded."""
    wide = 200
    monkeypatch.setattr(expert_ffn_tpu, 'VMEM_BYTES', 1_200_000)
    assert expert_ffn_tpu.parts_of(16, D, wide, jnp.float32) == 2
    rng = np.random.default_rng(0)
    experts_TK = distinct(40, 2, [0, 1, 3, E])
    x_TD, dy_TD, weights_TK = normal(rng, 40, D), normal(rng, 40, D), jnp.asarray(rng.random((40, 2), np.float32))
    expert_weights = ExpertWeights(normal(rng, E, D, wide), normal(rng, E, D, wide), normal(rng, E, wide, D))

    def kernel(x_TD, weights_TK, expert_weights):
        more = {'implementation': 'pallas_tpu', 'interpret': True, 'block_rows': 16}
        return expert_ffn(x_TD, weights_TK, experts_TK, expert_weights, **more)

    def plain(x_TD, weights_TK, expert_weights):
        return naive.experts(x_TD, weights_TK, experts_TK, *expert_weights)

    @jit
    def grads(*primals):
        results = []
        for forward in (kernel, plain):
            y_TD, pull = jax.vjp(forward, *primals)
            results.append((y_TD, pull(dy_TD)))
        return results

    assert_close(*grads(x_TD, weights_TK, expert_weights), 1e-5)


@pytest.mark.parametrize('width', [1, 96, 128, 129, 256, 300, 1056])
def test_rows_as_words_are_the_rows_again(width):
    for dtype in (jnp.float32, jnp.bfloat16):
        x_TD = normal(np.random.default_rng(0), 5, width).astype(dtype)
        assert_same(from_words(to_words(x_TD), width), x_TD)
