"""T̄, the mean number of keys a query attends to, from the lengths of documents. Closed forms, no masks."""

from collections.abc import Sequence

import numpy as np

Lengths = Sequence[int] | np.ndarray

STUDY_KEYS = 401.0  # not published; the one value with which the study's published figures come out


def mean_attended_keys(segments: Lengths) -> float:
    """T̄ over segments that each attend causally within themselves: Σ n(n + 1)/2 over Σ n.

    Args:
      segments: tokens of each: whole documents, or the pieces that `packed_segments` leaves of them. Zeros are ignored.

    Raises:
      ValueError: no tokens at all, or a negative length.
    """
    lengths = _lengths(segments)
    # float64: the sum of squares passes 2^63 at three billion documents of 4096 tokens
    return float(np.sum(lengths * (lengths + 1.0)) / 2 / np.sum(lengths, dtype=np.float64))


def packed_segments(documents: Lengths, row_tokens: int) -> np.ndarray:
    """The pieces that are left when documents are laid end to end and cut into rows of `row_tokens` tokens.

    A document that crosses a row's end goes on in the next row as a segment of its own: it cannot look back. The last
    row may be short. Pieces come in order, and sum to the documents' tokens.

    Args:
      documents: tokens of each, in the order of packing. Zeros are ignored.
      row_tokens: T.
    """
    if row_tokens < 1:
        raise ValueError(f'{row_tokens=}: a row has at least 1 token')
    ends = np.cumsum(_lengths(documents))
    cuts = np.arange(row_tokens, ends[-1], row_tokens)
    return np.diff(np.union1d(ends, cuts), prepend=0)


def full_row(row_tokens: int) -> float:
    """(T + 1) / 2: the largest T̄ that rows of `row_tokens` tokens can have, one document in each."""
    return (row_tokens + 1) / 2


def chosen(given: float | None, packed: float | None, row_tokens: int) -> tuple[float, str]:
    """T̄ and a line on where it is from: what was given, else a pack's own, else the study's, or the most that rows of
    `row_tokens` can have if that is less."""
    if given is not None:
        return given, f'T̄ = {given:g}, as given'
    if packed is not None:
        return packed, f'T̄ = {packed:g}, of the pack'
    most, own = full_row(row_tokens), '--config.data.pack=DIR has its own'
    if most >= STUDY_KEYS:
        return STUDY_KEYS, f'T̄ = {STUDY_KEYS:g}, with which the published figures come out; {own}'
    return most, (
        f'T̄ = {most:g}: the most that rows of {row_tokens} tokens can have, '
        f'not the {STUDY_KEYS:g} of the published figures; {own}'
    )


def _lengths(values: Lengths) -> np.ndarray:
    lengths = np.asarray(values, dtype=np.int64)
    if lengths.size and lengths.min() < 0:
        raise ValueError(f'a document of {lengths.min()} tokens: lengths are 0 or more')
    lengths = lengths[lengths > 0]
    if not lengths.size:
        raise ValueError('no tokens: give at least one document with a length of 1 or more')
    return lengths
