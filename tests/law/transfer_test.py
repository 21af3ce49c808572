"""The sigmoid is found again, its gradient is exact, and only what lies beyond the curve is a residual."""

import numpy as np
import pytest

from smelt_jax.law.transfer import Sigmoid, _slopes, _value, beyond, fit_sigmoid, residuals, wins

CURVE = Sigmoid(low=5.0, high=45.0, middle=1.9, width=0.12)
LOSSES = np.linspace(1.55, 2.5, 96)


@pytest.mark.parametrize(
    'curve', [CURVE, Sigmoid(2.4, 1.1, 2.0, 0.2), Sigmoid(0.25, 0.9, 2.3, 0.05), Sigmoid(0.0, 1.0, 1.6, 0.3)]
)
def test_a_curve_is_found_again(curve: Sigmoid) -> None:
    found = fit_sigmoid(LOSSES, curve(LOSSES))
    assert np.abs(found(LOSSES) - curve(LOSSES)).max() < 1e-6 * abs(curve.high - curve.low)
    for name in ('low', 'high', 'middle', 'width'):
        assert getattr(found, name) == pytest.approx(getattr(curve, name), rel=1e-3, abs=1e-3)


def test_the_gradient_is_exact() -> None:
    x = np.array([5.0, 45.0, 1.9, 0.12])
    for i, slope in enumerate(_slopes(x, LOSSES)):
        step = 1e-6 * np.eye(4)[i]
        assert slope == pytest.approx((_value(x + step, LOSSES) - _value(x - step, LOSSES)) / 2e-6, abs=1e-6)


def test_losses_far_away_overflow_nothing() -> None:
    with np.errstate(all='raise'):
        assert CURVE(np.array([-1e3, 1e3])) == pytest.approx([45, 5])


def noisy(seed: int, losses: np.ndarray) -> np.ndarray:
    return CURVE(losses) + 0.4 * np.random.default_rng(seed).normal(size=len(losses))


def test_what_comes_from_the_loss_alone_is_no_residual() -> None:
    better = LOSSES - 0.02
    curve, found = beyond(
        (LOSSES, noisy(1, LOSSES)), (better, noisy(2, better)), ['all'] * 96, range(96), replicates=200
    )
    (every,) = found
    assert every.low < 0 < every.high
    assert abs(every.mean) < 0.2
    assert abs(curve.middle - CURVE.middle) < 0.05


def test_what_lies_beyond_the_curve_is_found_by_group_with_its_interval() -> None:
    groups = np.repeat(['small', 'large'], 48)
    lift = np.where(groups == 'large', 1.5, 0.0)
    better = LOSSES - 0.02
    _, found = beyond(
        (LOSSES, noisy(1, LOSSES)), (better, noisy(2, better) + lift), list(groups), range(96), replicates=200
    )
    small, large, every = found
    assert [one.group for one in found] == ['small', 'large', 'all']
    assert [one.points for one in found] == [48, 48, 96]
    assert small.low < 0 < small.high
    assert large.low < 1.5 < large.high
    assert large.low > 1
    assert every.mean == pytest.approx((small.mean + large.mean) / 2)


def test_intervals_cover_as_often_as_they_say() -> None:
    covered = 0
    for seed in range(40):
        _, (every,) = beyond(
            (LOSSES, noisy(2 * seed, LOSSES)), (LOSSES, noisy(2 * seed + 1, LOSSES)), [''] * 96, range(96), 100, seed
        )
        covered += every.low < 0 < every.high
    assert 33 <= covered <= 40  # 95% of 40 are 38; 33 is 3.6 standard deviations below


def test_pairs_of_a_cell_that_move_together_widen_the_interval() -> None:
    cells = np.arange(96) // 6
    together = np.random.default_rng(3).normal(size=16)[cells]
    arms = (LOSSES, noisy(1, LOSSES)), (LOSSES, noisy(2, LOSSES) + together)
    widths = []
    for drawn in (range(96), list(cells)):
        _, (every,) = beyond(*arms, [''] * 96, drawn, replicates=200)
        widths.append(every.high - every.low)
    assert widths[1] > 1.3 * widths[0]


def test_residuals_are_scores_less_the_curve() -> None:
    assert residuals(CURVE, np.array([1.9]), np.array([26.0])) == pytest.approx([1.0])


@pytest.mark.parametrize(('lower', 'expected'), [(False, (2, 1, 1)), (True, (1, 1, 2))])
def test_ties_are_told(lower: bool, expected: tuple[int, int, int]) -> None:
    found = wins(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 3.0, 3.0, 3.5]), lower)
    assert (found.won, found.tied, found.lost) == expected


def test_too_few_points_are_named() -> None:
    with pytest.raises(ValueError, match='4 points at 4 losses: a sigmoid takes five points or more'):
        fit_sigmoid(LOSSES[:4], LOSSES[:4])
    with pytest.raises(ValueError, match='96 points against 5: the arms are compared pair by pair'):
        beyond((LOSSES, LOSSES), (LOSSES[:5], LOSSES[:5]), [''] * 96, range(96))
