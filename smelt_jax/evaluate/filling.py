"""Documents of many lengths into batches of few shapes, several documents in a row, with little padding."""

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

ENOUGH = 0.8  # of a batch's tokens are real: no other length is tried


class Filled(NamedTuple):
    """A batch, full or the last one of its length.

    Attributes:
      length: T, tokens that a row has room for; a rung.
      rows: the documents of each, by their index.
    """

    length: int
    rows: list[list[int]]


def rung(length: int) -> int:
    """The smallest of 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, … that is not below `length`: at most a third more."""
    half = max(4, 1 << (max(length - 1, 1).bit_length() - 1))
    return next(step for step in (4, half * 5 // 4, half * 6 // 4, half * 2) if step >= length)


def fill(lengths: Sequence[int], row_tokens: int, rows_of: Callable[[int], int]) -> Iterator[Filled]:
    """Batches, those of the longest documents first; every document is in one of them, whole.

    A row begins with the longest document left, and takes the longest that still fits until none does. Rows have
    `row_tokens`, or the rung of a document that is longer. Where that leaves more than a fifth of a full batch empty, the
    rung that suits the longest document best is taken, if it is better: documents of much the same length fill three
    quarters of their rows or more, whatever it is. So there are no more lengths than rungs up to the longest document,
    and only the last batch has rows that nobody needs.

    Args:
      lengths: tokens of each document.
      row_tokens: of a row, if no document is longer.
      rows_of: length → rows of a batch.
    """
    pool = _Pool(lengths)
    while pool.lengths:
        longest = pool.lengths[-1]
        length = max(row_tokens, rung(longest))
        rows = pool.take(length, rows_of(length))
        other = _suits(longest, length)
        if other != length and len(rows) == rows_of(length) and pool.share(rows, length) < ENOUGH:
            pool.put(rows)
            others = pool.take(other, rows_of(other))
            if pool.share(others, other) > pool.share(rows, length):
                length, rows = other, others
            else:
                pool.put(others)
                rows = pool.take(length, rows_of(length))
        yield Filled(length, rows)


def _suits(longest: int, most: int) -> int:
    """The rung up to `most` of which documents of one length waste least; the higher of two that do."""
    rungs = [rung(longest)]
    while (above := rung(rungs[-1] + 1)) <= most:
        rungs.append(above)
    return max(rungs, key=lambda length: (length // longest * longest / length, length))


class _Pool:
    """Documents by length. `lengths`: those there are, ascending."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.of = lengths
        self.members: dict[int, list[int]] = defaultdict(list)
        for index in reversed(range(len(lengths))):
            self.members[lengths[index]].append(index)
        self.lengths = sorted(self.members)

    def take(self, length: int, rows: int) -> list[list[int]]:
        """At most so many rows, each filled up; fewer when nothing is left."""
        found: list[list[int]] = []
        while self.lengths and len(found) < rows:
            row, room = [], length
            while (at := bisect.bisect_right(self.lengths, room) - 1) >= 0:
                size = self.lengths[at]
                row.append(self.members[size].pop())
                room -= size
                if not self.members[size]:
                    del self.lengths[at]
            found.append(row)
        return found

    def put(self, rows: list[list[int]]) -> None:
        """Back, as if never taken."""
        for index in reversed([index for row in rows for index in row]):
            size = self.of[index]
            if not self.members[size]:
                bisect.insort(self.lengths, size)
            self.members[size].append(index)

    def share(self, rows: list[list[int]], length: int) -> float:
        """Of the rows' tokens that are documents'."""
        return sum(self.of[index] for row in rows for index in row) / (len(rows) * length)
