"""Packed rows → batches. The position in the data is the step, and nothing else.

The global batch of step s (from 0) holds rows order(seed)[s·B + i], i < B, and a process reads those i that its devices
have. So a run resumes on any number of processes, two arms of a comparison read the same rows, and a branch goes
on with the row after its trunk's last.
"""

import hashlib
from collections.abc import Iterator, Sequence, Sized
from typing import NamedTuple

import grain
import numpy as np
from etils import epath

from smelt_jax.batch import Batch
from smelt_jax.data import manifest
from smelt_jax.data.config import RowsConfig
from smelt_jax.data.packed import PackedRows
from smelt_jax.data.records import Row

_NO_LIMIT = 2**62


class RowOrder:
    """A permutation of `rows` rows for each pass, in O(1) memory: Grain's block cipher on the position.

    `ids(start, stop)` are the row numbers at positions start … stop - 1 of the endless sequence of passes; each pass
    has every row exactly once, in an order of its own.
    """

    def __init__(self, rows: int, seed: int):
        if rows < 1:
            raise ValueError(f'{rows=}: nothing to put in order')
        self.rows, self.seed = rows, seed
        # grain 0.2.18 takes ceil(log2(max_index)) for the bits of max_index. For a power of two that is one too few, and
        # where it is even too (65537 rows, 262145, …) one row comes twice and another never: permute one more, skip it.
        self._max_index = rows if (rows - 1) & (rows - 2) == 0 else rows - 1

    def ids(self, start: int, stop: int) -> np.ndarray:
        """int64[stop - start]."""
        return np.array([self._at(position) for position in range(start, stop)], np.int64)

    def _at(self, position: int) -> int:
        turn, index = divmod(position, self.rows)
        # Hashed: seed + turn would make the second pass of seed 0 the first of seed 1.
        mixed = hashlib.blake2b(f'{self.seed}/{turn}'.encode(), digest_size=4).digest()
        while True:
            index = grain.experimental.index_shuffle(
                index=index, max_index=self._max_index, seed=int.from_bytes(mixed), rounds=4
            )
            if index < self.rows:
                return index


def row_ids(rows: Sized, config: RowsConfig, step: int) -> np.ndarray:
    """The row numbers of the global batch of `step` (from 0), int64[B]. `rows`: the training rows; none is read."""
    return RowOrder(len(rows), config.seed).ids(step * config.batch_rows, (step + 1) * config.batch_rows)


def steps_available(packed: manifest.Manifest, config: RowsConfig) -> int | None:
    """Steps that the training rows allow, whole batches only; None if `config.repeat` lifts the limit."""
    return None if config.repeat else packed.train.rows // config.batch_rows


def require_steps(pack_folder: epath.PathLike, config: RowsConfig, start: int, stop: int) -> None:
    """Raises ValueError if there are no rows for steps start … stop - 1: at the start of a run, not at its end."""
    _require(manifest.load_manifest(pack_folder), pack_folder, config, start, stop)


def _require(packed: manifest.Manifest, pack_folder: epath.PathLike, config: RowsConfig, start: int, stop: int) -> None:
    allowed = steps_available(packed, config)
    if allowed is not None and stop > max(allowed, start):
        more = 'pack more text'
        if packed.over_budget:
            more = f'pack with a larger pack.max_bytes, which left out {packed.over_budget:,} documents'
        raise ValueError(
            f'steps {start} to {stop} need {stop * config.batch_rows} rows; {pack_folder} has {packed.train.rows}, enough for '
            f'{allowed} steps of batch_rows={config.batch_rows}: train for fewer steps, {more}, or set data.repeat=True'
        )


def to_batch(rows: Sequence[Row]) -> Batch:
    """B rows of T + 1 tokens → a Batch of T inputs and targets.

    The loss mask is 1 where input and target are of one segment. So there is no loss from one document's EOS to the next
    document, none at padding, and none for the first token of a row, though it may go on with a document.
    """
    tokens, segment_ids, positions, _, _ = (np.stack(column) for column in zip(*rows, strict=True))
    same = (segment_ids[:, :-1] == segment_ids[:, 1:]) & (segment_ids[:, :-1] != 0)
    return Batch(
        tokens_BT=tokens[:, :-1],
        targets_BT=tokens[:, 1:],
        segment_ids_BT=segment_ids[:, :-1],
        positions_BT=positions[:, :-1],
        loss_mask_BT=same.astype(np.float32),
    )


def train_batches(
    pack_folder: epath.PathLike,
    config: RowsConfig,
    start_step: int,
    part: np.ndarray | None = None,
    pack_fingerprint: str | None = None,
) -> Iterator[tuple[int, np.ndarray, Batch]]:
    """Yields (step, row_ids, batch) from `start_step` on; both are this process's part of the global batch.

    Args:
      pack_folder: what `pack` wrote.
      config: batch_rows is B of the global batch; `prefetch` batches are read ahead by as many threads.
      start_step: the first step, from 0.
      part: which rows of a batch this process reads, in 0 … B − 1; None is all.
      pack_fingerprint: of the pack that the run is of; None takes the one that is there.

    Raises:
      ValueError: at once, if the pack is not whole or another one; at the batch, for a row that cannot be read, and when the
        rows run out without `repeat` (`require_steps` says so before the first step).
    """
    part = np.arange(config.batch_rows) if part is None else part
    rows = PackedRows(pack_folder, 'train', pack_fingerprint)
    order = RowOrder(len(rows), config.seed)
    steps = steps_available(rows.manifest, config)
    stop = _NO_LIMIT if steps is None else steps

    def read(step: int) -> tuple[int, np.ndarray, Batch]:
        first = int(step) * config.batch_rows
        ids = order.ids(first, first + config.batch_rows)[part]
        return int(step), ids, to_batch(rows.read(ids))

    def batches() -> Iterator[tuple[int, np.ndarray, Batch]]:
        if start_step < stop:
            options = grain.ReadOptions(num_threads=config.prefetch, prefetch_buffer_size=config.prefetch)
            yield from grain.MapDataset.range(start_step, stop).map(read).to_iter_dataset(options)
        # By the manifest that was opened: the one that lies there now may be another.
        _require(rows.manifest, pack_folder, config, start_step, max(start_step, stop) + 1)

    return batches()


class HeldoutBatch(NamedTuple):
    """Held-out rows with what their losses are counted by.

    Attributes:
      batch: inputs, targets and loss mask; `Tokenizer.token_bytes` of the targets is the text they stand for.
      source_ids_BT: int32, of the target: index into the manifest's sources.
      document_tokens_BT: int32, of the target: tokens of its whole document, EOS included.
    """

    batch: Batch
    source_ids_BT: np.ndarray
    document_tokens_BT: np.ndarray


def heldout_ids(rows: Sized, max_rows: int) -> np.ndarray:
    """The row numbers that are scored: all, or `max_rows` of them evenly spaced."""
    count = min(max_rows, len(rows)) if max_rows else len(rows)
    return np.arange(count) * len(rows) // count


def heldout_batches(
    pack_folder: epath.PathLike, batch_rows: int, max_rows: int = 0, pack_fingerprint: str | None = None
) -> Iterator[HeldoutBatch]:
    """All held-out rows once, in order, or `max_rows` of them evenly spaced.

    Every batch has `batch_rows` rows; the last one is filled up with empty rows, which are segment 0 and carry no loss.
    Raises ValueError as `train_batches`, and without held-out rows.
    """
    rows = PackedRows(pack_folder, 'heldout', pack_fingerprint)
    ids = heldout_ids(rows, max_rows)
    empty = Row(*np.zeros((5, rows.manifest.row_tokens + 1), np.int32))

    def batches() -> Iterator[HeldoutBatch]:
        for start in range(0, len(ids), batch_rows):
            found = rows.read(ids[start : start + batch_rows])
            found += [empty] * (batch_rows - len(found))
            yield HeldoutBatch(
                to_batch(found),
                np.stack([row.source_ids[1:] for row in found]),
                np.stack([row.document_tokens[1:] for row in found]),
            )

    return batches()
