"""Every implementation of every kernel equals plain code, in values and in all gradients: one body, one table (`cases.py`)."""

import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import assert_close, jit

import pallas_kernels
from pallas_kernels import IMPLEMENTATIONS, route, settings
from tests.kernels.cases import KERNELS, REAL, D, F, T, assert_rounded_once, distinct, inputs, measured

E = 4
MANY = 11  # experts, where a token has eight


def patterns():
    """Routings of one choice a token, by which of four experts are empty; and groups at a block's border and around it."""
    rng = np.random.default_rng(0)
    for used in itertools.product([False, True], repeat=E):
        ids = [expert for expert in range(E) if used[expert]] or [E]
        yield pytest.param(rng.choice(ids, (T, 1)).astype(np.int32), id=''.join('01'[there] for there in used))
    borders = rng.permutation(np.repeat(np.arange(E, dtype=np.int32), (32, 33, 1, 64)))
    yield pytest.param(borders[:, None], id='borders')
    some = rng.choice([0, 3, E], (T, 1)).astype(np.int32)
    yield pytest.param(some, id='padding')


def eight():
    """Eight choices a token; some tokens use fewer experts, some none."""
    experts_TK = distinct(T, 8, range(MANY))
    experts_TK[7:31, 3:] = MANY
    experts_TK[40:60] = MANY
    return experts_TK


@pytest.fixture(params=KERNELS)
def kernel(request):
    return request.param


@pytest.fixture(params=REAL)
def implementation(request):
    return request.param


@pytest.mark.parametrize('experts_TK', [*patterns()])
def test_equals_plain_code_whichever_experts_are_empty(kernel, implementation, experts_TK):
    """In blocks of 16 rows, so that most groups have several."""
    primals, dy = inputs(kernel, experts_TK, E)
    actual = measured(kernel, implementation, E, primals, experts_TK, dy, block_rows=16)
    assert_close(actual, measured(kernel, 'plain', E, primals, experts_TK, dy), 1e-5)


def test_eight_choices_a_token(kernel, implementation):
    primals, dy = inputs(kernel, eight(), MANY)
    actual = measured(kernel, implementation, MANY, primals, eight(), dy)
    assert_close(actual, measured(kernel, 'plain', MANY, primals, eight(), dy), 1e-5)


def test_what_no_expert_uses_may_be_nan(kernel, implementation):
    """Tokens, rows and router weights, and the gradient that comes in: their own result and gradient are 0, and nobody
    else notices."""
    unread_primals, unread_y = KERNELS[kernel].unread(eight(), MANY)
    primals, dy = inputs(kernel, eight(), MANY)

    def poisoned(array, unread):
        return array if unread is None else jnp.where(np.reshape(unread, _ahead(unread, array)), jnp.nan, array)

    bad = tuple(poisoned(array, unread) for array, unread in zip(primals, unread_primals, strict=True))
    y, gradients = measured(kernel, implementation, MANY, bad, eight(), poisoned(dy, unread_y))
    assert_close((y, gradients), measured(kernel, 'plain', MANY, primals, eight(), dy), 1e-5)
    for array, unread in zip((y, *gradients), (unread_y, *unread_primals), strict=True):
        assert unread is None or not np.any(np.asarray(array)[unread])


def _ahead(unread, array):
    return (*unread.shape, *(1,) * (array.ndim - unread.ndim))


def test_bfloat16_stays_within_its_rounding(kernel, implementation):
    """Of the same rounded inputs in float32. Sums are float32: a token's eight parts, added in bfloat16, are off by more."""
    primals, dy = inputs(kernel, eight(), MANY, jnp.bfloat16)
    y, gradients = measured(kernel, implementation, MANY, primals, eight(), dy)
    assert [leaf.dtype for leaf in jax.tree.leaves((y, gradients))] == [
        leaf.dtype for leaf in jax.tree.leaves((dy, primals))
    ]
    exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (primals, dy))
    expected = measured(kernel, 'plain', MANY, exact[0], eight(), exact[1])
    if KERNELS[kernel].bfloat16:
        assert_close((y, gradients), expected, KERNELS[kernel].bfloat16)
    else:
        assert_rounded_once((y, gradients), expected)


@pytest.mark.parametrize('seeds', [(1, 2), (1, 1)], ids=['two routings', 'one routing'])
def test_runs_under_vmap(kernel, implementation, seeds):
    """Two sets of rows at once, with weights in common: as one after the other."""
    both = np.stack([distinct(T, 1, range(E), seed) for seed in seeds])
    (first, dy), (second, _) = (inputs(kernel, experts_TK, E, seed=seed) for seed, experts_TK in enumerate(both))
    # The last input is shared where there are several: weights, of one kind or another.
    shared = len(first) > 1
    stacked = jax.tree.map(lambda *pair: jnp.stack(pair), first[: len(first) - shared], second[: len(first) - shared])
    tail = first[len(first) - shared :]

    def one(head, experts_TK):
        return measured.__wrapped__(kernel, implementation, E, (*head, *tail), experts_TK, dy, block_rows=16)

    # A routing in common has no batch axis: what is cut by it has none, either.
    routing, axis = (both, 0) if seeds[0] != seeds[1] else (both[0], None)
    y, gradients = jit(jax.vmap(one, in_axes=(0, axis)))(stacked, routing)
    for at, head in enumerate((first, second)):
        primals = (*head[: len(first) - shared], *tail)
        expected = measured(kernel, 'plain', E, primals, both[at], dy)
        assert_close(jax.tree.map(lambda leaf, at=at: leaf[at], (y, gradients)), expected, 1e-5)


@pytest.mark.parametrize('wrong', ['fast', 'Reference', ''])
def test_an_unknown_implementation_is_refused_with_the_choices(kernel, wrong):
    primals, _ = inputs(kernel, distinct(4, 1, range(E)), E)
    with pytest.raises(ValueError, match=f"{kernel} implementation='{wrong}'.*{', '.join(IMPLEMENTATIONS)}"):
        KERNELS[kernel].call(primals, distinct(4, 1, range(E)), E, {'implementation': wrong})


@pytest.mark.parametrize('plain', ['reference', 'xla', 'auto'])
def test_only_pallas_is_interpreted(kernel, plain):
    primals, _ = inputs(kernel, distinct(4, 1, range(E)), E)
    with pytest.raises(ValueError, match=r'never interpreted: choose one of pallas_tpu'):
        KERNELS[kernel].call(primals, distinct(4, 1, range(E)), E, {'implementation': plain, 'interpret': True})


@pytest.mark.parametrize('implementation', ['pallas_tpu', 'pallas_gpu'])
def test_pallas_on_a_cpu_is_an_error_unless_interpreted(kernel, implementation):
    primals, _ = inputs(kernel, distinct(4, 1, range(E)), E)
    with pytest.raises(ValueError, match='interpret mode'):
        KERNELS[kernel].call(primals, distinct(4, 1, range(E)), E, {'implementation': implementation})


@pytest.mark.parametrize(('implementation', 'hardware'), [('pallas_tpu', 'TPU'), ('pallas_gpu', 'GPU')])
def test_a_dtype_without_a_kernel_is_named(kernel, implementation, hardware):
    primals, _ = inputs(kernel, distinct(4, 1, range(E)), E, jnp.float16)
    more = {'implementation': implementation, 'interpret': True}
    with pytest.raises(ValueError, match=f'{hardware} kernels take float32 and bfloat16, not float16'):
        KERNELS[kernel].call(primals, distinct(4, 1, range(E)), E, more)


@pytest.mark.parametrize('implementation', ['pallas_tpu', 'pallas_gpu'])
@pytest.mark.parametrize('kernel', ['expert_ffn', 'grouped_matmul'])
def test_rows_that_make_no_tile_are_refused(kernel, implementation):
    primals, _ = inputs(kernel, distinct(4, 1, range(E)), E)
    more = {'implementation': implementation, 'interpret': True, 'block_rows': 40}
    with pytest.raises(ValueError, match='rows=40'):
        KERNELS[kernel].call(primals, distinct(4, 1, range(E)), E, more)


def test_shapes_that_do_not_go_together_are_named():
    x_TD, plan = jnp.zeros((4, D)), route(distinct(5, 1, range(E)), E)
    with pytest.raises(ValueError, match='dispatch: 5 slots are no multiple of 4 tokens'):
        pallas_kernels.dispatch(x_TD, plan)
    with pytest.raises(ValueError, match=r'combine: 4 rows, \(5, 1\) weights, a plan of 5 slots'):
        pallas_kernels.combine(x_TD, jnp.zeros((5, 1)), plan)
    with pytest.raises(ValueError, match=rf'weights float32\(4, {F}, {D}\).*meant are x \[S, D\]'):
        pallas_kernels.grouped_matmul(x_TD, jnp.zeros((E, F, D)), plan.ends_E)
    (x_TD, weights_TK, expert_weights), _ = inputs('expert_ffn', distinct(5, 1, range(E)), E)
    with pytest.raises(ValueError, match=r'meant are \[T, D\], \[T, K\]'):
        pallas_kernels.expert_ffn(x_TD.astype(jnp.bfloat16), weights_TK, distinct(5, 1, range(E)), expert_weights)
    with pytest.raises(ValueError, match=r'choices float32\(5, 1\); meant are integers'):
        pallas_kernels.expert_ffn(x_TD, weights_TK, weights_TK, expert_weights)
    with pytest.raises(ValueError, match=rf'x \(0, {D}\).*T, K and D of 1 or more'):
        pallas_kernels.expert_ffn(x_TD[:0], weights_TK[:0], distinct(5, 1, range(E))[:0], expert_weights)


def test_every_kernel_is_in_the_table():
    public = {
        name
        for name, thing in vars(pallas_kernels).items()
        if inspect.isfunction(thing) and 'interpret' in inspect.signature(thing).parameters and thing is not settings
    }
    assert public == set(KERNELS)
