"""Loss of routed models by their dense size and their experts, at one number of tokens: a plane in logarithms, bent by Ê."""

from typing import Any

import numpy as np

from smelt_jax.law.experts import log_ehat
from smelt_jax.law.law import Coefficient, Columns, Law

LN10 = np.log(10)


def routed(of: Any, at: Columns) -> Any:
    """log10 L = a log10 N + b log10 Ê + c log10 N log10 Ê + d."""
    size = np.log10(at['N'])
    experts = log_ehat(at['E'], of['E_start'], of['E_max']) / LN10
    return np.exp(LN10 * (of['a'] * size + of['b'] * experts + of['c'] * size * experts + of['d']))


def dense(of: Any, at: Columns) -> Any:
    """(N_c / N)^alpha."""
    return np.exp(of['alpha'] * (np.log(of['N_c']) - np.log(at['N'])))


SIZE = 'parameters of the dense model that the experts were added to'

LAWS = (
    Law(
        name='clark',
        formula='10^(a log10 N + b log10 Ê + c log10 N log10 Ê + d), Ê of E, E_start, E_max',
        source='Clark et al. 2022 (arXiv 2202.01169), equation 1',
        columns={'N': SIZE, 'E': 'experts, 1 of a dense model'},
        coefficients=(
            Coefficient('a', -1.0, 0.0, (-0.2, -0.1, -0.05)),
            Coefficient('b', -1.0, 1.0, (-0.2, -0.1, 0.0)),
            Coefficient('c', -0.5, 0.5, (-0.01, 0.0, 0.01)),
            Coefficient('d', -5.0, 5.0, (0.5, 1.0, 1.5)),
            Coefficient('E_start', 1.0, 10.0, (1.5, 2.0, 4.0), log=True),
            Coefficient('E_max', 12.0, 1e5, (100.0, 300.0, 1000.0), log=True),
        ),
        predict=routed,
    ),
    Law(
        name='clark-dense',
        formula='(N_c / N)^alpha',
        source='Clark et al. 2022 (arXiv 2202.01169), equation 8; Kaplan et al. 2020 (arXiv 2001.08361)',
        columns={'N': 'parameters'},
        coefficients=(
            Coefficient('alpha', 1e-3, 2.5, (0.05, 0.1, 0.3)),
            Coefficient('N_c', 1.0, 1e20, (1e9, 1e12, 1e15), log=True),
        ),
        predict=dense,
    ),
)
