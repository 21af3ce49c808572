"""Tables as they lie in files: CSV, and the records of runs."""

import csv
import dataclasses
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from smelt_jax.runs import RECORD_KEYS, RunDir, read_lines
from smelt_jax.storage.files import naming, reach

WILD = '*?['


@dataclasses.dataclass(frozen=True)
class Frame:
    """Attributes:
    columns: name → a value for each row: text, a number, or None where a row has none.
    places: where each row was read, in words.
    records: whether the rows are those of records.jsonl.
    notes: what was left out, and why.
    """

    columns: dict[str, list[Any]]
    places: list[str]
    records: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    def take(self, keep: Sequence[bool], note: str = '') -> 'Frame':
        """The rows for which `keep` holds."""
        columns = {name: [v for v, k in zip(values, keep, strict=True) if k] for name, values in self.columns.items()}
        places = [place for place, k in zip(self.places, keep, strict=True) if k]
        return dataclasses.replace(self, columns=columns, places=places, notes=self.notes + (note,) * bool(note))

    def column(self, name: str) -> list[Any]:
        """One column. Raises ValueError, listing those that are there: of groups of records the losses of the same kind."""
        if name not in self.columns:
            group = name.partition('.')[0] + '.'
            known = [known for known in self.columns if known.startswith(group) and known.endswith('.loss')]
            known = known or [known for known in self.columns if not known.startswith('by_')]
            raise ValueError(f'there is no column {name!r}; there are {", ".join(known)}')
        return self.columns[name]


def read(patterns: Iterable[str]) -> Frame:
    """Reads files, run directories, or patterns of either, one below the other.

    Raises ValueError, naming the file, for one that is not there, is empty, or is no table; or if records and tables are mixed.
    """
    files = list(dict.fromkeys(file for pattern in patterns for file in _files(pattern)))
    if not files:
        raise ValueError('no table is given; --records=FILE.csv, or run directories')
    rows, places = [], []
    kinds = {file.name.endswith('.jsonl') for file in files}
    if len(kinds) > 1:
        raise ValueError(f'{files[0]} and {files[-1]} are of two kinds; give tables or records, not both')
    for file in files:
        if file.name.endswith('.jsonl.gz'):
            raise ValueError(f'{file} is packed, and records are read as they are; gunzip it')
        found = _records(file) if file.name.endswith('.jsonl') else _csv(file)
        if not found:
            raise ValueError(f'{file} has no rows; leave it out, or make it anew')
        rows += [row for _, row in found]
        places += [f'{file}, line {number}' for number, _ in found]
    names = list(dict.fromkeys(name for row in rows for name in row))
    frame = Frame({name: [row.get(name) for row in rows] for name in names}, places, kinds == {True})
    return _with_arms(frame) if frame.records else frame


def _files(pattern: str) -> list[epath.Path]:
    parts = str(pattern).split('/')
    wild = next((i for i, part in enumerate(parts) if any(sign in part for sign in WILD)), None)
    if wild is None:
        found = [reach(pattern)]
    else:
        root = '/'.join(parts[:wild]) or ('/' if str(pattern).startswith('/') else '.')
        found = sorted(reach(root).glob('/'.join(parts[wild:])), key=str)
        if not found:
            raise ValueError(f'{pattern} matches nothing; smelt evaluate writes the records of runs')
    files = [RunDir(path).records_file if path.is_dir() else path for path in found]
    for file in files:
        if not file.exists():
            raise ValueError(f'{file} is not there; give a table, or the directory of a run that was evaluated')
    return files


def _csv(file: epath.Path) -> list[tuple[int, dict[str, Any]]]:
    with naming(file):
        raw = file.read_bytes()
    try:
        text = (gzip.decompress(raw) if file.name.endswith('.gz') else raw).decode('utf-8-sig')
    except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f'{file} is no CSV file: {error}') from None
    lines = _lines(file, text)
    head = [name.strip() for name in next(lines, (1, []))[1]]
    if not any(head):
        raise ValueError(f'{file} is empty; a table has the names of its columns in the first line')
    for name in head:
        if head.count(name) > 1:
            raise ValueError(f'{file} has two columns {name!r}; rename one')
    found = []
    for number, values in lines:
        if any(value.strip() for value in values):
            if len(values) != len(head):
                raise ValueError(f'{file}, line {number}: has {len(values)} values for {len(head)} columns; mend it')
            texts = (value.strip() or None for value in values)
            found.append((number, dict(zip(head, texts, strict=True))))
    return found


def _lines(file: epath.Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The values of each line, with the number of the line where they begin, whatever ends lines there."""
    lines, number = csv.reader(io.StringIO(text, newline=None)), 1
    try:
        for values in lines:
            yield number, values
            number = lines.line_num + 1
    except csv.Error as error:
        raise ValueError(f'{file}, line {number}: {error}; is a quote never closed?') from None


def _records(file: epath.Path) -> list[tuple[int, dict[str, Any]]]:
    return [(i, dict(_flat(record, ''))) for i, record in enumerate(read_lines(file, RECORD_KEYS), start=1)]


def _flat(entry: dict[str, Any], where: str) -> Iterable[tuple[str, Any]]:
    """by_domain: {Code: {loss: 2}} → by_domain.Code.loss: 2."""
    for key, value in entry.items():
        if isinstance(value, dict):
            yield from _flat(value, f'{where}{key}.')
        else:
            yield where + key, value


def _with_arms(frame: Frame) -> Frame:
    """Adds `architecture` and `cell` from the names of configs: of 200m-s95-smelt they are smelt and 200m-s95."""
    names = [str(name) for name in frame.column('name')]
    split = {
        'architecture': [name.rpartition('-')[2] for name in names],
        'cell': [name.rpartition('-')[0] for name in names],
    }
    return dataclasses.replace(frame, columns={**frame.columns, **split})


def endpoints(frame: Frame, named: Iterable[str]) -> Frame:
    """Of records those that a law of training is about, with a note of what was left out.

    They are held-out losses, at the visits of training, of branches if there are any: a trunk's loss falls when it is annealed.
    A column in `named` was chosen by the caller, and decides nothing here. Raises ValueError if rows of several packs are left.
    """
    for column, word, wanted in (
        ('task', 'are no held-out losses', lambda of: ['heldout'] * len(of)),
        ('visits', 'are at other visits than in training', lambda of: of.column('trained_visits')),
        ('kind', 'are of trunks, not annealed', lambda of: ['branch'] * len(of)),
    ):
        chosen = [one == other for one, other in zip(frame.column(column), wanted(frame), strict=True)]
        if column not in named and any(chosen) and not all(chosen):
            left = len(chosen) - sum(chosen)
            note = f'in all, {left} records {word}, and left out; --where={column}==… chooses them'
            frame = frame.take(chosen, note)
    packs = sorted({str(pack) for pack in frame.column('pack')})
    if len(packs) > 1:
        raise ValueError(f'the records are of {len(packs)} packs of rows; choose one with --where=pack=={packs[0]}')
    return frame
