"""Packed rows by number, and the text they were packed from. No grain, which brings jax with it."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from etils import epath

from smelt_jax.data import manifest, records
from smelt_jax.data.records import Row
from smelt_jax.data.shards import REMEDY, Shards

_BLOCK = 256  # rows read at once when all are


class PackedRows:
    """The rows of one split by number: `rows[i]` is a Row of numpy arrays, `len(rows)` their number. Thread safe.

    Raises ValueError, as `manifest.open_pack`, if the pack is not whole, or not the one of `pack_fingerprint`. What is damaged
    within a shard is found when it is read: a ValueError names the file and the row in it.
    """

    def __init__(self, folder: epath.PathLike, split: str, pack_fingerprint: str | None = None):
        self.manifest = manifest.open_pack(folder, pack_fingerprint=pack_fingerprint)
        self.split = self.manifest.split(split)
        if not self.split.rows:
            raise ValueError(f'{folder} has no {split} rows; pack with a heldout_fraction above 0')
        self._shards = Shards(folder, self.split.shards)

    def __len__(self) -> int:
        return self.split.rows

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), _BLOCK):
            yield from self.read(range(start, min(start + _BLOCK, len(self))))

    def __getitem__(self, index: int) -> Row:
        return self.read([index])[0]

    def read(self, ids: Sequence[int] | np.ndarray) -> list[Row]:
        """Rows by number, in the order asked for; shards are read at the same time."""
        return [self._row(number, record) for number, record in zip(ids, self._shards.read(ids), strict=True)]

    def _row(self, number: int, record: bytes) -> Row:
        packed = self.manifest
        try:
            return records.decode_row(record, packed.row_tokens, packed.vocab, len(self.split.sources))
        except ValueError as error:
            raise ValueError(f'{self._shards.where(number)}: {error}; {REMEDY}') from None


def documents(
    folder: epath.PathLike, split: str, progress: Callable[[int, int], None] = lambda *_: None
) -> Iterator[bytes]:
    """The text of each document of a split in the order of the rows, whole: the parts into which rows cut it are joined.

    Args:
      progress: hears of (rows read, rows in all).

    Raises:
      ValueError: as `PackedRows`.
    """
    rows, tokenizer = PackedRows(folder, split), manifest.load_tokenizer(folder)
    eos = rows.manifest.eos
    begun: list[np.ndarray] = []  # parts of a document whose end is still to come
    for number, row in enumerate(rows, start=1):
        tokens = row.tokens[row.segment_ids > 0]
        parts = np.split(tokens, np.flatnonzero(tokens == eos) + 1)
        for part in parts[:-1]:
            yield tokenizer.decode(np.concatenate([*begun, part]))
            begun = []
        begun.append(parts[-1])
        progress(number, len(rows))
