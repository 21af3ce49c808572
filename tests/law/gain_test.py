"""CE gain: the published numbers from the published coefficients, and what intervals and groups mean."""

import dataclasses
import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest

from smelt_jax.law.fitted import Fitted, save
from smelt_jax.law.frontier import frontier, of_fit
from smelt_jax.law.gain import gain, gains
from smelt_jax.law.gain_report import pairs_of
from smelt_jax.law.published import fits_of

BASELINE, SMELT = fits_of('published:smelt')
# C, S → percent as the study prints it, and as its coefficients, rounded as printed, give it.
PUBLISHED = {
    (1e20, 0.85): ('10.0', '9.9'),
    (1e20, 0.95): ('7.8', '7.7'),
    (1e20, 0.97): ('6.8', '6.7'),
    (1e21, 0.85): ('18.0', '17.9'),
    (1e21, 0.95): ('15.8', '15.7'),
    (1e21, 0.97): ('14.7', '14.6'),
    (1e22, 0.85): ('23.5', '23.4'),
    (1e22, 0.95): ('20.9', '20.8'),
    (1e22, 0.97): ('19.6', '19.5'),
}
LAST_DIGIT = {
    'baseline': {'E': 1e-4, 'A': 1, 'a': 1e-4, 'b': 1e-4, 'K': 1e3, 'c': 1e-4},
    'smelt': {'E': 1e-4, 'A': 1, 'a': 1e-4, 'b': 1e-4, 'K': 1e3, 'c': 1e-4},
}


@pytest.mark.parametrize(('compute', 'sparsity'), PUBLISHED)
def test_published_gains_but_for_a_tenth_of_a_point(compute: float, sparsity: float) -> None:
    printed, rounded = PUBLISHED[compute, sparsity]
    found = gain(BASELINE, SMELT, compute, sparsity)
    assert f'{100 * found.gain:.1f}' == rounded
    assert abs(100 * found.gain - float(printed)) < 0.15
    assert (found.low, found.high) == (None, None)
    assert bool(found.outside) == (compute == 1e22)  # which the study calls extrapolated, too


def test_rounding_of_the_coefficients_explains_more_than_that_tenth() -> None:
    corners = np.array(list(itertools.product((-0.5, 0.5), repeat=12))).T
    arms = []
    for i, fit in enumerate((BASELINE, SMELT)):
        digits = LAST_DIGIT[fit.group]
        arms.append({name: fit.coefficients[name] + corners[6 * i + j] * digits[name] for j, name in enumerate(digits)})
    for (compute, sparsity), (printed, _) in PUBLISHED.items():
        loss = frontier('smelt', arms[1], sparsity).best(compute).loss
        found = 100 * (1 - compute / frontier('smelt', arms[0], sparsity).compute(loss))
        assert found.min() + 1 < float(printed) < found.max() - 1


def test_the_gap_grows_by_about_eight_points_a_decade() -> None:
    first, second = (gain(BASELINE, SMELT, compute, 0.95).gain for compute in (1e20, 1e21))
    assert 0.07 < second - first < 0.09


def test_both_arms_have_the_same_loss_and_the_gain_is_the_compute_saved() -> None:
    found = gain(BASELINE, SMELT, 3e20, 0.9)
    assert of_fit(BASELINE, 0.9).best(found.reference_compute).loss == pytest.approx(found.loss, rel=1e-12)
    assert found.gain == pytest.approx(1 - 3e20 / found.reference_compute)
    assert gain(BASELINE, BASELINE, 3e20, 0.9).gain == pytest.approx(0, abs=1e-12)


def test_a_loss_below_the_reference_s_floor_saves_everything() -> None:
    better = dataclasses.replace(SMELT, coefficients=SMELT.coefficients | {'E': 0.5})
    found = gain(BASELINE, better, 1e22, 0.9)
    assert (found.gain, found.reference_compute) == (1.0, np.inf)


def test_a_reference_that_needs_next_to_nothing_is_no_error() -> None:
    steep = dataclasses.replace(
        BASELINE, coefficients=BASELINE.coefficients | {'a': 0.01, 'c': 0.01, 'A': 1e-3, 'K': 1e-3}
    )
    worse = dataclasses.replace(SMELT, coefficients=SMELT.coefficients | {'E': 9.9})
    with warnings.catch_warnings(action='error'):
        found = gain(steep, worse, 1e21, 0.95)
    assert (found.gain, found.reference_compute) == (-np.inf, 0)


def test_two_fits_of_a_group_are_named(tmp_path: Path) -> None:
    save([BASELINE, SMELT, SMELT], tmp_path / 'fit.json')
    with pytest.raises(ValueError, match=r'fit\.json has two fits of .smelt.; which is meant would be a guess'):
        pairs_of([f'{tmp_path}/fit.json'], 'baseline')


def drawn(fit: Fitted, noise: int, shared: np.ndarray, **details: object) -> Fitted:
    """`fit` with replicates: its floor moves by `shared`, which both arms can have in common, and by some noise of its own."""
    moves = shared + 1e-4 * np.random.default_rng(noise).normal(size=len(shared))
    each = [fit.coefficients | {'E': fit.coefficients['E'] + move} for move in moves]
    return dataclasses.replace(fit, replicates=each, details=details)


def test_pairing_takes_out_what_moves_both_arms() -> None:
    rng = np.random.default_rng(0)
    shared = 0.01 * rng.normal(size=400)
    same = {'bootstrap': 'cells', 'seed': 0, 'cells': ['a', 'b']}
    reference, target = drawn(BASELINE, 1, shared, **same), drawn(SMELT, 2, shared, **same)
    paired = gain(reference, target, 1e21, 0.95)
    apart = gain(
        drawn(BASELINE, 1, rng.permutation(shared), **same), drawn(SMELT, 2, shared, bootstrap='points'), 1e21, 0.95
    )
    assert paired.paired
    assert not apart.paired
    assert None not in (paired.low, paired.high, apart.low, apart.high)
    assert paired.low < paired.gain < paired.high
    assert apart.high - apart.low > 10 * (paired.high - paired.low)


@pytest.mark.parametrize('change', [{'seed': 1}, {'cells': ['a', 'c']}, {'bootstrap': 'points'}, {'cells': None}])
def test_replicates_of_other_draws_are_not_paired(change: dict[str, object]) -> None:
    same = {'bootstrap': 'cells', 'seed': 0, 'cells': ['a', 'b']}
    found = gain(drawn(BASELINE, 1, np.zeros(9), **same), drawn(SMELT, 2, np.zeros(9), **(same | change)), 1e21, 0.95)
    assert not found.paired
    unknown = {'bootstrap': 'cells', 'seed': 0}  # of which cells neither says
    assert not gain(
        drawn(BASELINE, 1, np.zeros(9), **unknown), drawn(SMELT, 2, np.zeros(9), **unknown), 1e21, 0.95
    ).paired


def test_numbers_of_replicates_that_differ_are_named() -> None:
    with pytest.raises(ValueError, match='baseline has 3 replicates and smelt 4; fit both with the same number'):
        gain(drawn(BASELINE, 1, np.zeros(3)), drawn(SMELT, 2, np.zeros(4)), 1e21, 0.95)
    (dense,) = fits_of('published:chinchilla')
    with pytest.raises(
        ValueError, match='baseline is a fit of smelt and chinchilla of chinchilla; a gain is of one law'
    ):
        gain(BASELINE, dense, 1e21, 0.95)
    with pytest.raises(ValueError, match='compute=0'):
        gain(BASELINE, SMELT, 0, 0.95)


def test_groups_are_gained_each_by_its_own_fits() -> None:
    pairs = {'code': (BASELINE, SMELT), 'web': (SMELT, BASELINE)}
    found = gains(pairs, [1e20, 1e21], [0.85, 0.95])
    assert [(one.group, one.sparsity, one.compute) for one in found] == list(
        itertools.product(('code', 'web'), (0.85, 0.95), (1e20, 1e21))
    )
    assert all((one.gain > 0) == (one.group == 'code') for one in found)
