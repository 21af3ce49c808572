"""Prompts that have no room are cut alike, and never in what is scored."""

import numpy as np
import pytest

from smelt_jax.tasks.encoding import Split, shortened


def test_all_are_cut_by_what_the_longest_has_too_many_down_to_one_token_before_the_span() -> None:
    splits = [Split(np.arange(9), 5), Split(np.arange(7), 6), Split(np.arange(3), 2), Split(np.arange(4), 1)]
    found, cut = shortened(splits, 7)
    assert cut == 2
    assert [(split.tokens.tolist(), split.start) for split in found] == [
        ([2, 3, 4, 5, 6, 7, 8], 3),
        ([2, 3, 4, 5, 6], 4),
        ([1, 2], 1),
        ([0, 1, 2, 3], 1),
    ]
    same, cut = shortened(splits, 9)
    assert cut == 0
    assert [len(split.tokens) for split in same] == [9, 7, 3, 4]


def test_a_span_that_has_no_room_is_an_error() -> None:
    assert len(shortened([Split(np.arange(9), 3)], 7)[0][0].tokens) == 7
    with pytest.raises(ValueError, match=r'^a continuation of 6 tokens, .* no room in 6; give more'):
        shortened([Split(np.arange(9), 3)], 6)
