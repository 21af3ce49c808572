"""Fits, as `smelt fit` writes them and everything else reads them: a JSON file."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from smelt_jax.law.law import Columns, Law
from smelt_jax.law.laws import law_named
from smelt_jax.screen import plain
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


# Key of a fit in a file → what it is.
KINDS: dict[str, type | tuple[type, ...]] = {
    'law': str,
    'coefficients': dict,
    'group': str,
    'points': int,
    'rmse': (int, float, type(None)),
    'ranges': dict,
    'replicates': list,
    'notes': list,
    'details': dict,
}


def save(fits: Sequence[Fitted], file: epath.PathLike) -> None:
    """Writes them, whole or not at all."""
    text = json.dumps(plain({'format': FORMAT, 'fits': [dataclasses.asdict(fit) for fit in fits]}), indent=1)
    write_atomically(reach(file), text + '\n')


def load(file: epath.PathLike) -> list[Fitted]:
    """Reads them. Raises ValueError, naming the file, if it holds something else, or a law or coefficients that are not
    known."""
    path = reach(file)
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict) or found.get('format') != FORMAT or not isinstance(found.get('fits'), list):
            raise ValueError(f"it has no format '{FORMAT}' with a list of fits")
        if not found['fits']:
            raise ValueError('it has no fits')
        return [_read(entry) for entry in found['fits']]
    except FileNotFoundError:
        raise ValueError(f'{path} is not there; smelt fit --out={path} writes it') from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{path} is no file of smelt fit, or is damaged: {error}; fit anew') from None


def _read(entry: Any) -> Fitted:
    """Raises ValueError, saying what of an entry is not as `save` writes it."""
    if not isinstance(entry, dict):
        raise ValueError(f'a fit is {entry!r}')
    for name in sorted(KINDS.keys() ^ entry.keys()):
        raise ValueError(f'a fit has no {name}' if name in KINDS else f'a fit has {name!r}, which is not known')
    for name, kind in KINDS.items():
        if not isinstance(entry[name], kind):
            raise ValueError(f'{name} is {entry[name]!r}')
    law = law_named(entry['law'])
    for each in (entry['coefficients'], *entry['replicates']):
        if not _has_numbers(each, law.names) or any(each[c.name] <= 0 for c in law.coefficients if c.log):
            raise ValueError(f'{law.name} has the coefficients {", ".join(law.names)}, each a number, not {each}')
    for name, ends in entry['ranges'].items():
        if not _are_numbers(ends, 2):
            raise ValueError(f'the range of {name} is {ends}')
    details = entry['details']
    intervals = details.get('intervals', dict.fromkeys(law.names, (0, 0)))  # there only if rows were drawn
    if not isinstance(intervals, dict) or not all(_are_numbers(intervals.get(name), 2) for name in law.names):
        raise ValueError(f'details has intervals {intervals}')
    if 'held_out' in details and not _has_numbers(details['held_out'], ('rmse', 'points'), others=True):
        raise ValueError(f'details has held_out {details["held_out"]}')
    return Fitted(**{**entry, 'ranges': {name: (ends[0], ends[1]) for name, ends in entry['ranges'].items()}})


def _has_numbers(entry: Any, names: Sequence[str], others: bool = False) -> bool:
    if not isinstance(entry, dict) or not (entry.keys() >= set(names) if others else entry.keys() == set(names)):
        return False
    return _are_numbers([entry[name] for name in names], len(names))


def _are_numbers(values: Any, count: int) -> bool:
    if not isinstance(values, list | tuple) or len(values) != count:
        return False
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)
