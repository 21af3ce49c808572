"""Laws: their limits, their units, their gradients."""

import dataclasses
import itertools

import numpy as np
import pytest
from lawcheck.synthetic import columns_for, looped_columns, truths

from smelt_jax.law.experts import log_ehat
from smelt_jax.law.laws import law_named, laws
from smelt_jax.law.maps import MAPS, looped
from smelt_jax.law.objective import Objective

TRUTHS = truths()
MOE = looped_columns()
MAP_NAMES = [by.name for by in MAPS]


def close(found: np.ndarray, wanted: np.ndarray, within: float = 1e-12) -> None:
    np.testing.assert_allclose(found, wanted, rtol=within)


def test_every_law_has_a_truth_to_be_tested_at() -> None:
    assert set(TRUTHS) == set(laws())


@pytest.mark.parametrize('name', sorted(laws()))
def test_gradients_are_those_of_central_differences(name: str) -> None:
    law = law_named(name)
    at = {column: values[::7] for column, values in columns_for(law).items()}
    rng = np.random.default_rng(0)
    truth = np.array([TRUTHS[name][of] for of in law.names])
    low, high = (np.array([getattr(c, end) for c in law.coefficients]) for end in ('low', 'high'))
    for _ in range(5):
        point = np.clip(truth * np.exp(0.2 * rng.standard_normal(len(truth))), low, high)
        loss, slopes = law.loss_and_jacobian(point, at)
        close(loss, law.loss(dict(zip(law.names, point, strict=True)), at))
        for i, slope in enumerate(slopes):
            step = 1e-5 * abs(point[i]) * np.eye(len(point))[i]
            ends = (dict(zip(law.names, point + sign * step, strict=True)) for sign in (1, -1))
            up, down = (law.loss(end, at) for end in ends)
            np.testing.assert_allclose(
                slope, (up - down) / (2 * step[i]), rtol=1e-5, atol=1e-8 * loss.max() / abs(point[i])
            )


def test_many_coefficients_at_a_time_are_each_by_itself() -> None:
    law = law_named('looped-bounded-m-moe')
    truth = np.array([TRUTHS[law.name][of] for of in law.names])
    many = truth * np.linspace(0.9, 1.1, 6).reshape(2, 3, 1)
    loss, slopes = law.loss_and_jacobian(many, MOE)
    assert loss.shape == (2, 3, len(MOE['N']))
    assert slopes.shape == (2, 3, len(truth), len(MOE['N']))
    for i in itertools.product(range(2), range(3)):
        one, slope = law.loss_and_jacobian(many[i], MOE)
        close(loss[i], one)
        close(slopes[i], slope)


@pytest.mark.parametrize('kind', ['dense', 'moe'])
@pytest.mark.parametrize('name', MAP_NAMES)
def test_at_one_visit_a_looped_law_is_its_inner_law(name: str, kind: str) -> None:
    law = law_named(f'looped-{name}-{kind}')
    at = columns_for(law)
    at = at | {'R': np.ones_like(at['R'])}
    assert law.inner is not None
    inner = {of: TRUTHS[law.name][of] for of in law.inner.names}
    close(law.loss(TRUTHS[law.name], at), law.inner.loss(inner, at))
    assert not np.allclose(law.loss(TRUTHS[law.name], at | {'R': at['R'] + 1}), law.loss(TRUTHS[law.name], at))


def test_where_all_is_active_theta_has_no_effect() -> None:
    at = MOE | {'m': np.ones_like(MOE['m'])}
    by_m, bounded = law_named('looped-bounded-m-moe'), law_named('looped-bounded-moe')
    for theta in (0.0, 0.3, 3.0):
        close(by_m.loss(TRUTHS[by_m.name] | {'theta': theta}, at), bounded.loss(TRUTHS[bounded.name], at))


def test_with_one_expert_and_one_visit_it_is_chinchilla() -> None:
    law, dense = law_named('looped-bounded-m-moe'), law_named('chinchilla')
    truth = TRUTHS[law.name]
    at = {name: values[(MOE['E'] == 1) & (MOE['R'] == 1)] for name, values in MOE.items()}
    ehat = truth['E_start']
    of = {
        'E': truth['c'],
        'A': truth['A'] * ehat ** truth['delta'],
        'B': truth['B'] * ehat ** truth['omega'],
        'alpha': -(truth['alpha'] + truth['gamma'] * np.log(ehat)),
        'beta': -(truth['beta'] + truth['zeta'] * np.log(ehat)),
    }
    close(law.loss(truth, at), dense.loss(of, at))


def worth(name: str, visits: float, share: float = 0.2) -> float:
    """What `visits` of a loop are worth in N_loop, by the map `name` at the published coefficients."""
    (by,) = (by for by in MAPS if by.name == name)
    of = {c.name: TRUTHS[f'looped-{name}-moe'][c.name] for c in by.coefficients}
    return float(by.effective(of, {'N': 0.0, 'N_loop': 1.0, 'R': np.float64(visits), 'm': np.float64(share)}))


def test_for_a_vanishing_share_a_visit_more_is_always_worth_the_same() -> None:
    slope = TRUTHS['looped-bounded-m-moe']['kappa1'] / TRUTHS['looped-bounded-m-moe']['kappa2']
    for visits in (2, 16, 256):
        assert worth('bounded-m', visits, share=1e-30) == pytest.approx(slope * (visits - 1), rel=1e-6)
    assert worth('bounded-m', 256, share=0.5) < 0.1 * slope * 255


def test_without_end_visits_are_worth_the_cap() -> None:
    of = TRUTHS['looped-bounded-m-moe']
    assert worth('bounded', 1e9) == pytest.approx(of['kappa1'], rel=1e-12)
    assert worth('bounded-m', 1e9) == pytest.approx(of['kappa1'] * 0.2 ** -of['theta'], rel=1e-12)
    assert worth('power', 16) == pytest.approx(16**0.459 - 1, rel=1e-12)
    assert worth('linear', 16) == 15


def test_ehat_rises_from_its_start_to_its_cap() -> None:
    experts = np.concatenate([np.arange(1, 1000), [1e6, 1e12]])
    for start, most in ((1.3174, 57.12), (4.175, 477.7), (1.0, 1e5)):
        ehat = np.exp(log_ehat(experts, start, most))
        assert (np.diff(ehat) > 0).all()
        assert ehat[0] == pytest.approx(start, rel=1e-12)
        assert ehat[-1] == pytest.approx(most, rel=1e-6)


@pytest.mark.parametrize('name', ['moe', 'joint-moe', 'clark'])
def test_bounds_keep_ehat_rising(name: str) -> None:
    of = {c.name: c for c in law_named(name).coefficients}
    assert of['E_start'].high < of['E_max'].low


def test_moe_in_billions_is_joint_moe_raw() -> None:
    """N → 1e9 N changes A by a factor and delta by a term, B and omega likewise, and nothing else."""
    raw = TRUTHS['joint-moe']
    billion = np.log(1e9)
    of = raw | {
        'A': raw['A'] * np.exp(raw['alpha'] * billion),
        'delta': raw['delta'] + raw['gamma'] * billion,
        'B': raw['B'] * np.exp(raw['beta'] * billion),
        'omega': raw['omega'] + raw['zeta'] * billion,
    }
    at = columns_for(law_named('joint-moe'))
    small = {name: values / (1e9 if name in 'ND' else 1) for name, values in at.items()}
    close(law_named('moe').loss(of, small), law_named('joint-moe').loss(raw, at))


def test_no_number_is_lost_far_out() -> None:
    law = law_named('chinchilla')
    far = {'N': np.array([1.0, 1e30]), 'D': np.array([1e30, 1.0])}
    assert np.isfinite(law.loss({'E': 1.0, 'A': 1e12, 'B': 1e12, 'alpha': 2.5, 'beta': 2.5}, far)).all()


def test_a_map_composes_with_any_law_that_has_n() -> None:
    law = looped(law_named('clark-dense'), MAPS[0], 'tried')
    at = {'N': np.array([1e9]), 'N_loop': np.array([5e8]), 'R': np.array([3.0])}
    of = TRUTHS['clark-dense']
    close(law.loss(of, at), law_named('clark-dense').loss(of, {'N': np.array([2e9])}))
    assert set(law.columns) == {'N', 'N_loop', 'R'}


def test_an_unknown_law_is_an_error_that_lists_all() -> None:
    with pytest.raises(ValueError, match=r'there is no law .chinchila.; there are chinchilla, clark'):
        law_named('chinchila')


def test_the_objective_is_hubers_and_its_gradient_exact() -> None:
    law = law_named('smelt')
    at = columns_for(law)
    loss = law.loss(TRUTHS['smelt'], at) * np.exp(3e-3 * np.random.default_rng(0).standard_normal(len(at['F'])))
    for residuals, of_loss in (('log', np.log), ('linear', np.asarray), ('log10', np.log10)):
        objective = Objective(law, at, loss, residuals, 2e-3)
        x = objective.start(TRUTHS['smelt'])
        r = np.abs(of_loss(law.loss(TRUTHS['smelt'], at)) - of_loss(loss))
        wanted = np.where(r <= 2e-3, r**2 / 2, 2e-3 * (r - 1e-3)).sum()
        assert objective.plain(x) == pytest.approx(wanted, rel=1e-9)
        value, gradient = objective.value_and_gradient(x)
        assert value == pytest.approx(wanted * 1e6, rel=1e-9)
        for i in range(len(x)):
            step = 1e-7 * np.eye(len(x))[i]
            ends = [objective.value_and_gradient(x + sign * step)[0] for sign in (1, -1)]
            assert gradient[i] == pytest.approx((ends[0] - ends[1]) / 2e-7, rel=1e-3, abs=1e-2)


def test_an_objective_of_nonsense_is_refused() -> None:
    law = law_named('clark-dense')
    one = {'N': np.array([1e9])}
    with pytest.raises(ValueError, match='there are log, linear, log10'):
        Objective(law, one, np.array([2.0]), 'relative')
    with pytest.raises(ValueError, match='delta=0'):
        dataclasses.replace(Objective(law, one, np.array([2.0])), delta=0)
