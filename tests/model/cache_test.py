"""Reading a document piece by piece through the cache equals reading it at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import TINY, assert_close, assert_same, edit, jit, looped, params_of

from smelt_jax.budget.accounting import budget_of
from smelt_jax.model.cache import Cache, empty_cache
from smelt_jax.model.transformer import Transformer, logits_of

LENGTHS = (11, 4, 1)  # three documents, one a row
ROWS, LONGEST = len(LENGTHS), max(LENGTHS)
TOKENS_BT = np.random.default_rng(0).integers(0, TINY.vocab, (ROWS, LONGEST), np.int32)


@functools.cache
def reader(model, visits):
    """logits_BTV and cache of the next tokens of each row; `counts_B` of them are real."""

    @jit
    def read(params, tokens_BT, start_B, counts_B, cache):
        ahead_T = jnp.arange(tokens_BT.shape[1])
        segments_BT = (ahead_T < counts_B[:, None]).astype(jnp.int32)
        output = Transformer(model).apply(
            {'params': params}, tokens_BT, segments_BT, start_B[:, None] + ahead_T, visits=visits, cache=cache
        )
        return logits_of(params, output.hidden_BTD), output.cache

    return read


def at_once(model, params, visits):
    logits_BTV, _ = reader(model, visits)(params, TOKENS_BT, np.zeros(ROWS, int), np.array(LENGTHS), None)
    return logits_BTV


def by_pieces(model, params, visits, piece, capacity=LONGEST):
    """Logits of `piece` tokens at a time, rows of unequal length running out one after the other."""
    cache = empty_cache(model, ROWS, capacity, visits)
    logits = []
    for start in range(0, LONGEST, piece):
        tokens_BT = TOKENS_BT[:, start : start + piece]
        counts_B = np.clip(np.array(LENGTHS) - start, 0, tokens_BT.shape[1])
        logits_BTV, cache = reader(model, visits)(params, tokens_BT, np.full(ROWS, start), counts_B, cache)
        logits.append(logits_BTV)
    return jnp.concatenate(logits, axis=1), cache


def real(logits_BTV):
    return [logits_BTV[row, :length] for row, length in enumerate(LENGTHS)]


MODELS = [
    pytest.param(looped(1, 2, 1, visits=2), None, id='prelude, loop, coda'),
    pytest.param(looped(0, 3, 1, visits=1), 3, id='no prelude, three visits of a model of one'),
    pytest.param(looped(0, 0, 2, visits=1), None, id='no loop'),
    pytest.param(edit(looped(1, 1, 0, visits=2), dtype='bfloat16'), None, id='bfloat16'),
]


@pytest.mark.parametrize('piece', [1, 4, LONGEST])
@pytest.mark.parametrize(('model', 'visits'), MODELS)
def test_pieces_equal_the_whole(model, visits, piece):
    params = params_of(model)
    logits_BTV, _ = by_pieces(model, params, visits, piece, capacity=LONGEST + 3)
    tolerance = 2e-5 if model.dtype == 'float32' else 6e-2
    assert_close(real(logits_BTV), real(at_once(model, params, visits)), tolerance)


@pytest.mark.parametrize('visits', [1, 2, 3, 4])
def test_at_any_visits_of_the_same_parameters(visits):
    params = params_of(TINY)
    expected = real(at_once(TINY, params, visits))
    for piece in (1, 3, LONGEST):
        logits_BTV, cache = by_pieces(TINY, params, visits, piece, capacity=LONGEST + 5)
        for actual_TV, expected_TV in zip(real(logits_BTV), expected, strict=True):
            np.testing.assert_allclose(actual_TV, expected_TV, atol=1e-4)
        assert cache.visits == visits


def test_rows_that_ended_are_not_written_to():
    params = params_of(TINY)
    _, cache = by_pieces(TINY, params, None, piece=4)
    for leaf in jax.tree.leaves(cache):
        for row, length in enumerate(LENGTHS):
            slots_XSGH = leaf.reshape(-1, *leaf.shape[-4:])[:, row]
            assert np.all(np.any(np.asarray(slots_XSGH[:, :length]) != 0, axis=(2, 3)))
            assert not np.any(slots_XSGH[:, length:])


def test_what_lies_in_unread_slots_is_not_seen():
    params = params_of(TINY)
    step = reader(TINY, None)
    start_B, counts_B, tokens_BT = np.zeros(ROWS, int), np.full(ROWS, 4), TOKENS_BT[:, :4]
    clean = step(params, tokens_BT, start_B, counts_B, empty_cache(TINY, ROWS, 9))[0]
    used = jax.tree.map(lambda leaf: leaf + 7, empty_cache(TINY, ROWS, 9))
    assert_same(step(params, tokens_BT, start_B, counts_B, used)[0], clean)


def test_tokens_beyond_the_capacity_move_nothing():
    params = params_of(TINY)
    full = by_pieces(TINY, params, None, piece=LONGEST)[1]
    beyond_B = np.full(ROWS, LONGEST)
    after = reader(TINY, None)(params, TOKENS_BT[:, :2], beyond_B, np.full(ROWS, 2), full)[1]
    assert_same(after, full)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize(
    ('model', 'visits'),
    [*((looped(1, 2, 1, visits), visits) for visits in (1, 2, 3, 4)), (looped(0, 0, 3, visits=1), 1)],
)
def test_bytes_are_those_of_the_budget(model, visits, dtype):
    model = edit(model, dtype=dtype)
    rows, capacity = 3, 7
    cache = jax.eval_shape(lambda: empty_cache(model, rows, capacity))
    bits = 8 * jnp.dtype(dtype).itemsize
    stored = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    assert stored == rows * capacity * budget_of(model, 1.0).kv_bytes(bits)
    assert cache.capacity == capacity
    assert cache.visits == (visits if model.loop.length else None)


def test_a_cache_for_other_visits_is_refused():
    with pytest.raises(ValueError, match=r'visits=3 with a cache for 2: make one with empty_cache\(…, visits=3\)'):
        reader(TINY, 3)(params_of(TINY), TOKENS_BT, np.zeros(ROWS, int), np.array(LENGTHS), empty_cache(TINY, ROWS, 11))


def test_no_cache_given_none_returned():
    assert reader(TINY, None)(params_of(TINY), TOKENS_BT, np.zeros(ROWS, int), np.array(LENGTHS), None)[1] is None
    assert Cache(None, None, None).visits is None
