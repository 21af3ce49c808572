"""What is drawn from, how often, and what the draws depend on."""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest

from smelt_jax.generate.sampling import NOT_FINITE, Sampling, nucleus, pick

LOGITS_V = np.array([0.3, 2.0, -1.0, 2.0, 0.9, -30.0, 1.1], np.float32)
DRAWS = 20_000


def picked(logits_BV, settings, rows_B=None, positions_B=None):
    count = len(logits_BV)
    rows_B = np.zeros(count, np.int32) if rows_B is None else rows_B
    positions_B = np.arange(count, dtype=np.int32) if positions_B is None else positions_B
    function = jax.jit(functools.partial(pick, greedy=settings.greedy, narrow=settings.narrow))
    return np.asarray(function(logits_BV, rows_B, positions_B, settings.numbers()))


def wanted(logits_V, settings):
    """The distribution, by NumPy and by a loop."""
    probs_V = np.exp(np.float64(logits_V) / settings.temperature)
    order = sorted(range(len(probs_V)), key=lambda token: (-probs_V[token], token))
    order = order[: settings.top_k or None]
    share, kept = 0.0, []
    for token in order:
        if share / probs_V[order].sum() >= settings.top_p < 1:
            break
        kept.append(token)
        share += probs_V[token]
    out_V = np.zeros(len(probs_V))
    out_V[kept] = probs_V[kept] / probs_V[kept].sum()
    return out_V


SETTINGS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.5),
    Sampling(temperature=2.0),
    Sampling(temperature=1.0, top_k=3),
    Sampling(temperature=1.0, top_k=1),
    Sampling(temperature=1.0, top_k=99),
    Sampling(temperature=1.0, top_p=0.7),
    Sampling(temperature=1.3, top_p=1e-6),
    Sampling(temperature=1.0, top_p=0.999999),
    Sampling(temperature=0.7, top_k=4, top_p=0.9, seed=3),
]


@pytest.mark.parametrize('settings', SETTINGS, ids=str)
def test_frequencies_are_those_of_the_distribution(settings):
    tokens = picked(np.tile(LOGITS_V, (DRAWS, 1)), settings)
    found_V = np.bincount(tokens, minlength=len(LOGITS_V)) / DRAWS
    wanted_V = wanted(LOGITS_V, settings)
    assert np.all(found_V[wanted_V == 0] == 0)
    np.testing.assert_allclose(found_V, wanted_V, atol=4.5 * 0.5 / np.sqrt(DRAWS))


@pytest.mark.parametrize(('top_k', 'top_p'), [(5, 1.0), (2**31 - 1, 0.5), (40, 0.9), (3, 0.01)])
def test_the_set_is_the_smallest(top_k, top_p):
    scaled_BV = np.random.default_rng(1).standard_normal((20, 50), np.float32).round(1)  # with ties
    order_BV, kept_BV = map(np.asarray, nucleus(scaled_BV, top_k, top_p))
    settings = Sampling(temperature=1.0, top_k=min(top_k, 50), top_p=top_p)
    for scaled_V, order_V, kept_V in zip(scaled_BV, order_BV, kept_BV, strict=True):
        assert set(order_V[kept_V]) == set(np.flatnonzero(wanted(scaled_V, settings)))


def test_greedy_takes_the_lowest_of_the_best():
    assert picked(LOGITS_V[None], Sampling())[0] == 1
    assert picked(np.zeros((1, 9), np.float32), Sampling())[0] == 0
    assert picked(LOGITS_V[None], Sampling(temperature=1.0, top_k=1))[0] == 1


@pytest.mark.parametrize('temperature', [1e-30, 1e-38, 1e-46])
def test_next_to_no_temperature_is_greedy(temperature):
    settings = Sampling(temperature=temperature, top_k=2)
    assert picked(np.array([[0.0, 1, 3, 2, -1]], np.float32), settings).tolist() == [2]


def test_at_the_highest_temperature_the_best_are_drawn_from():
    settings = Sampling(temperature=1e30, top_k=2)
    assert set(picked(np.array([[0.0, 1, 3, 2, -1]] * 64, np.float32), settings).tolist()) == {2, 3}


def test_draws_depend_on_seed_row_and_position_alone():
    settings = Sampling(temperature=1.0, seed=7)
    logits_BV = np.random.default_rng(0).standard_normal((6, 300), np.float32)
    rows_B, positions_B = np.array([4, 0, 4, 2, 9, 1], np.int32), np.array([1, 5, 2, 2, 0, 5], np.int32)
    together = picked(logits_BV, settings, rows_B, positions_B)
    for i in range(6):
        alone = picked(logits_BV[i : i + 1], settings, rows_B[i : i + 1], positions_B[i : i + 1])
        assert alone == together[i]
    same = np.tile(np.zeros(10_000, np.float32), (3, 1))
    for changed in [
        picked(same, settings, np.arange(3, dtype=np.int32), np.zeros(3, np.int32)),
        picked(same, settings, np.zeros(3, np.int32), np.arange(3, dtype=np.int32)),
    ]:
        assert len(set(changed.tolist())) == 3
    assert picked(same[:1], settings) != picked(same[:1], dataclasses.replace(settings, seed=8))


def test_logits_that_are_not_finite_are_told():
    bad_BV = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 1.0], [-np.inf, -np.inf]], np.float32)
    for settings in (Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=1)):
        assert picked(bad_BV, settings).tolist() == [NOT_FINITE, NOT_FINITE, 1, NOT_FINITE]


@pytest.mark.parametrize(
    ('wrong', 'line'),
    [
        ({'temperature': -0.1}, 'temperature=-0.1: must be a number of at least 0'),
        ({'temperature': float('nan')}, 'temperature=nan: must be'),
        ({'temperature': float('inf')}, 'temperature=inf: must be'),
        ({'temperature': 1e31}, 'temperature=1e+31: must be'),
        ({'stops': ('\udcff',)}, 'a stop text is no UTF-8 text'),
        ({'top_k': -1}, 'top_k=-1: must be at least 0'),
        ({'top_p': 0.0}, 'top_p=0.0: must be above 0 and at most 1'),
        ({'top_p': 1.5}, 'top_p=1.5: must be above 0 and at most 1'),
        ({'new_tokens': 0}, 'new_tokens=0: must be at least 1'),
        ({'chunk': 0}, 'chunk=0: must be at least 1'),
        ({'seed': -1}, 'seed=-1: must be at least 0'),
        ({'seed': 2**31}, 'must be at least 0 and below'),
        ({'stops': ('a', '')}, "stops has ''"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, line):
    with pytest.raises(ValueError, match=re.escape(line)):
        Sampling(**wrong)
