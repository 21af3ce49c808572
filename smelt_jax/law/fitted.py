"""Fits, as `smelt fit` writes them and everything else reads them: a JSON file."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from smelt_jax.law.law import Columns, Law
from smelt_jax.law.laws import law_named
from smelt_jax.storage.files import reach, write_atomically

FORMAT = 'smelt_jax.fit'


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A law with its coefficients.

    Attributes:
      law: its name.
      group: what the rows have in common, as an architecture; '' if they are all.
      coefficients: by name.
      points: rows it was fitted to; 0 for coefficients that were published.
      rmse: of the loss, nats.
      ranges: column → (least, most) of the rows.
      replicates: coefficients of bootstrap replicates, by name.
      notes: what there is to say of the fit: convergence, coefficients on a bound, what the data cannot tell apart.
      details: objective, R², counts of starts and so on, by name.
    """

    law: str
    coefficients: dict[str, float]
    group: str = ''
    points: int = 0
    rmse: float | None = None
    ranges: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    replicates: list[dict[str, float]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def kind(self) -> Law:
        """The law itself."""
        return law_named(self.law)

    def loss(self, columns: Columns) -> np.ndarray:
        """nats per token."""
        return self.kind.loss(self.coefficients, columns)

    def outside(self, columns: Mapping[str, Any]) -> np.ndarray:
        """bool: whether a point lies outside the ranges of what was fitted. False throughout if no ranges are known."""
        found = np.zeros(np.broadcast_shapes(*(np.shape(values) for values in columns.values())), bool)
        for name, values in columns.items():
            if name in self.ranges:
                low, high = self.ranges[name]
                found = found | (np.asarray(values) < low * (1 - 1e-9)) | (np.asarray(values) > high * (1 + 1e-9))
        return found


def save(fits: Sequence[Fitted], file: epath.PathLike) -> None:
    """Writes them, whole or not at all."""
    text = json.dumps({'format': FORMAT, 'fits': [dataclasses.asdict(fit) for fit in fits]}, indent=1)
    write_atomically(reach(file), text + '\n')


def load(file: epath.PathLike) -> list[Fitted]:
    """Reads them. Raises ValueError, naming the file, if it holds something else, or a law or coefficients that are not
    known."""
    path = reach(file)
    try:
        found = json.loads(path.read_text())
        if found['format'] != FORMAT:
            raise KeyError('format')
        fits = [Fitted(**entry) for entry in found['fits']]
    except FileNotFoundError:
        raise ValueError(f'{path} is not there; smelt fit --out={path} writes it') from None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path} was not written by smelt fit: {error}') from None
    for fit in fits:
        if set(fit.coefficients) != set(fit.kind.names):
            raise ValueError(f'{path}: {fit.law} has the coefficients {", ".join(fit.kind.names)}')
    return [dataclasses.replace(fit, ranges={k: (v[0], v[1]) for k, v in fit.ranges.items()}) for fit in fits]
