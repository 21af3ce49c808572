"""Learning rates: a trunk warms up and stays, a branch starts at the trunk's rate and falls along a cosine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smelt_jax.train.schedule import branch_schedule, trunk_schedule

PEAK = 3e-3
slow = settings(deadline=None, max_examples=25)


@pytest.mark.parametrize('step', [0, 1, 1000])
def test_no_warmup_starts_at_the_peak_and_stays(step):
    assert trunk_schedule(PEAK, 0)(step) == PEAK


@slow
@given(st.integers(1, 50))
def test_warmup_is_a_line_that_reaches_the_peak_with_its_last_update(warmup):
    """The first update has the rate peak / warmup, not 0; each adds as much; none jumps, none is above the peak."""
    rates = np.array([trunk_schedule(PEAK, warmup)(step) for step in range(warmup + 3)], np.float64)
    np.testing.assert_allclose(rates[:warmup], PEAK * np.arange(1, warmup + 1) / warmup, rtol=1e-5)
    np.testing.assert_allclose(rates[warmup - 1 :], PEAK, rtol=1e-6)


branches = given(
    warmup=st.sampled_from([0, 10]),
    start=st.sampled_from([4, 10, 300]),
    steps=st.integers(2, 40),
    final=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
)


@slow
@branches
def test_a_branch_starts_at_the_trunks_rate_and_ends_at_its_final_fraction(warmup, start, steps, final):
    """Its first update has the trunk's rate at that step to the bit, in the trunk's warmup too."""
    trunk = trunk_schedule(PEAK, warmup)
    branch = branch_schedule(trunk, start, steps, final)
    assert np.float32(branch(start)) == np.float32(trunk(start))
    np.testing.assert_allclose(branch(start + steps), final * trunk(start), rtol=1e-5, atol=1e-12)
    assert branch(start + 2 * steps) == branch(start + steps)


@slow
@branches
def test_a_branch_is_a_cosine_of_the_global_step(warmup, start, steps, final):
    trunk = trunk_schedule(PEAK, warmup)
    branch = branch_schedule(trunk, start, steps, final)
    at = np.arange(steps + 1)
    expected = trunk(start) * (final + (1 - final) * (1 + np.cos(np.pi * at / steps)) / 2)
    np.testing.assert_allclose([branch(start + i) for i in at], expected, rtol=1e-4, atol=1e-9)
    before = range(max(0, start - 5), start)
    np.testing.assert_array_equal(np.float32([branch(i) for i in before]), np.float32([trunk(i) for i in before]))
