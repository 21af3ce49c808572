"""Numbers as people write them: 5e20, 3GB, and back."""

import math
from collections.abc import Sequence

SIZES = {
    'B': 1.0,
    'KB': 1e3,
    'MB': 1e6,
    'GB': 1e9,
    'TB': 1e12,
    'KIB': 2.0**10,
    'MIB': 2.0**20,
    'GIB': 2.0**30,
    'TIB': 2.0**40,
}


def number(text: str, what: str) -> float:
    """5e20, 1_000, 0.95. Raises ValueError, naming `what`, of what is no finite number, or none above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f'{what}={text}: give a number above 0, as 5e20')
    return value


def numbers(texts: Sequence[str], what: str) -> list[float]:
    """`number` of each."""
    return [number(text, what) for text in texts]


def share(text: str, what: str) -> float:
    """From 0 to below 1. Raises ValueError, naming `what`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise ValueError(f'{what}={text}: give a share from 0 to below 1, as 0.95')
    return value


def whole(texts: Sequence[str], what: str) -> list[int]:
    """Whole numbers from 1, rising. Raises ValueError, naming `what`."""
    values = numbers(texts, what)
    if not values or any(value != int(value) or value < 1 for value in values) or sorted(set(values)) != values:
        raise ValueError(f'{what}={",".join(texts)}: give whole numbers from 1, each larger than the one before')
    return [int(value) for value in values]


def size(text: str, what: str) -> float:
    """Bytes of 3GB (1e9 each) or 3GiB (2^30 each). Raises ValueError, naming `what`."""
    digits = text.strip().rstrip('BbKkMmGgTtIi')
    unit = text.strip()[len(digits) :].upper()
    if unit not in SIZES:
        raise ValueError(f'{what}={text}: give bytes with a unit, as 3GB or 512MiB')
    return number(digits, what) * SIZES[unit]


def bytes_text(count: float) -> str:
    """Bytes with a decimal unit, three digits: 2.71 GB."""
    for unit in ('TB', 'GB', 'MB', 'KB'):
        if count >= SIZES[unit]:
            return f'{count / SIZES[unit]:.3g} {unit}'
    return f'{count:.3g} B'


def flops_text(value: float) -> str:
    """5e20, 1.5e22: a power of ten without what says nothing."""
    mantissa, _, exponent = f'{value:.3e}'.partition('e')
    return f'{float(mantissa):g}e{int(exponent)}'
