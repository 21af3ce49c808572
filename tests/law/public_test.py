"""Public tables of measured losses, where they are at hand: SMELT_TEST_LAWS, or shared/data/laws beside the repository."""

import numpy as np
import pytest
from lawcheck.checks import TABLES, Check
from lawcheck.isoflop import minimum
from lawcheck.public import PUBLIC


@pytest.mark.skipif(not (TABLES / 'published_fits.json').exists(), reason=f'no tables at {TABLES}')
@pytest.mark.parametrize('name', PUBLIC)
def test_a_public_table_gives_what_was_published(name: str) -> None:
    missed = [check for check in PUBLIC[name]() if not check.met]
    assert missed == []


def test_a_check_is_met_within_its_tolerance() -> None:
    assert Check('', '', 2.0, 2.1, 0.11).met
    assert not Check('', '', 2.0, 2.1, 0.09).met
    assert Check('', '', -200.0, -210.0, 0.06, relative=True).met
    assert not Check('', '', -200.0, -210.0, 0.04, relative=True).met
    assert not Check('', '', 1.0, float('nan'), 0.1).met
    assert '**no**' in Check('', '', 2.0, 3.0, 0.1).row()


def test_the_minimum_of_a_parabola_is_found_between_its_points() -> None:
    size = np.exp(np.linspace(15, 20, 9))
    assert np.log(minimum(size, np.exp(0.01 * (np.log(size) - 17.3) ** 2))) == pytest.approx(17.3, abs=0.02)
    assert minimum(size, size) is None
