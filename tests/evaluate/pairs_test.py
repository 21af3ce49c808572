"""Two checkpoints on the same examples: differences, their intervals, wins."""

import numpy as np
import pytest

from smelt_jax.evaluate.outcomes import Outcomes
from smelt_jax.evaluate.pairs import compared, wins

CHANCE = {'a': 0.25, 'b': 0.5}


def outcomes(right, nats=1.0, tokens=2.0):
    right = np.asarray(right, np.float64)
    return Outcomes(right, np.broadcast_to(np.float64(nats), right.shape), np.full(right.shape, tokens))


def drawn(share, count, seed):
    return np.random.default_rng(seed).random(count) < share


def test_a_checkpoint_beside_itself():
    one = {'a': outcomes([1, 0, 0, 1])}
    pairs, mean = compared(one, one, CHANCE)
    assert pairs['a'].accuracy == (pytest.approx(1 / 3), pytest.approx(1 / 3), 0, 0, 0)
    assert pairs['a'].completion == (0.5, 0.5, 0, 0, 0)
    assert mean == pairs['a']
    assert not mean.accuracy.sure


def test_scores_are_centered_and_sums_are_divided_once():
    worse = {'a': outcomes([0, 0, 1, 1]), 'b': outcomes([1, 0])}
    better = {
        'a': outcomes([1, 1, 1, 1], nats=[1, 2, 3, 0]),
        'b': Outcomes(np.array([1.0, 1.0]), np.array([1.0, 5.0]), np.array([2.0, 2.0])),
    }
    pairs, mean = compared(worse, better, CHANCE)
    assert pairs['a'].accuracy[:3] == (pytest.approx(1 / 3), 1, pytest.approx(2 / 3))
    assert pairs['a'].completion.other == 6 / 8
    assert pairs['b'].completion.other == 6 / 4
    assert mean.accuracy.difference == pytest.approx((2 / 3 + 1) / 2)
    assert mean.completion.difference == pytest.approx((0.25 + 1) / 2)
    assert wins([*pairs.values()]) == (2, 0, 0)


def test_wins_and_ties():
    first = {'a': outcomes([1, 0]), 'b': outcomes([1, 0])}
    second = {'a': outcomes([0, 1], nats=0.5), 'b': outcomes([1, 1])}
    pairs, _ = compared(first, second, CHANCE)
    assert wins([*pairs.values()]) == (1, 1, 1)
    assert wins([*compared(second, first, CHANCE)[0].values()]) == (0, 1, 0)


def test_intervals_hold_the_truth_and_are_narrower_than_unpaired_ones():
    """Both answer three in four examples alike, by what the example is; the rest by themselves."""
    held, widths = 0, []
    for seed in range(60):
        easy, alike = drawn(0.5, 400, [seed, 0]), drawn(0.75, 400, [seed, 1])
        ours, theirs = (np.where(alike, easy, drawn(share, 400, [seed, 2, i])) for i, share in enumerate((0.8, 0.4)))
        difference = compared({'a': outcomes(theirs)}, {'a': outcomes(ours)}, CHANCE)[0]['a'].accuracy
        truth = 0.25 * 0.4 / 0.75
        held += difference.low <= truth <= difference.high
        widths.append(difference.high - difference.low)
    assert 52 <= held <= 60
    unpaired = 2 * 1.96 * np.sqrt(2 * 0.25 / 400) / 0.75
    assert np.mean(widths) < 0.6 * unpaired


def test_the_same_seed_draws_the_same_examples():
    one, other = {'a': outcomes(drawn(0.4, 50, 0))}, {'a': outcomes(drawn(0.6, 50, 1))}
    assert compared(one, other, CHANCE, seed=3) == compared(one, other, CHANCE, seed=3)
    assert compared(one, other, CHANCE, seed=3) != compared(one, other, CHANCE, seed=4)


def test_what_is_said_of_a_task_depends_on_no_other():
    one, other = ({task: outcomes(drawn(share, 50, seed)) for seed, task in enumerate('ab')} for share in (0.4, 0.6))
    alone = compared({'b': one['b']}, {'b': other['b']}, CHANCE)[0]
    assert alone['b'] == compared(one, other, CHANCE)[0]['b']


def test_what_is_rounded_is_no_win():
    third = 1 / 3
    one = {'a': outcomes([0.1, 0.2, 0.3, third])}
    other = {'a': outcomes([third, 0.3, 0.2, 0.1])}
    pair = compared(one, other, CHANCE)[0]['a']
    assert pair.accuracy.difference != 0
    assert wins([pair]) == (0, 1, 0)


def test_what_cannot_be_compared():
    one = {'a': outcomes([1, 0])}
    with pytest.raises(ValueError, match='b: evaluated for one of the two only'):
        compared(one, {**one, 'b': outcomes([1])}, CHANCE)
    with pytest.raises(ValueError, match='a: the two were not evaluated on the same examples'):
        compared(one, {'a': outcomes([1, 0, 1])}, CHANCE)
