"""Maps: what R visits of N_loop of a model's N parameters are worth, as a number of parameters N_eff.

A map is a value, to be composed with any law that has a column N (`looped`). Every map gives N at R = 1.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from smelt_jax.law.law import Coefficient, Columns, Law

COLUMNS = {
    'N_loop': 'those of N that are in the loop, in the same unit',
    'R': 'visits of the loop, 1 or more',
}


@dataclasses.dataclass(frozen=True)
class Map:
    """Attributes:
    name: as in the names of laws.
    formula: of N_eff.
    source: paper.
    columns: that it reads besides N: name → what it is.
    coefficients: of the formula.
    effective: coefficients and columns → N_eff, in the unit of N. Analytic in the coefficients.
    """

    name: str
    formula: str
    source: str
    columns: Mapping[str, str]
    coefficients: tuple[Coefficient, ...]
    effective: Callable[[Mapping[str, Any], Columns], Any]


def linear(_: Any, at: Columns) -> Any:
    """N + (R − 1) N_loop: a visit is worth its FLOPs."""
    return at['N'] + (at['R'] - 1) * at['N_loop']


def power(of: Any, at: Columns) -> Any:
    """N + (R^phi − 1) N_loop, which is N_once + R^phi N_rec."""
    return at['N'] + np.expm1(of['phi'] * np.log(at['R'])) * at['N_loop']


def bounded(of: Any, at: Columns) -> Any:
    """N + kappa1 N_loop (1 − e^(−(R − 1) / kappa2)): no number of visits is worth more than kappa1 N_loop."""
    return at['N'] - of['kappa1'] * at['N_loop'] * np.expm1(-(at['R'] - 1) / of['kappa2'])


def bounded_by_sparsity(of: Any, at: Columns) -> Any:
    """`bounded` with kappa_j m^(−theta): at m = 1 it is `bounded`, for m → 0 (and theta > 0) linear in R."""
    wider = np.exp(-of['theta'] * np.log(at['m']))
    return bounded({'kappa1': of['kappa1'] * wider, 'kappa2': of['kappa2'] * wider}, at)


KAPPAS = (
    Coefficient('kappa1', 1e-3, 1e3, (0.2, 0.5, 2.0), log=True),
    Coefficient('kappa2', 1e-2, 1e3, (0.5, 1.5, 5.0), log=True),
)

MAPS = (
    Map('linear', 'N + (R - 1) N_loop', 'Parcae (arXiv 2604.12946)', COLUMNS, (), linear),
    Map(
        'power',
        'N + (R^phi - 1) N_loop',
        'Iso-Depth (arXiv 2604.21106)',
        COLUMNS,
        (Coefficient('phi', -3.0, 3.0, (0.0, 0.5, 1.0)),),
        power,
    ),
    Map(
        'bounded',
        'N + kappa1 N_loop (1 - e^(-(R - 1) / kappa2))',
        'Scaling Laws for Looped Mixture of Experts (2026)',
        COLUMNS,
        KAPPAS,
        bounded,
    ),
    Map(
        'bounded-m',
        'N + kappa1 m^-theta N_loop (1 - e^(-(R - 1) / (kappa2 m^-theta)))',
        'Scaling Laws for Looped Mixture of Experts (2026)',
        COLUMNS | {'m': 'active parameters / stored parameters, above 0 to 1'},
        (*KAPPAS, Coefficient('theta', 0.0, 3.0, (0.1, 0.3, 0.8))),
        bounded_by_sparsity,
    ),
)


def looped(law: Law, by: Map, name: str) -> Law:
    """`law` with N_eff of the map `by` in the place of N. At R = 1 it is `law`."""

    def predict(of: Any, at: Columns) -> Any:
        return law.predict(of, {**at, 'N': by.effective({c.name: of[c.name] for c in by.coefficients}, at)})

    return dataclasses.replace(
        law,
        name=name,
        formula=f'{law.formula}, with {by.formula} for N',
        source=f'{by.source}; {law.source}',
        columns={**law.columns, **by.columns},
        coefficients=(*law.coefficients, *by.coefficients),
        predict=predict,
        inner=law,
    )
