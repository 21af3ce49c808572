"""T̄ in closed form equals what the masks say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smelt_jax.budget import attended

lengths = st.lists(st.integers(0, 40), min_size=1, max_size=20).filter(any)


def attended_by_mask(segment_ids):
    """Counts the ones of the causal mask within segments, query by query."""
    ids = np.asarray(segment_ids)
    places = np.arange(len(ids))
    mask = (ids[:, None] == ids[None, :]) & (places[:, None] >= places[None, :])
    return int(mask.sum())


@given(lengths)
def test_unpacked_documents_equal_the_mask(documents):
    ids = np.repeat(np.arange(len(documents)), documents)
    assert attended.mean_attended_keys(documents) == pytest.approx(attended_by_mask(ids) / len(ids), rel=1e-12)


@given(lengths, st.integers(1, 50))
def test_packed_documents_equal_the_mask_row_by_row(documents, row_tokens):
    ids = np.repeat(np.arange(len(documents)), documents)
    rows = [ids[at : at + row_tokens] for at in range(0, len(ids), row_tokens)]
    segments = attended.packed_segments(documents, row_tokens)
    assert segments.sum() == len(ids)
    assert segments.max() <= row_tokens
    expected = sum(attended_by_mask(row) for row in rows) / len(ids)
    assert attended.mean_attended_keys(segments) == pytest.approx(expected, rel=1e-12)


@given(lengths)
def test_rows_longer_than_everything_cut_nothing(documents):
    segments = attended.packed_segments(documents, sum(documents))
    assert segments.tolist() == [length for length in documents if length]


def test_known_values():
    assert attended.packed_segments([5, 6, 1], 4).tolist() == [4, 1, 3, 3, 1]
    assert attended.mean_attended_keys([1, 1, 1]) == 1
    assert attended.mean_attended_keys([4096]) == attended.full_row(4096) == 2048.5


def test_billions_of_tokens_do_not_overflow():
    documents = np.full(4_000_000, 3_000_000)
    assert attended.mean_attended_keys(documents) == pytest.approx(1_500_000.5)


@pytest.mark.parametrize(
    ('call', 'words'),
    [
        (lambda: attended.mean_attended_keys([]), 'no tokens'),
        (lambda: attended.mean_attended_keys([0, 0]), 'no tokens'),
        (lambda: attended.mean_attended_keys([3, -1]), '-1 tokens'),
        (lambda: attended.packed_segments([3], 0), 'row_tokens=0'),
    ],
)
def test_impossible_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
