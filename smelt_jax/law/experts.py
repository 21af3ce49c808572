"""Ê, the number of experts as a law sees it: few are worth more than their number, many less."""

from typing import Any

import numpy as np


def log_ehat(experts: Any, start: Any, most: Any) -> Any:
    """ln Ê, with 1/Ê = 1/(E − 1 + 1/(1/E_start − 1/E_max)) + 1/E_max. Clark et al. 2022 (arXiv 2202.01169), section 4.

    Ê rises with E, from E_start at E = 1 towards E_max. It takes 0 < E_start < E_max and E ≥ 1.
    """
    return -np.log(1 / (experts - 1 + 1 / (1 / start - 1 / most)) + 1 / most)
