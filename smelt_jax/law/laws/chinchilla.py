"""Loss of a dense model by its size and its tokens."""

from typing import Any

import numpy as np

from smelt_jax.law.law import Coefficient, Columns, Law


def predict(of: Any, at: Columns) -> Any:
    """E + A / N^alpha + B / D^beta."""
    by_size = of['A'] * np.exp(-of['alpha'] * np.log(at['N']))
    return of['E'] + by_size + of['B'] * np.exp(-of['beta'] * np.log(at['D']))


LAWS = (
    Law(
        name='chinchilla',
        formula='E + A / N^alpha + B / D^beta',
        source='Hoffmann et al. 2022 (arXiv 2203.15556), approach 3',
        columns={'N': 'parameters', 'D': 'training tokens'},
        coefficients=(
            Coefficient('E', 0.01, 10.0, (0.5, 1.0, 1.5, 2.0), log=True),
            Coefficient('A', 1e-3, 1e12, (1.0, 1e2, 1e4, 1e6), log=True),
            Coefficient('B', 1e-3, 1e12, (1.0, 1e2, 1e4, 1e6), log=True),
            Coefficient('alpha', 0.01, 2.5, (0.2, 0.4, 0.8)),
            Coefficient('beta', 0.01, 2.5, (0.2, 0.4, 0.8)),
        ),
        predict=predict,
    ),
)
