"""Rows to batches: which row is read when, by whom, and what carries loss."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from packs import sentences, small_pack

from smelt_jax.batch import Batch
from smelt_jax.data.config import RowsConfig
from smelt_jax.data.manifest import load_manifest, save
from smelt_jax.data.records import Row
from smelt_jax.data.rows import (
    PackedRows,
    RowOrder,
    heldout_batches,
    require_steps,
    row_ids,
    steps_available,
    to_batch,
    train_batches,
)


@pytest.fixture(scope='module')
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('rows') / 'p'
    small_pack(folder, sentences(60), shard_rows=101)
    return folder


def share(process: int, processes: int, rows: int = 6) -> np.ndarray:
    """The rows of a batch of one process of several."""
    return np.arange(rows).reshape(processes, -1)[process]


def assert_same(one: Batch, other: Batch) -> None:
    for name, left, right in zip(Batch._fields, one, other, strict=True):
        np.testing.assert_array_equal(left, right, name)
        assert left.dtype == right.dtype


@pytest.mark.parametrize('seed', [0, 7])
@pytest.mark.parametrize('rows', [1, 2, 3, 5, 16, 17, 100, 257, 4096, 4097])
def test_every_pass_has_every_row_once(rows: int, seed: int) -> None:
    order = RowOrder(rows, seed)
    for turn in range(3):
        assert sorted(order.ids(turn * rows, (turn + 1) * rows)) == list(range(rows))


def test_sizes_just_above_a_power_of_four_are_permuted_too() -> None:
    assert len(np.unique(RowOrder((1 << 16) + 1, 3).ids(0, (1 << 16) + 1))) == (1 << 16) + 1


def test_passes_and_seeds_have_orders_of_their_own() -> None:
    orders = [RowOrder(50, seed).ids(turn * 50, turn * 50 + 50).tolist() for seed in (0, 1) for turn in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert all(order != sorted(order) for order in orders)
    np.testing.assert_array_equal(RowOrder(50, 1).ids(30, 70)[5:], RowOrder(50, 1).ids(35, 70))


@pytest.mark.parametrize('processes', [1, 2, 3, 6])
def test_the_processes_share_a_batch_without_loss_or_repetition(packed: Path, processes: int) -> None:
    config = RowsConfig(batch_rows=6, prefetch=2)
    readers = [train_batches(packed, config, 0, share(p, processes)) for p in range(processes)]
    rows = PackedRows(packed, 'train')
    seen: list[int] = []
    for step, parts in enumerate(itertools.islice(zip(*readers, strict=True), len(rows) // 6)):
        assert [part[0] for part in parts] == [step] * processes
        ids = np.concatenate([part[1] for part in parts])
        np.testing.assert_array_equal(ids, row_ids(rows, config, step))
        whole = Batch(*(np.concatenate(arrays) for arrays in zip(*(part[2] for part in parts), strict=True)))
        if step % 20 == 0:
            assert_same(whole, to_batch([rows[int(i)] for i in ids]))
        seen += ids.tolist()
    assert len(seen) == len(set(seen)) == len(rows) // 6 * 6
    assert len({i // 101 for i in seen[:60]}) == len(rows.split.shards)  # a stretch of steps spans all shards


def test_stopping_and_resuming_with_fewer_processes_is_never_having_stopped(packed: Path) -> None:
    config = RowsConfig(batch_rows=4, seed=3)
    straight = list(itertools.islice(train_batches(packed, config, 0), 10))
    before = [
        next(zip(*(train_batches(packed, config, s, share(p, 4, config.batch_rows)) for p in range(4)), strict=True))
        for s in range(5)
    ]
    after = list(
        itertools.islice(
            zip(*(train_batches(packed, config, 5, share(p, 2, config.batch_rows)) for p in range(2)), strict=True), 5
        )
    )
    for (step, ids, batch), parts in zip(straight, before + after, strict=True):
        assert {part[0] for part in parts} == {step}
        np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), ids)
        assert_same(Batch(*(np.concatenate(arrays) for arrays in zip(*(p[2] for p in parts), strict=True))), batch)


def test_reading_ahead_changes_nothing(packed: Path) -> None:
    for prefetch in (0, 1, 5):
        config = RowsConfig(batch_rows=4, prefetch=prefetch)
        for step, (at, ids, _) in enumerate(itertools.islice(train_batches(packed, config, 2), 20), 2):
            assert at == step
            np.testing.assert_array_equal(ids, row_ids(PackedRows(packed, 'train'), config, step))


def test_running_out_is_found_at_the_start(packed: Path) -> None:
    rows = len(PackedRows(packed, 'train'))
    config = RowsConfig(batch_rows=7)
    allowed = rows // 7
    assert steps_available(load_manifest(packed), config) == allowed
    require_steps(packed, config, 0, allowed)
    with pytest.raises(ValueError, match=f'has {rows}, enough for {allowed} steps of batch_rows=7.*data.repeat=True'):
        require_steps(packed, config, 3, allowed + 1)
    last = train_batches(packed, config, allowed - 1)
    next(last)
    with pytest.raises(ValueError, match=f'enough for {allowed} steps'):
        next(last)


def test_text_that_was_left_out_for_its_size_is_the_first_remedy(packed: Path, tmp_path: Path) -> None:
    left_out = dataclasses.replace(load_manifest(packed), over_budget=1234)
    save(left_out, epath.Path(tmp_path))
    with pytest.raises(ValueError, match=r'a larger pack\.max_bytes, which left out 1,234 documents'):
        require_steps(tmp_path, RowsConfig(), 0, 10**6)


def test_repeating_goes_on_pass_after_pass(packed: Path) -> None:
    rows = len(PackedRows(packed, 'train'))
    config = RowsConfig(batch_rows=7, repeat=True)
    assert steps_available(load_manifest(packed), config) is None
    require_steps(packed, config, 0, 10**9)
    ids = np.concatenate([ids for _, ids, _ in itertools.islice(train_batches(packed, config, 0), 2 * rows // 7)])
    assert sorted(ids[:rows]) == list(range(rows))
    assert (ids[:rows][: len(ids) - rows] != ids[rows:]).any()


def test_no_loss_across_borders_nor_at_padding() -> None:
    segment_ids = np.array([1, 1, 1, 2, 2, 3, 0, 0], np.int32)
    row = Row(np.arange(8, dtype=np.int32), segment_ids, *np.zeros((3, 8), np.int32))
    batch = to_batch([row, row])
    assert batch.loss_mask_BT.tolist() == [[1, 1, 0, 1, 0, 0, 0]] * 2
    assert batch.tokens_BT.tolist() == [[0, 1, 2, 3, 4, 5, 6]] * 2
    assert batch.targets_BT.tolist() == [[1, 2, 3, 4, 5, 6, 7]] * 2
    assert (batch.loss_mask_BT.dtype, batch.tokens_BT.dtype) == (np.float32, np.int32)


def test_every_token_is_a_target_once_except_the_first_of_each_segment(packed: Path) -> None:
    rows = list(PackedRows(packed, 'train'))
    segments = sum(int(row.segment_ids.max()) for row in rows)
    assert to_batch(rows).loss_mask_BT.sum() == PackedRows(packed, 'train').split.tokens - segments
    batch = to_batch(rows)
    # EOS is predicted, and predicts nothing.
    eos = PackedRows(packed, 'train').manifest.eos
    assert not batch.loss_mask_BT[batch.tokens_BT == eos].any()
    assert batch.loss_mask_BT[batch.targets_BT == eos].any()


def test_held_out_rows_come_once_and_the_last_batch_is_filled_with_nothing(packed: Path) -> None:
    rows = PackedRows(packed, 'heldout')
    batches = list(heldout_batches(packed, 8))
    assert [len(batch.source_ids_BT) for batch in batches] == [8] * -(-len(rows) // 8)
    tokens_BT = np.concatenate([batch.batch.tokens_BT for batch in batches])
    np.testing.assert_array_equal(tokens_BT[: len(rows)], [row.tokens[:-1] for row in rows])
    for name in ('segment_ids_BT', 'loss_mask_BT'):
        column = np.concatenate([getattr(batch.batch, name) for batch in batches])
        assert not column[len(rows) :].any()
    document_tokens_BT = np.concatenate([batch.document_tokens_BT for batch in batches])
    np.testing.assert_array_equal(document_tokens_BT[: len(rows)], [row.document_tokens[1:] for row in rows])


def test_fewer_held_out_rows_are_spread_evenly(packed: Path) -> None:
    rows = PackedRows(packed, 'heldout')
    batches = list(heldout_batches(packed, 6, 10))
    tokens = np.concatenate([batch.batch.tokens_BT for batch in batches])
    wanted = [rows[i * len(rows) // 10].tokens[:-1] for i in range(10)]
    np.testing.assert_array_equal(tokens[:10], wanted)
    assert [int(batch.batch.segment_ids_BT.any(1).sum()) for batch in batches] == [6, 4]
    assert len(tokens) == 12
    assert len(list(heldout_batches(packed, 8, 10**6))) == -(-len(rows) // 8)


def test_without_held_out_rows_the_remedy_is_named(tmp_path: Path) -> None:
    small_pack(tmp_path / 'p', sentences(3), heldout_fraction=0.0)
    with pytest.raises(ValueError, match='no heldout rows; pack with a heldout_fraction above 0'):
        heldout_batches(tmp_path / 'p', 4)
