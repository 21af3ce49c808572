"""The files of a split: rows, and as the last record of each file its seal.

A seal is the SHA-256 of the file's rows in order, and the manifest has it too. So one small read a file tells at start
whether it is the file that was packed, whatever the size of the pack: files with one seal hold the same rows, whichever
pack they come from. That the rows are still what was written is not read at start: ArrayRecord keeps a checksum of every
record and of its index, and each is checked when it is read.
"""

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Sequence

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader
from etils import epath

REMEDY = 'copy the pack again, or delete it and pack again'
_THREADS = 64  # a disk behind a network answers many at once
_OPEN_FILES = 256  # a process may usually open 1024
_OPTIONS = 'readahead_buffer_size:0'  # rows are read in no order
_BUFFER = 1 << 15


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file of rows; `bytes` is its size, `seal` the SHA-256 of its rows in hexadecimal."""

    name: str
    rows: int
    bytes: int
    seal: str


class Shards:
    """The records of a split's files by number, counted through all of them. Thread safe.

    A file that was written anew since it was opened is opened and checked again, so that no row of another pack is read.
    """

    def __init__(self, folder: epath.PathLike, shards: Sequence[Shard]) -> None:
        self._files = [(os.path.join(folder, shard.name), shard) for shard in shards]
        self._ends = np.cumsum([shard.rows for shard in shards])
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS)
        self._opened = functools.lru_cache(_OPEN_FILES)(lambda index, version: open_shard(*self._files[index]))

    def read(self, ids: Sequence[int] | np.ndarray) -> list[bytes]:
        """Records in the order asked for; files are read at the same time.

        Raises ValueError, naming the file and the row in it, for one that is missing, changed or damaged.
        """
        numbers = np.asarray(ids, np.int64)
        owners = np.searchsorted(self._ends, numbers, side='right')
        places = [np.flatnonzero(owners == index) for index in np.unique(owners)]
        found = [b''] * len(numbers)
        parts = (map if len(places) == 1 else self._pool.map)(lambda at: self._read(numbers[at]), places)
        for at, records in zip(places, parts, strict=True):
            for place, record in zip(at, records, strict=True):
                found[place] = record
        return found

    def where(self, number: int) -> str:
        """The file and the row in it, from 0, that record `number` is."""
        index, row = self._place(number)
        return f'{self._files[index][0]}, row {row}'

    def _place(self, number: int) -> tuple[int, int]:
        index = int(np.searchsorted(self._ends, number, side='right'))
        return index, int(number - self._ends[index]) + self._files[index][1].rows

    def _read(self, numbers: np.ndarray) -> list[bytes]:
        """Records of one file."""
        index, _ = self._place(numbers[0])
        rows = [self._place(number)[1] for number in numbers]
        path = self._files[index][0]
        reader = self._opened(index, _version(path))
        try:
            records = list(reader.read(rows))
        except RuntimeError:  # it does not say of which row
            records = []
        # Of a file that was cut off, array_record gives empty records without a word.
        return records if records and all(records) else [_read_row(reader, path, row) for row in rows]


def open_shard(path: str, shard: Shard) -> ArrayRecordReader:
    """Opens a file that is the one of the manifest. ValueError if it is missing, of another size, damaged at its end, or the
    file of another pack."""
    size = _version(path)[0]
    if size != shard.bytes:
        raise ValueError(f'{path} has {size} bytes, the manifest says {shard.bytes}: truncated or changed; {REMEDY}')
    reader = ArrayRecordReader(path, options=_OPTIONS, file_reader_buffer_size=_BUFFER)
    rows = reader.num_records() - 1
    if reader.ok() and rows != shard.rows:
        raise ValueError(f'{path} has {rows} rows, the manifest says {shard.rows}: of another pack; {REMEDY}')
    seal = _read_row(reader, path, shard.rows).hex()  # of what could not be opened it says why
    if seal != shard.seal:
        raise ValueError(
            f'{path} has the seal {seal[:12]}, the manifest says {shard.seal[:12]}: of another pack; {REMEDY}'
        )
    return reader


def check_shards(folder: epath.PathLike, shards: Sequence[Shard]) -> None:
    """Opens every file as `open_shard` does, and raises what it raises for the first."""
    paths = [os.path.join(folder, shard.name) for shard in shards]
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(lambda path, shard: open_shard(path, shard).close(), paths, shards):
            pass


def _read_row(reader: ArrayRecordReader, path: str, row: int) -> bytes:
    try:
        (record,) = reader.read([row])
    except RuntimeError as error:  # array_record's, for whatever it is
        raise ValueError(f'{path}, row {row}: cannot be read: {error}; {REMEDY}') from error
    if not record:
        raise ValueError(f'{path}, row {row}: the file ends before it; {REMEDY}')
    return record


def _version(path: str) -> tuple[int, int, int]:
    """(size, time of writing, inode): another file, or one that was written to, has another."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise ValueError(f'{path} is missing; {REMEDY}') from None
    return found.st_size, found.st_mtime_ns, found.st_ino
