"""Published coefficients are fits of laws that are there."""

import pytest

from smelt_jax.law.fitted import load, save
from smelt_jax.law.published import PUBLISHED, fits_of


@pytest.mark.parametrize('name', PUBLISHED)
def test_every_set_is_a_fit_with_all_coefficients_and_a_source(name: str, tmp_path) -> None:
    fits = fits_of(f'published:{name}')
    for fit in fits:
        assert set(fit.coefficients) == set(fit.kind.names)
        for coefficient in fit.kind.coefficients:
            assert coefficient.low <= fit.coefficients[coefficient.name] <= coefficient.high
        assert fit.details['source']
        assert fit.replicates == []
    save(fits, tmp_path / 'fit.json')
    assert [fit.coefficients for fit in load(tmp_path / 'fit.json')] == [fit.coefficients for fit in fits]


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match='published:smelted: there are published:smelt, published:looped-moe'):
        fits_of('published:smelted')


# Ludziejewski et al., table 4: their law at a given number of experts, m N^mu + n D^nu + c.
TABLE = {
    1: (30.364, -0.1817, 53.9838, -0.1965),
    2: (27.7982, -0.178, 66.8401, -0.2065),
    4: (24.8462, -0.1731, 87.7022, -0.2192),
    8: (21.833, -0.1676, 119.9126, -0.2338),
    16: (19.0159, -0.1617, 167.5073, -0.2494),
    32: (16.5424, -0.1557, 234.6726, -0.2652),
}


@pytest.mark.parametrize('experts', TABLE)
def test_the_joint_law_is_the_one_of_its_second_table(experts: int) -> None:
    (fit,) = fits_of('published:joint-moe')
    m, mu, n, nu = TABLE[experts]
    far = 1e30  # leaves one term alone
    by_size = float(fit.loss({'N': 1e9, 'D': far**3, 'E': experts})) - 1.3637
    by_data = float(fit.loss({'N': far**3, 'D': 1e11, 'E': experts})) - 1.3637
    assert by_size == pytest.approx(m * 1e9**mu, rel=5e-3)
    assert by_data == pytest.approx(n * 1e11**nu, rel=5e-3)


def test_two_readings_of_the_same_points_differ_little_within_them() -> None:
    (first,), (second,) = fits_of('published:chinchilla'), fits_of('published:besiroglu')
    at = {'N': 1e9, 'D': 2e10}
    assert abs(float(first.loss(at)) - float(second.loss(at))) < 0.05
