"""The frontier in closed form is the minimum that a search finds; the published coefficients give the published numbers."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from smelt_jax.law import frontier as frontiers
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.frontier import frontier, of_fit, of_replicates, outside
from smelt_jax.law.published import fits_of

BASELINE, SMELT = fits_of('published:smelt')
CHINCHILLA = fits_of('published:besiroglu')[0]
LEVELS = (0.85, 0.95, 0.97)
COMPUTES = (1e20, 1e21, 1e22)


def searched(fit: Fitted, compute: float, sparsity: float | None) -> tuple[float, float]:
    """Size and loss of the least loss at `compute`, by a search along the law itself."""
    flops = 1.0 if sparsity is not None else 6.0
    size = 'N' if sparsity is None else 'F'

    def loss(log_size: float) -> float:
        columns = {size: np.exp(log_size), 'D': compute / (flops * np.exp(log_size))}
        return float(fit.loss(columns | ({} if sparsity is None else {'S': sparsity})))

    found = minimize_scalar(loss, bracket=(np.log(1e8), np.log(1e11)), tol=1e-12)
    return float(np.exp(found.x)), float(found.fun)


@pytest.mark.parametrize('compute', COMPUTES)
@pytest.mark.parametrize(
    ('fit', 'sparsity'), [*itertools.product((BASELINE, SMELT), (0.0, *LEVELS)), (CHINCHILLA, None)]
)
def test_closed_form_is_the_minimum(fit: Fitted, sparsity: float | None, compute: float) -> None:
    best = of_fit(fit, sparsity).best(compute)
    size, loss = searched(fit, compute, sparsity)
    assert abs(best.loss - loss) < 1e-8
    assert best.size == pytest.approx(size, rel=1e-5)  # flat there: half the digits of the loss
    assert best.size * best.tokens * (6 if sparsity is None else 1) == pytest.approx(compute, rel=1e-12)


@pytest.mark.parametrize('fit', [BASELINE, SMELT])
def test_the_frontier_is_a_power_of_compute_and_has_an_inverse(fit: Fitted) -> None:
    line = of_fit(fit, 0.95)
    above = [line.best(compute).loss - line.floor for compute in COMPUTES]
    assert np.diff(np.log(above)) / np.log(10) == pytest.approx(-line.gamma, rel=1e-9)
    assert line.compute(line.best(3e20).loss) == pytest.approx(3e20, rel=1e-9)
    assert line.compute(line.floor) == np.inf == line.compute(line.floor - 1)


def test_published_exponents() -> None:
    assert [f'{of_fit(fit, 0.95).gamma:.3f}' for fit in (BASELINE, SMELT)] == ['0.237', '0.250']
    assert f'{of_fit(SMELT, 0.9).gamma / of_fit(BASELINE, 0.9).gamma - 1:.1%}' == '5.5%'
    (hoffmann,) = fits_of('published:chinchilla')
    line = of_fit(hoffmann)
    assert line.tokens_exponent / (line.size_exponent + line.tokens_exponent) == pytest.approx(0.4565, abs=1e-3)


@pytest.mark.parametrize('sparsity', LEVELS)
def test_tokens_per_parameter_differ_by_less_than_six_percent_and_are_far_above_twenty(sparsity: float) -> None:
    ours, theirs = (of_fit(fit, sparsity).tokens_per_parameter(1e21) for fit in (SMELT, BASELINE))
    assert abs(ours / theirs - 1) < 0.06
    assert min(ours, theirs) > 2.5 * 20


def test_tokens_per_parameter_of_a_dense_model_are_tokens_over_parameters() -> None:
    line = of_fit(CHINCHILLA)
    best = line.best(5.76e23)
    assert line.tokens_per_parameter(5.76e23) == pytest.approx(best.tokens / best.size)
    assert 10 < best.tokens / best.size < 40  # Chinchilla's 20


def test_replicates_are_as_many_fits() -> None:
    drawn = [BASELINE.coefficients, SMELT.coefficients]
    many = of_replicates(Fitted('smelt', BASELINE.coefficients, replicates=drawn), 0.95)
    for i, fit in enumerate((BASELINE, SMELT)):
        one = of_fit(fit, 0.95)
        assert many.best(1e21).loss[i] == pytest.approx(one.best(1e21).loss, rel=1e-12)
        assert many.compute(2.0)[i] == pytest.approx(float(one.compute(2.0)), rel=1e-12)


def test_what_lies_outside_is_named() -> None:
    best = of_fit(BASELINE, 0.95).best(1e22)
    assert outside(BASELINE, 1e22, best, 0.95) == ('C', 'D')
    assert outside(BASELINE, 1e21, of_fit(BASELINE, 0.5).best(1e21), 0.5) == ('S',)
    assert outside(Fitted('smelt', BASELINE.coefficients), 1e30, best, 0.95) == ()


@pytest.mark.parametrize(
    ('law', 'sparsity', 'complaint'),
    [
        ('smelt', None, 'smelt takes a sparsity S'),
        ('smelt', 1.0, 'sparsity=1.0: S is from 0 to below 1'),
        ('chinchilla', 0.5, 'chinchilla has no sparsity; leave it out'),
        ('moe', None, 'moe has no frontier in closed form; smelt and chinchilla have'),
    ],
)
def test_a_wrong_question_is_named(law: str, sparsity: float | None, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        frontier(law, BASELINE.coefficients, sparsity)


def test_sizes_and_shapes_are_of_the_same_laws() -> None:
    assert frontiers.SIZES.keys() == frontiers.SHAPES.keys()
