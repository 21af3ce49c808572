"""Loss of one architecture by training FLOPs per token, sparsity and tokens."""

from typing import Any

import numpy as np

from smelt_jax.law.law import Coefficient, Columns, Law


def predict(of: Any, at: Columns) -> Any:
    """E + A · (1 − S)^b / F^a + K / D^c."""
    dense = np.log1p(-at['S'])
    by_size = of['A'] * np.exp(of['b'] * dense - of['a'] * np.log(at['F']))
    return of['E'] + by_size + of['K'] * np.exp(-of['c'] * np.log(at['D']))


LAWS = (
    Law(
        name='smelt',
        formula='E + A (1 - S)^b / F^a + K / D^c',
        source='SMELT: Scaling Laws for Compute-Matched MoE Looped Transformers (2026)',
        columns={'F': 'training FLOPs per token', 'S': 'sparsity, 0 to below 1', 'D': 'training tokens'},
        coefficients=(
            Coefficient('E', 0.01, 10.0, (0.5, 1.0, 1.5, 2.0), log=True),
            Coefficient('A', 1e-3, 1e12, (1e1, 1e3, 1e5), log=True),
            Coefficient('a', 0.01, 2.5, (0.2, 0.4, 0.8)),
            Coefficient('b', -1.0, 3.0, (0.0, 0.15, 0.5)),
            Coefficient('K', 1e-3, 1e15, (1e2, 1e5, 1e8), log=True),
            Coefficient('c', 0.01, 2.5, (0.2, 0.4, 0.8)),
        ),
        predict=predict,
    ),
)
