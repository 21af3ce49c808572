"""Attention by blocks of queries equals scores over the whole row; rotary positions are relative."""

import functools

import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest
from models import assert_close, jit, packed

from smelt_jax.model import attend_gpu, attend_tpu, attend_xla
from smelt_jax.model.attend import attend
from smelt_jax.model.attend_xla import BLOCK
from smelt_jax.model.config import AttentionConfig
from smelt_jax.model.rotary import context_of, rotate

IMPLEMENTATIONS = {
    'xla': attend_xla.attend,
    'splash': functools.partial(attend_tpu.attend, interpret=True),
    'triton': functools.partial(attend_gpu.attend, interpret=True),
}


def heads_of(length, rows=2, heads=6, groups=2, head_dim=10, dtype=jnp.float32):
    rng = np.random.default_rng(0)
    shapes = [(rows, length, count, head_dim) for count in (heads, groups, groups, heads)]
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


@pytest.mark.parametrize(
    ('length', 'rows'),
    [
        pytest.param(
            2 * BLOCK + 45, [(BLOCK + 40, BLOCK // 2, 20), (BLOCK // 3, BLOCK)], id='many blocks, the last one short'
        ),
        pytest.param(3 * BLOCK, [(BLOCK, BLOCK, BLOCK), (BLOCK - 1, 2, BLOCK + 7)], id='blocks that see no other'),
        pytest.param(BLOCK, [(1, 1, 3, BLOCK // 2), (BLOCK,)], id='one block'),
        pytest.param(7, [(7,), ()], id='less than a block, a row of padding'),
    ],
)
@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_equals_scores_over_the_whole_row(length, rows, implementation):
    """In values and gradients, whatever the rotary angles; grouped heads share keys as in a repeated layout."""
    segments_BT = packed(*rows, length=length).segment_ids_BT
    *primals, dout_BTNH = heads_of(length)

    def measured(function):
        out_BTNH, pull = jax.vjp(function, *primals)
        return out_BTNH, pull(dout_BTNH)

    blocked = jit(lambda: measured(lambda q, k, v: IMPLEMENTATIONS[implementation](q, k, v, segments_BT)))()
    whole = jit(lambda: measured(lambda q, k, v: jax.vmap(naive.attention)(q, k, v, segments_BT)))()
    assert_close(blocked, whole)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_scores_and_softmax_are_float32_in_bfloat16(implementation):
    q, k, v, _ = heads_of(32, head_dim=16, dtype=jnp.bfloat16)
    q = 8 * q  # scores of some 30, which bfloat16 rounds by 0.1
    segments_BT = packed((20, 12), (32,), length=32).segment_ids_BT
    out_BTNH = IMPLEMENTATIONS[implementation](q, k, v, segments_BT)
    assert out_BTNH.dtype == jnp.bfloat16
    exact = attend(*(array.astype(jnp.float32) for array in (q, k, v)), segments_BT)
    assert_close(out_BTNH.astype(jnp.float32), exact, 0.01)


@pytest.mark.parametrize(('implementation', 'head_dim'), [('splash', 36), ('splash', 42), ('triton', 44)])
def test_heads_of_any_width(implementation, head_dim):
    """What they are padded with is nothing, in values and gradients."""
    segments_BT = packed((20, 12), (30,), length=32).segment_ids_BT
    *primals, dout_BTNH = heads_of(32, head_dim=head_dim)
    out, pull = jax.vjp(lambda q, k, v: IMPLEMENTATIONS[implementation](q, k, v, segments_BT), *primals)
    expected, expected_pull = jax.vjp(lambda q, k, v: IMPLEMENTATIONS['xla'](q, k, v, segments_BT), *primals)
    assert_close((out, pull(dout_BTNH)), (expected, expected_pull(dout_BTNH)))


def test_one_that_is_not_there_is_named():
    q, k, v, _ = heads_of(8)
    with pytest.raises(ValueError, match=r"implementation='flash': choose one of auto, xla, splash, triton"):
        attend(q, k, v, jnp.ones((2, 8), jnp.int32), implementation='flash')


def rotated(x_BTNH, positions_BT):
    config = AttentionConfig(head_dim=x_BTNH.shape[-1])
    return rotate(x_BTNH, context_of(jnp.ones_like(positions_BT), positions_BT, config))


def test_rotation_keeps_norms_and_depends_on_distance_alone():
    """A query at position p and a key at position s have the score of positions p + 1000 and s + 1000."""
    q, k, _, _ = heads_of(9, groups=6)
    positions_BT = jnp.asarray([np.arange(9), np.arange(9) * 31], jnp.int32)

    def scores(shift):
        return jnp.einsum('btnh,bsnh->bnts', rotated(q, positions_BT + shift), rotated(k, positions_BT + shift))

    assert_close(scores(1000), scores(0), 1e-3)
    assert_close(jnp.linalg.norm(rotated(q, positions_BT), axis=-1), jnp.linalg.norm(q, axis=-1), 1e-5)


def test_position_0_turns_nothing():
    q = heads_of(4)[0]
    np.testing.assert_array_equal(rotated(q, jnp.zeros((2, 4), jnp.int32)), q)
