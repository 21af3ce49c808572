"""Numbers with units are read as people write them, and what is none is named."""

import pytest

from smelt_jax.law.units import bytes_text, flops_text, number, share, size, whole


@pytest.mark.parametrize(
    ('text', 'value'),
    [('3GB', 3e9), ('3gb', 3e9), ('0.5 GiB', 2.0**29), ('512MiB', 2.0**29), ('1e3KB', 1e6), ('7B', 7)],
)
def test_bytes(text: str, value: float) -> None:
    assert size(text, '--memory') == value


@pytest.mark.parametrize('text', ['3', 'GB', '3GBB', '-1GB', '3 G', 'nanGB', '', '0GB'])
def test_no_bytes(text: str) -> None:
    with pytest.raises(ValueError, match='--memory='):
        size(text, '--memory')


def test_numbers() -> None:
    assert number('5e20', '--flops') == 5e20
    assert whole(['1', '2', '8'], '--experts') == [1, 2, 8]
    assert share('0', '--sparsity') == 0
    for wrong in ('0', '-1', 'inf', 'nan', 'x', ''):
        with pytest.raises(ValueError, match=f'--flops={wrong}: give a number above 0'):
            number(wrong, '--flops')
    for rows in (['2', '1'], ['1', '1'], ['1.5'], []):
        with pytest.raises(ValueError, match='give whole numbers from 1'):
            whole(rows, '--experts')


def test_texts() -> None:
    assert [bytes_text(value) for value in (2.708e9, 235e6, 12)] == ['2.71 GB', '235 MB', '12 B']
    assert [flops_text(value) for value in (5e20, 1.5e22, 1e21)] == ['5e20', '1.5e22', '1e21']
