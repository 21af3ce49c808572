"""Splits, budgets and duplicates: what is decided by a document's text alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packs import sentences

from smelt_jax.data.documents import Budget, Document, Tally, digest, is_heldout, order_key, unique

DIGESTS = [digest(text.encode()) for text in sentences(2000)]


def test_the_held_out_share_is_the_one_asked_for() -> None:
    share = sum(is_heldout(identity, 0.25) for identity in DIGESTS) / len(DIGESTS)
    assert abs(share - 0.25) < 0.04  # four standard deviations


def test_a_larger_fraction_holds_out_more_and_the_same() -> None:
    small = {identity for identity in DIGESTS if is_heldout(identity, 0.05)}
    large = {identity for identity in DIGESTS if is_heldout(identity, 0.10)}
    assert small < large
    assert not any(is_heldout(identity, 0.0) for identity in DIGESTS)


def test_split_budget_and_order_are_independent() -> None:
    first = sorted(DIGESTS, key=Budget.rank)[:500]
    assert 0.1 < sum(is_heldout(identity, 0.2) for identity in first) / 500 < 0.3
    first = sorted(DIGESTS, key=lambda identity: order_key(identity, 0))[:500]
    assert 0.1 < sum(is_heldout(identity, 0.2) for identity in first) / 500 < 0.3


def test_another_seed_gives_another_order() -> None:
    assert sorted(DIGESTS, key=lambda d: order_key(d, 0)) != sorted(DIGESTS, key=lambda d: order_key(d, 1))


def test_of_equal_texts_the_first_stays() -> None:
    documents = [Document('a', 'x', '1'), Document('', 'x', '1'), Document('b', 'x', '1'), Document('a', 'y', '2')]
    tally = Tally()
    assert [document.source + document.text for document, _, _ in unique(documents, tally)] == ['1a', '1b']
    assert (tally.duplicates, tally.empty) == (1, 1)


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 120), st.randoms())
def test_budget_is_a_prefix_of_the_hash_order_whatever_comes_first(
    sizes: list[int], max_bytes: int, shuffle: random.Random
) -> None:
    items = list(zip(DIGESTS, sizes, strict=False))
    expected, total = set(), 0
    for identity, size in sorted(
        (item for item in items if item[1] <= max_bytes), key=lambda item: Budget.rank(item[0])
    ):
        total += size
        if total > max_bytes:
            break
        expected.add(identity)
    shuffle.shuffle(items)
    budget = Budget(max_bytes)
    offered = {identity for identity, size in items if budget.offer(identity, size)}
    assert {identity for identity in offered if Budget.rank(identity) < budget.limit} == expected


@pytest.mark.parametrize('max_bytes', [10, 1000])
def test_a_document_larger_than_the_budget_blocks_nothing(max_bytes: int) -> None:
    budget = Budget(max_bytes)
    first, second = sorted(DIGESTS[:2], key=Budget.rank)
    assert not budget.offer(first, max_bytes + 1)
    assert budget.offer(second, max_bytes)
