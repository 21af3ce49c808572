"""`expert_ffn`: every implementation equals a loop over experts, in values and in all gradients."""

import functools
import itertools

import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest
from models import assert_close, jit

from pallas_kernels import IMPLEMENTATIONS, expert_ffn
from pallas_kernels.expert_ffn import ExpertWeights

T, D, F, E = 130, 96, 40, 4
PATTERNS = list(itertools.product([False, True], repeat=E))


def inputs(experts_TK, experts=E, seed=0):
    """(x, router weights, expert weights) and the cotangent of y; everything that a gradient is taken of, and more."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape, np.float32) / np.sqrt(shape[-2]).astype(np.float32))

    weights_TK = jnp.asarray(rng.random(experts_TK.shape, np.float32))
    x_TD, dy_TD = 5 * normal(len(experts_TK), D), normal(len(experts_TK), D)
    expert_weights = ExpertWeights(normal(experts, D, F), normal(experts, D, F), normal(experts, F, D))
    return (x_TD, weights_TK, expert_weights), dy_TD


def distinct(tokens, choices, among, seed=0):
    """Random distinct choices for each token, of the experts listed in `among`."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(among)[:choices] for _ in range(tokens)]).astype(np.int32)


@functools.partial(jit, static_argnums=0)
def measured(implementation, primals, experts_TK, dy_TD):
    """y, and its gradients in x, router weights, gate, up and down."""

    def forward(x_TD, weights_TK, expert_weights):
        if implementation == 'naive':
            return naive.experts(x_TD, weights_TK, experts_TK, *expert_weights)
        return expert_ffn(x_TD, weights_TK, experts_TK, expert_weights, implementation=implementation)

    y_TD, pull = jax.vjp(forward, *primals)
    return y_TD, pull(dy_TD.astype(y_TD.dtype))


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request):
    return request.param


@pytest.mark.parametrize('pattern', PATTERNS, ids=lambda pattern: ''.join('01'[used] for used in pattern))
def test_equals_a_loop_over_experts_whichever_are_empty(implementation, pattern):
    """Two choices a token; where fewer experts are in use, a choice that uses none (E) takes the place."""
    used = [expert for expert in range(E) if pattern[expert]]
    experts_TK = distinct(T, 2, [*used, E, E][: max(2, len(used))])
    primals, dy_TD = inputs(experts_TK)
    assert_close(
        measured(implementation, primals, experts_TK, dy_TD), measured('naive', primals, experts_TK, dy_TD), 1e-5
    )


@pytest.mark.parametrize(
    'experts_TK',
    [
        pytest.param(distinct(T, 1, range(E)), id='K=1'),
        pytest.param(np.full((T, 1), 2, np.int32), id='all on one'),
        pytest.param(np.full((T, 1), E, np.int32), id='none at all'),
    ],
)
def test_one_choice_a_token(implementation, experts_TK):
    primals, dy_TD = inputs(experts_TK)
    assert_close(
        measured(implementation, primals, experts_TK, dy_TD), measured('naive', primals, experts_TK, dy_TD), 1e-5
    )


def test_eight_choices_a_token(implementation):
    experts_TK = distinct(T, 8, range(11))
    experts_TK[7:31, 3:] = 11
    primals, dy_TD = inputs(experts_TK, experts=11)
    assert_close(
        measured(implementation, primals, experts_TK, dy_TD), measured('naive', primals, experts_TK, dy_TD), 1e-5
    )


def test_a_group_of_many_blocks(implementation):
    """Groups that end inside a block, on its border, and one row behind it."""
    sizes = (512, 513, 33, 600)
    experts_TK = np.random.default_rng(0).permutation(np.repeat(np.arange(E, dtype=np.int32), sizes))[:, None]
    primals, dy_TD = inputs(experts_TK)
    assert_close(
        measured(implementation, primals, experts_TK, dy_TD), measured('naive', primals, experts_TK, dy_TD), 1e-5
    )


def test_rows_of_tokens_without_an_expert_may_be_nan(implementation):
    """Their output is 0 and so are their gradients; nobody else notices, forward or backward."""
    experts_TK = distinct(T, 2, range(E))
    unused_T = np.random.default_rng(1).random(T) < 0.3
    experts_TK[unused_T] = E
    (x_TD, weights_TK, expert_weights), dy_TD = inputs(experts_TK)

    def poisoned(array):
        return jnp.where(unused_T[:, None], jnp.nan, array)

    primals = poisoned(x_TD), poisoned(weights_TK), expert_weights
    actual = measured(implementation, primals, experts_TK, poisoned(dy_TD))
    expected = measured('naive', (x_TD, weights_TK, expert_weights), experts_TK, dy_TD)
    assert_close(actual, expected, 1e-5)
    for array in (actual[0], actual[1][0], actual[1][1]):
        assert not np.any(np.asarray(array)[unused_T])


def test_bfloat16_stays_within_its_rounding(implementation):
    """Of the same rounded inputs in float32: 0.65% of the largest entry, of y and of every gradient, where one rounding is
    up to 0.4%. So sums are float32: a token's eight parts, added in bfloat16, are off by 0.8%."""
    experts_TK = distinct(T, 8, range(11))
    (x_TD, weights_TK, expert_weights), dy_TD = inputs(experts_TK, experts=11)
    x_low, dy_low = x_TD.astype(jnp.bfloat16), dy_TD.astype(jnp.bfloat16)
    low = x_low, weights_TK, ExpertWeights(*(weight.astype(jnp.bfloat16) for weight in expert_weights))
    actual = measured(implementation, low, experts_TK, dy_low)
    exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (low, dy_low))
    assert [leaf.dtype for leaf in jax.tree.leaves(actual)] == [leaf.dtype for leaf in jax.tree.leaves((x_low, low))]
    assert_close(actual, measured('naive', exact[0], experts_TK, exact[1]), 0.0065)


def test_runs_under_scan_remat_and_vmap(implementation):
    """Three layers of it, rematerialised, over two rows at once: as written out."""
    experts_LTK = np.stack([distinct(32, 2, range(E), seed) for seed in range(6)]).reshape(2, 3, 32, 2)
    (x, weights, expert_weights), dy = inputs(experts_LTK.reshape(-1, 2))
    x_BTD, dy_BTD = (array.reshape(2, 3, 32, D)[:, 0] for array in (x, dy))
    weights_BLTK = weights.reshape(2, 3, 32, 2)

    def scanned(x_TD, weights_LTK, expert_weights, experts_LTK):
        def layer(x_TD, arrays):
            weights_TK, experts_TK = arrays
            return x_TD + expert_ffn(x_TD, weights_TK, experts_TK, expert_weights, implementation=implementation), None

        return jax.lax.scan(jax.checkpoint(layer), x_TD, (weights_LTK, experts_LTK))[0]

    def written_out(x_BTD, weights_BLTK, expert_weights):
        rows = []
        for x_TD, weights_LTK, row_experts_LTK in zip(x_BTD, weights_BLTK, experts_LTK, strict=True):
            for weights_TK, experts_TK in zip(weights_LTK, row_experts_LTK, strict=True):
                x_TD = x_TD + naive.experts(x_TD, weights_TK, experts_TK, *expert_weights)
            rows.append(x_TD)
        return jnp.stack(rows)

    def at_once(x_BTD, weights_BLTK, expert_weights):
        return jax.vmap(scanned, in_axes=(0, 0, None, 0))(x_BTD, weights_BLTK, expert_weights, experts_LTK)

    def grads(forward):
        y_BTD, pull = jit(lambda *primals: jax.vjp(forward, *primals))(x_BTD, weights_BLTK, expert_weights)
        return y_BTD, jit(lambda pull, dy: pull(dy))(pull, dy_BTD)

    assert_close(grads(at_once), grads(written_out))


def test_an_unknown_implementation_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=f"implementation='fast'.*{', '.join(IMPLEMENTATIONS)}"):
        expert_ffn(*inputs(distinct(4, 1, range(E)))[0][:2], distinct(4, 1, range(E)), None, implementation='fast')
