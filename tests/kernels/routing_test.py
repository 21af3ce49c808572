"""`route`: the slots sorted by expert, each once, in order."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pallas_kernels import route

EXPERTS = 5
plan_of = jax.jit(route, static_argnums=1)
# Few shapes, as each is compiled; entries at and above EXPERTS are slots that use none.
choices = st.sampled_from([(7, 3), (16, 1), (1, 4)]).flatmap(
    lambda shape: arrays(np.int32, shape, elements=st.integers(0, EXPERTS + 2))
)


@settings(deadline=None)
@given(choices)
def test_every_slot_once_sorted_by_expert_then_by_slot(experts_TK):
    order_S = np.asarray(plan_of(experts_TK, EXPERTS).order_S)
    np.testing.assert_array_equal(np.sort(order_S), np.arange(experts_TK.size))
    ids_S = np.minimum(experts_TK.reshape(-1), EXPERTS)
    np.testing.assert_array_equal(order_S, np.lexsort((np.arange(ids_S.size), ids_S)))


@settings(deadline=None)
@given(choices)
def test_groups_end_where_the_next_begins_and_hold_their_expert_alone(experts_TK):
    plan = plan_of(experts_TK, EXPERTS)
    order_S, ends_E, sizes_E = (np.asarray(array) for array in (plan.order_S, plan.ends_E, plan.sizes_E))
    np.testing.assert_array_equal(ends_E, np.cumsum(sizes_E))
    for expert, (end, size) in enumerate(zip(ends_E, sizes_E, strict=True)):
        assert size == np.sum(experts_TK == expert)
        assert np.all(experts_TK.reshape(-1)[order_S[end - size : end]] == expert)
    assert np.all(experts_TK.reshape(-1)[order_S[ends_E[-1] :]] >= EXPERTS)


@pytest.mark.parametrize('dtype', [np.uint8, np.int16])
def test_narrow_integers_do_not_overflow(dtype):
    experts_TK = np.arange(300).reshape(150, 2) % 200 % 120
    plan = route(experts_TK.astype(dtype), 100)
    ids_S = np.minimum(experts_TK.reshape(-1), 100)
    np.testing.assert_array_equal(plan.order_S, np.argsort(ids_S, kind='stable'))


def test_more_slots_than_sort_keys_is_an_error_that_says_so():
    with pytest.raises(ValueError, match=r'\(1000000, 8\) choices among 336 experts exceed 2\^31'):
        route(jax.ShapeDtypeStruct((1_000_000, 8), np.int32), 336)


def test_choices_that_are_no_integers_are_an_error():
    """Router weights in the place of choices would send everything to expert 0."""
    with pytest.raises(ValueError, match='choices of float32; they are integers'):
        route(np.ones((4, 2), np.float32), 8)
