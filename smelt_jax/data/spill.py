"""Documents of a whole corpus in shuffled order, in bounded memory: written out by ranges of their order key, read back
range by range. A range is sorted when it is read, so the order is that of one sort over everything.
"""

import dataclasses
import pickle
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from etils import epath

_BUCKETS = 1024  # by the key's first ten bits
_BUFFER_BYTES = 1 << 18  # of a bucket in memory, so 256 MiB in all at most
_PART_BYTES = 1 << 22


class Item(NamedTuple):
    """A document on its way to a row. `source` is an id, `rank` its place in its domain's budget, `text` UTF-8."""

    key: bytes
    rank: int
    source: int
    heldout: bool
    text: bytes


@dataclasses.dataclass(frozen=True)
class Part:
    """A run of neighbouring ranges, the unit of work. `spans`: (offset, length) in the spill file, range by range."""

    path: str
    spans: tuple[tuple[tuple[int, int], ...], ...]

    def load(self, limits: Mapping[int, int]) -> Iterator[Item]:
        """Its documents in order of their keys. `limits`: by source, ranks from which on a document is over budget."""
        with open(self.path, 'rb') as file:
            for spans in self.spans:
                items: list[Item] = []
                for offset, _ in spans:
                    file.seek(offset)
                    items += (Item(*fields) for fields in pickle.load(file))
                items.sort()
                yield from (item for item in items if item.rank < limits[item.source])


class Spill:
    """Takes documents in any order; `parts` closes it and gives them back in order."""

    def __init__(self, path: epath.Path):
        self._path = str(path)
        self._file = open(path, 'wb')  # noqa: SIM115
        self._buffers: list[list[Item]] = [[] for _ in range(_BUCKETS)]
        self._sizes = [0] * _BUCKETS
        self._spans: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]

    def add(self, item: Item) -> None:
        bucket = int.from_bytes(item.key[:2]) * _BUCKETS >> 16
        self._buffers[bucket].append(item)
        self._sizes[bucket] += len(item.text)
        if self._sizes[bucket] >= _BUFFER_BYTES:
            self._flush(bucket)

    def parts(self) -> list[Part]:
        """Ends writing. Neighbouring ranges are joined to parts of about 4 MiB; how, changes nothing in the order."""
        for bucket in range(_BUCKETS):
            self._flush(bucket)
        self._file.close()
        parts: list[Part] = []
        spans: list[tuple[tuple[int, int], ...]] = []
        size = 0
        for bucket in range(_BUCKETS):
            if self._spans[bucket]:
                spans.append(tuple(self._spans[bucket]))
                size += sum(length for _, length in spans[-1])
            if spans and (size >= _PART_BYTES or bucket == _BUCKETS - 1):
                parts.append(Part(self._path, tuple(spans)))
                spans, size = [], 0
        return parts

    def _flush(self, bucket: int) -> None:
        if self._buffers[bucket]:
            offset = self._file.tell()
            pickle.dump([tuple(item) for item in self._buffers[bucket]], self._file, pickle.HIGHEST_PROTOCOL)
            self._spans[bucket].append((offset, self._file.tell() - offset))
            self._buffers[bucket], self._sizes[bucket] = [], 0
