"""Loss of a mixture of experts by its active parameters, its tokens and its experts."""

import dataclasses
from typing import Any

import numpy as np

from smelt_jax.law.experts import log_ehat
from smelt_jax.law.law import Coefficient, Columns, Law


def predict(of: Any, at: Columns) -> Any:
    """A Ê^delta N^(alpha + gamma ln Ê) + B Ê^omega D^(beta + zeta ln Ê) + c."""
    ehat = log_ehat(at['E'], of['E_start'], of['E_max'])
    by_size = of['A'] * np.exp(of['delta'] * ehat + (of['alpha'] + of['gamma'] * ehat) * np.log(at['N']))
    by_data = of['B'] * np.exp(of['omega'] * ehat + (of['beta'] + of['zeta'] * ehat) * np.log(at['D']))
    return by_size + by_data + of['c']


EXPERTS = 'experts / experts a token uses, 1 of a dense model'

# At E = 1 Ê is E_start for all rows, so that the law is Chinchilla's. The bounds of E_start and E_max do not meet: else Ê
# would fall with E.
MOE = Law(
    name='moe',
    formula='A Ê^delta N^(alpha + gamma ln Ê) + B Ê^omega D^(beta + zeta ln Ê) + c, Ê of E, E_start, E_max',
    source='Ludziejewski et al. 2025 (arXiv 2502.05172), in the units of Scaling Laws for Looped Mixture of Experts (2026)',
    columns={
        'N': 'active parameters, in billions',
        'D': 'training tokens, in billions',
        'E': EXPERTS,
    },
    coefficients=(
        Coefficient('A', 1e-3, 1e6, (0.3, 1.0, 3.0), log=True),
        Coefficient('alpha', -2.0, -0.005, (-0.5, -0.2, -0.1)),
        Coefficient('delta', -3.0, 3.0, (-0.3, -0.1, 0.0)),
        Coefficient('gamma', -0.5, 0.5, (-0.02, 0.0, 0.02)),
        Coefficient('B', 1e-3, 1e9, (0.3, 3.0, 30.0), log=True),
        Coefficient('beta', -2.5, -0.005, (-0.8, -0.4, -0.2)),
        Coefficient('omega', -3.0, 3.0, (-0.3, 0.0, 0.3)),
        Coefficient('zeta', -0.5, 0.5, (-0.05, 0.0, 0.05)),
        Coefficient('E_start', 1.0, 10.0, (1.3, 2.0, 4.0), log=True),
        Coefficient('E_max', 12.0, 1e5, (30.0, 100.0, 400.0), log=True),
        Coefficient('c', 0.01, 10.0, (0.5, 1.0, 1.5, 2.0), log=True),
    ),
    predict=predict,
    unit=1e9,
)

# The same function of raw counts: its A and B then hold what a billion to the power of alpha and beta is.
RAW = {'A': (1.0, 30.0, 1e3), 'B': (1.0, 30.0, 1e3), 'beta': (-0.4, -0.2, -0.1)}

LAWS = (
    MOE,
    dataclasses.replace(
        MOE,
        name='joint-moe',
        source='Ludziejewski et al. 2025 (arXiv 2502.05172), whose a and b are A and B here',
        columns={'N': 'active parameters with embeddings', 'D': 'training tokens', 'E': EXPERTS},
        coefficients=tuple(dataclasses.replace(c, grid=RAW.get(c.name, c.grid)) for c in MOE.coefficients),
        unit=1.0,
    ),
)
