"""A packed row as it lies on disk, and the writer that cuts a stream of documents into rows.

A record is little-endian: uint32 S, then S segments of four uint32 (length within this row, source id, tokens of the
whole document with its EOS, offset of the segment within the document), then the row's T + 1 tokens as uint16 or
uint32, whichever holds the vocabulary. What follows from these, segment ids and positions, is derived at reading. The last
record of a file is no row but the file's seal (shards.py).
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from etils import epath

# Random access wants a record a chunk; row tokens gain 7% by compression, at four times the writing time.
_WRITER_OPTIONS = 'group_size:1,uncompressed'


class Row(NamedTuple):
    """A row of T + 1 tokens. All int32[T+1].

    Attributes:
      tokens: ids; the end-of-document id at padding.
      segment_ids: 1, 2, … for the row's documents; 0 is padding.
      positions: from the start of the segment in this row; 0 at padding.
      source_ids: index into the manifest's sources; 0 at padding.
      document_tokens: tokens of the whole document, its EOS included, wherever they lie; 0 at padding.
    """

    tokens: np.ndarray
    segment_ids: np.ndarray
    positions: np.ndarray
    source_ids: np.ndarray
    document_tokens: np.ndarray


def token_dtype(vocab: int) -> np.dtype:
    """The smallest type on disk that holds ids below `vocab`."""
    return np.dtype('<u2' if vocab <= 1 << 16 else '<u4')


def encode_row(tokens: np.ndarray, segments: np.ndarray) -> bytes:
    """`tokens`: [T+1] of `token_dtype`. `segments`: [S, 4] as in the module's text; their lengths sum to ≤ T + 1."""
    return np.uint32(len(segments)).tobytes() + segments.astype('<u4').tobytes() + tokens.tobytes()


def decode_row(record: bytes, row_tokens: int, vocab: int, sources: int) -> Row:
    """Inverse of `encode_row`, derived columns included.

    Raises ValueError if the record is no row of `row_tokens` inputs, `vocab` tokens and `sources` sources.
    """
    size, dtype = row_tokens + 1, token_dtype(vocab)
    count = int.from_bytes(record[:4], 'little')
    expected = 4 + 16 * count + size * dtype.itemsize
    if len(record) != expected:
        raise ValueError(f'a record of {len(record)} bytes with {count} segments where {row_tokens=} needs {expected}')
    segments = np.frombuffer(record, '<u4', 4 * count, 4).reshape(count, 4).astype(np.int64)
    lengths, source_ids, document_tokens, offsets = segments.T
    used = int(lengths.sum())
    if used > size:
        raise ValueError(f'segments of {used} tokens in a row of {size}')
    if (lengths < 1).any() or (offsets + lengths > document_tokens).any() or (document_tokens >= 2**31).any():
        raise ValueError('a segment that is no part of its document')
    if (source_ids >= sources).any():
        raise ValueError(f'source {source_ids.max()} where there are {sources}')
    tokens = np.frombuffer(record, dtype, size, 4 + 16 * count)
    if tokens.max() >= vocab:
        raise ValueError(f'token {tokens.max()} where there are {vocab}')
    columns = np.zeros((4, size), np.int32)
    columns[0, :used] = np.repeat(np.arange(1, count + 1), lengths)
    columns[1, :used] = np.arange(used) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    columns[2, :used] = np.repeat(source_ids, lengths)
    columns[3, :used] = np.repeat(document_tokens, lengths)
    return Row(tokens.astype(np.int32), *columns)


class SplitWriter:
    """Documents → rows → shards, for one split. Tokens in = tokens out: rows do not overlap, and nothing is dropped.

    A document that does not fit goes on in the next row; `close` pads the last row with `pad` as segment 0.
    """

    def __init__(self, folder: epath.Path, split: str, row_tokens: int, vocab: int, pad: int, shard_rows: int):
        self.rows = 0
        self.counts: dict[int, tuple[int, int, int]] = {}  # by source: documents, tokens, bytes of text
        self.shards: list[tuple[epath.Path, int, str]] = []  # (path, rows, seal)
        self.contents = hashlib.sha256()  # of all records in order, however they are cut into shards
        self._visible_keys = 0
        self._inputs = 0
        self._folder, self._split, self._pad, self._shard_rows = folder, split, pad, shard_rows
        self._row_tokens = row_tokens
        self._row = np.full(row_tokens + 1, pad, token_dtype(vocab))
        self._fill = 0
        self._segments: list[tuple[int, int, int, int]] = []
        self._writer: ArrayRecordWriter | None = None  # of the shard that is written, with the next three
        self._path, self._in_shard, self._seal = folder, 0, hashlib.sha256()

    @property
    def mean_attended_keys(self) -> float:
        """T̄: keys that an input position sees under the causal document mask within its row, averaged over inputs.

        A segment with n of the row's T inputs adds n(n+1)/2 visible keys; padding is no input.
        """
        return self._visible_keys / self._inputs if self._inputs else 0.0

    def add(self, tokens: np.ndarray, source: int, text_bytes: int) -> None:
        """Appends one whole document, its EOS last."""
        at, total = 0, len(tokens)
        while at < total:
            take = min(total - at, len(self._row) - self._fill)
            self._row[self._fill : self._fill + take] = tokens[at : at + take]
            self._segments.append((take, source, total, at))
            self._fill += take
            at += take
            if self._fill == len(self._row):
                self._write_row()
        documents, all_tokens, all_bytes = self.counts.get(source, (0, 0, 0))
        self.counts[source] = (documents + 1, all_tokens + total, all_bytes + text_bytes)

    def close(self) -> None:
        """Writes the last row and closes the last shard. OSError if it does not reach the disk."""
        if self._fill:
            self._write_row()
        self._close_shard()

    def _write_row(self) -> None:
        start = 0
        for length, *_ in self._segments:
            inputs = min(start + length, self._row_tokens) - start
            self._inputs += inputs
            self._visible_keys += inputs * (inputs + 1) // 2
            start += length
        record = encode_row(self._row, np.array(self._segments))
        self.contents.update(record)
        if self._writer is None:
            self._path = self._folder / f'{self._split}-{len(self.shards):05d}.array_record'
            self._writer = ArrayRecordWriter(str(self._path), _WRITER_OPTIONS)
            self._in_shard, self._seal = 0, hashlib.sha256()
        self._check(self._writer.write, record)
        self._seal.update(record)
        self._in_shard += 1
        self.rows += 1
        self._row[:] = self._pad
        self._fill, self._segments = 0, []
        if self._in_shard == self._shard_rows:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._writer is not None:
            self._check(self._writer.write, self._seal.digest())
            self._check(self._writer.close)
            self.shards.append((self._path, self._in_shard, self._seal.hexdigest()))
            self._writer = None

    def _check(self, call: Callable[..., None], *args: bytes) -> None:
        try:
            call(*args)
        except RuntimeError as error:  # array_record's for a full disk, and for everything else
            raise OSError(str(error).split(';')[0]) from error
