"""AdamW: decoupled decay, on every matrix and on no norm; moments in float32."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import TINY, jit, params_of

from smelt_jax.train.config import OptimConfig
from smelt_jax.train.optimizer import apply, decayed, optimizer

CONFIG = OptimConfig(weight_decay=0.1, clip_norm=0.0)


def update(config, params, grads, lr, times=1):
    transformation = optimizer(config)
    state = transformation.init(params)
    for _ in range(times):
        direction, state = transformation.update(grads, state, params)
        params = apply(params, direction, lr)
    return params, state


def leaf(value):
    return {'w': jnp.asarray([value], jnp.float32)}


def test_decay_is_decoupled_and_scaled_by_the_rate():
    """p = 1, g = 0, lr 0.1, decay 0.1: 0.99. L2 would give 0.9 (Adam's sign), unscaled decay 0.9."""
    params, _ = update(CONFIG, leaf(1), leaf(0), lr=0.1)
    np.testing.assert_allclose(params['w'], 0.99, rtol=1e-6)


@pytest.mark.parametrize('gradient', [3.0, -1e-3])
def test_the_first_update_is_the_rate_against_the_sign(gradient):
    """Whatever the gradient's size: moments are corrected for their start at 0."""
    config = dataclasses.replace(CONFIG, weight_decay=0.0)
    params, _ = update(config, leaf(1), leaf(gradient), lr=0.1)
    np.testing.assert_allclose(params['w'], 1 - 0.1 * np.sign(gradient), rtol=1e-4)


def test_several_updates_equal_adamw_by_hand():
    b1, b2, eps, lr, decay = CONFIG.b1, CONFIG.b2, CONFIG.eps, 0.05, CONFIG.weight_decay
    p, m, v = 2.0, 0.0, 0.0
    for t in range(1, 6):
        m, v = b1 * m + (1 - b1) * 0.3, b2 * v + (1 - b2) * 0.3**2
        p -= lr * (m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * p)
    params, _ = update(CONFIG, leaf(2), leaf(0.3), lr, times=5)
    np.testing.assert_allclose(params['w'], p, rtol=1e-5)


def test_norms_are_not_decayed_and_everything_else_is():
    """Stacked over layers or not; embedding, head, projections, router and expert weights all are."""
    params = jax.tree.map(jnp.ones_like, params_of(TINY))
    after, _ = jit(lambda params: update(CONFIG, params, jax.tree.map(jnp.zeros_like, params), lr=0.1))(params)
    mask = decayed(params)
    seen = set()
    for (path, value), is_decayed in zip(jax.tree.leaves_with_path(after), jax.tree.leaves(mask), strict=True):
        names = [key.key for key in path]
        is_norm = any(name.endswith('norm') for name in names)
        np.testing.assert_allclose(value, 1.0 if is_norm else 0.99, rtol=1e-6, err_msg=str(names))
        assert is_decayed is not is_norm
        seen.add((names[-2] if is_norm else names[-1], is_decayed))
    norms = {'attention_norm', 'experts_norm', 'final_norm', 'q_norm', 'k_norm'}
    matrices = {'embed', 'head', 'q', 'k', 'v', 'o', 'router', 'gate', 'up', 'down'}
    assert seen == {(name, False) for name in norms} | {(name, True) for name in matrices}


def test_moments_are_float32_unless_the_first_is_asked_to_be_smaller():
    def dtypes(config):
        _, (_, adam, _) = update(config, leaf(1), leaf(1), lr=0.1)
        return adam.mu['w'].dtype, adam.nu['w'].dtype

    assert dtypes(CONFIG) == (jnp.float32, jnp.float32)
    assert dtypes(dataclasses.replace(CONFIG, moment_dtype='bfloat16')) == (jnp.bfloat16, jnp.float32)


@pytest.mark.parametrize(('clip_norm', 'factor'), [(0.0, 1), (1.0, 0.2), (100.0, 1)])
def test_clipping_scales_the_whole_gradient_to_the_bound(clip_norm, factor):
    """Norm 5 = √(3² + 4²) over both leaves; 0 clips nothing."""
    grads = {'a': jnp.asarray([3.0]), 'b': jnp.asarray([4.0])}
    _, (_, adam, _) = update(
        dataclasses.replace(CONFIG, clip_norm=clip_norm), jax.tree.map(jnp.zeros_like, grads), grads, 0.1
    )
    np.testing.assert_allclose([adam.mu['a'][0], adam.mu['b'][0]], [0.3 * factor, 0.4 * factor], rtol=1e-5)


def test_the_count_goes_up_once_an_update():
    _, (_, adam, _) = update(CONFIG, leaf(1), leaf(1), lr=0.1, times=3)
    assert adam.count == 3
