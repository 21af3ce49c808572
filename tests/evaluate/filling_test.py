"""Every document is in one row, whole; shapes are few; padding is bounded, whatever the lengths."""

from collections.abc import Sequence

import numpy as np
import pytest

from smelt_jax.evaluate.filling import Filled, fill, rung

RNG = np.random.default_rng(0)
# Questions of tens to hundreds of tokens, a few of thousands: what the tasks ask, with and without shots.
REAL = np.clip(RNG.lognormal(np.log(90), 0.9, 5000), 2, 3000).astype(int).tolist()
SHAPES = {
    'real': REAL,
    'real, long': [8 * size for size in REAL[:1500]],
    'short': RNG.integers(1, 9, 20_000).tolist(),
    'one long, many short': [4000] + [30] * 3000,
    'even': RNG.integers(2, 2048, 1000).tolist(),
}


def rows_of(length: int) -> int:
    return max(1, 8192 // length)


def filled(lengths: Sequence[int], row_tokens: int = 1024) -> list[Filled]:
    return list(fill(lengths, row_tokens, rows_of))


def padding(lengths: Sequence[int], row_tokens: int = 1024) -> float:
    """Tokens of all batches over those of documents, the last batch's empty rows counted."""
    return sum(rows_of(batch.length) * batch.length for batch in filled(lengths, row_tokens)) / sum(lengths)


@pytest.mark.parametrize('lengths', [*SHAPES.values(), [], [1], [7] * 3], ids=[*SHAPES, 'none', 'one', 'alike'])
@pytest.mark.parametrize('row_tokens', [16, 1024])
def test_every_document_is_in_one_row(lengths: Sequence[int], row_tokens: int) -> None:
    batches = filled(lengths, row_tokens)
    found = [index for batch in batches for row in batch.rows for index in row]
    assert sorted(found) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch.rows) <= rows_of(batch.length)
        assert all(row and sum(lengths[index] for index in row) <= batch.length for row in batch.rows)
    assert all(len(batch.rows) == rows_of(batch.length) for batch in batches[:-1])


def test_rungs_are_a_third_apart_at_most() -> None:
    rungs = sorted({rung(length) for length in range(1, 10_000)})
    assert rungs[:10] == [4, 5, 6, 8, 10, 12, 16, 20, 24, 32]
    assert all(rung(step) == step for step in rungs)
    assert all(length <= rung(length) <= max(4, length * 4 / 3) for length in range(1, 10_000))
    assert all(step % 64 == 0 for step in rungs if step > 256)


@pytest.mark.parametrize('lengths', SHAPES.values(), ids=SHAPES)
def test_padding_is_bounded(lengths: Sequence[int]) -> None:
    assert padding(lengths) <= 1.15


@pytest.mark.parametrize('size', [33, 129, 257, 300, 342, 343, 513, 600, 683, 900, 1025, 1281, 2049, 2500])
def test_documents_of_one_length_fill_three_quarters(size: int) -> None:
    lengths = [size] * 2000
    assert padding(lengths) <= 4 / 3 + 8192 / sum(lengths)


def test_lengths_of_rows_are_few() -> None:
    for lengths in SHAPES.values():
        found = {batch.length for batch in filled(lengths)}
        assert len(found) <= len({rung(length) for length in range(256, max(lengths) + 1)}) + 1
    assert len({batch.length for batch in filled(REAL)}) <= 6


def test_the_order_of_the_documents_changes_no_shape() -> None:
    order = RNG.permutation(len(REAL))
    shapes = [(batch.length, len(batch.rows)) for batch in filled(REAL)]
    assert shapes == [(batch.length, len(batch.rows)) for batch in filled([REAL[i] for i in order])]
