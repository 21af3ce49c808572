"""Intervals of what was drawn many times."""

from typing import Any

import numpy as np

LEVEL = 0.95  # the share of the draws that lies within


def interval(values: Any, level: float = LEVEL, axis: int = -1) -> Any:
    """(low, high): the percentiles between which `level` of `values` lie, along `axis`."""
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=axis)
