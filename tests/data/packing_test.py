"""`pack`: tokens in = tokens out, the same pack from the same inputs, and nothing that only looks like a pack."""

import dataclasses
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packs import contents, documents_in, sentences, small_pack, write_jsonl

from smelt_jax.data import manifest, packing, records, spill
from smelt_jax.data.config import PackConfig
from smelt_jax.data.documents import digest, is_heldout
from smelt_jax.data.manifest import load_manifest, load_tokenizer
from smelt_jax.data.rows import PackedRows

TEXTS = sentences(60)


# Any text, some of it much longer than a row, some empty, some twice.
texts = st.lists(st.text(max_size=40) | st.text(min_size=1, max_size=5).map(lambda text: text * 40), max_size=12)


@settings(max_examples=25, deadline=None)
@given(texts=texts, row_tokens=st.integers(2, 70), shard_rows=st.sampled_from([5, 100]))
def test_tokens_in_are_tokens_out(texts: list[str], row_tokens: int, shard_rows: int) -> None:
    texts = [*texts, *texts[:2], '', TEXTS[0], TEXTS[1]]
    with tempfile.TemporaryDirectory() as name:
        made = small_pack(Path(name) / 'p', texts, row_tokens=row_tokens, shard_rows=shard_rows, heldout_fraction=0.0)
        expected = Counter(text.encode() for text in set(texts) - {''})
        found = Counter(bytes(document) for document in documents_in(Path(name) / 'p', 'train'))
        assert found == expected
        assert made.train.tokens == sum(len(text) + 1 for text in expected)
        assert made.train.bytes == sum(map(len, expected))
        assert made.train.rows == -(-made.train.tokens // (row_tokens + 1))
        assert made.dropped_duplicates + made.empty == len(texts) - len(expected)


def test_segments_end_where_documents_or_rows_do(tmp_path: Path) -> None:
    made = small_pack(tmp_path / 'p', TEXTS)
    left = 0  # tokens of a document that the rows still owe
    for index, row in enumerate(PackedRows(tmp_path / 'p', 'train')):
        used = int((row.segment_ids > 0).sum())
        assert used == 33 or index == made.train.rows - 1
        assert not row.segment_ids[used:].any()
        starts = np.flatnonzero(np.diff(row.segment_ids[:used], prepend=0))
        assert row.segment_ids[starts].tolist() == list(range(1, len(starts) + 1))
        for start, end in zip(starts, [*starts[1:], used], strict=True):
            left = left or row.document_tokens[start]
            left -= end - start
            assert (row.tokens[start:end] == made.eos).sum() == (left == 0)
            assert left == 0 or end == 33
            assert row.positions[start:end].tolist() == list(range(end - start))
            assert len({*row.document_tokens[start:end]}) == len({*row.source_ids[start:end]}) == 1
    assert left == 0


def test_mean_attended_keys_counts_pairs_of_the_mask(tmp_path: Path) -> None:
    made = small_pack(tmp_path / 'p', TEXTS)
    for split in manifest.SPLITS:
        keys = inputs = 0
        for row in PackedRows(tmp_path / 'p', split):
            segment_ids_T = row.segment_ids[:-1]
            mask_TT = np.tril(segment_ids_T[:, None] == segment_ids_T[None, :]) & (segment_ids_T > 0)
            keys, inputs = keys + mask_TT.sum(), inputs + (segment_ids_T > 0).sum()
        assert made.split(split).mean_attended_keys == pytest.approx(keys / inputs, rel=1e-12)


def test_sources_are_counted_and_stay_with_their_tokens(tmp_path: Path) -> None:
    one = write_jsonl(tmp_path / 'one.jsonl', TEXTS[:30], 'Web', 'pages')
    two = write_jsonl(tmp_path / 'two.jsonl', TEXTS[20:], 'Code', 'lib')
    config = PackConfig(corpora=(one, two), row_tokens=32, heldout_fraction=0.2, workers=1)
    made = packing.pack(config, tmp_path / 'p')
    assert made.dropped_duplicates == 10
    for split in manifest.SPLITS:
        stats = made.split(split)
        assert [(source.domain, source.name) for source in stats.sources] == [('Code', 'lib'), ('Web', 'pages')]
        rows = PackedRows(tmp_path / 'p', split)
        source_ids = np.concatenate([row.source_ids[row.segment_ids > 0] for row in rows])
        assert np.bincount(source_ids, minlength=2).tolist() == [source.tokens for source in stats.sources]
    documents = [sum(made.split(split).sources[i].documents for split in manifest.SPLITS) for i in (0, 1)]
    assert documents == [30, 30]  # of texts in both, the copy that is read first stays
    swapped = packing.pack(dataclasses.replace(config, corpora=(two, one)), tmp_path / 'q')
    assert [source.name for source in swapped.train.sources] == ['lib', 'pages']


def test_the_split_of_a_document_never_moves(tmp_path: Path) -> None:
    small_pack(tmp_path / 'few', TEXTS[:30])
    small_pack(tmp_path / 'many', TEXTS[10:], seed=5, row_tokens=17)
    few = {split: {bytes(d) for d in documents_in(tmp_path / 'few', split)} for split in manifest.SPLITS}
    many = {split: {bytes(d) for d in documents_in(tmp_path / 'many', split)} for split in manifest.SPLITS}
    both = {text.encode() for text in TEXTS[10:30]}
    assert few['heldout'] & both == many['heldout'] & both == {d for d in both if is_heldout(digest(d), 0.2)}
    assert few['train'] & both == many['train'] & both
    assert len(few['heldout'] & both) > 0


def test_the_seed_is_the_order_and_nothing_else(tmp_path: Path) -> None:
    for seed in (0, 1):
        small_pack(tmp_path / f'{seed}', TEXTS, seed=seed)
    one, other = (documents_in(tmp_path / f'{seed}', 'train') for seed in (0, 1))
    assert one != other
    assert sorted(one) == sorted(other)


def test_a_budget_keeps_whole_documents_of_each_domain(tmp_path: Path) -> None:
    one = write_jsonl(tmp_path / 'one.jsonl', TEXTS, 'Web')
    two = write_jsonl(tmp_path / 'two.jsonl', sentences(60, seed=1), 'Code')
    config = PackConfig(corpora=(one, two), row_tokens=32, heldout_fraction=0.2, max_bytes=9000, workers=1)
    made = packing.pack(config, tmp_path / 'p')
    kept = sum(source.documents for split in manifest.SPLITS for source in made.split(split).sources)
    assert kept + made.over_budget == 120
    for index in (0, 1):
        assert 7500 < sum(made.split(split).sources[index].bytes for split in manifest.SPLITS) <= 9000
    again = packing.pack(dataclasses.replace(config, seed=1), tmp_path / 'q')  # another order, the same choice
    assert again.train.sources == made.train.sources


@pytest.mark.parametrize('tokenizer', ['bytes', 'bpe:300'])
def test_the_number_of_workers_changes_no_byte(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, '_PART_BYTES', 3000)  # or there would be one part, and no second process
    for workers in (1, 3):
        small_pack(tmp_path / f'{workers}', TEXTS, tokenizer=tokenizer, workers=workers)
    monkeypatch.undo()
    small_pack(tmp_path / 'one-part', TEXTS, tokenizer=tokenizer)
    one, three, whole = (contents(tmp_path / name) for name in ('1', '3', 'one-part'))
    for other in (three, whole):  # another corpus folder, so another name among the inputs
        assert {k: v for k, v in one.items() if k != 'manifest.json'} == {
            k: v for k, v in other.items() if k != 'manifest.json'
        }
    assert len({load_manifest(tmp_path / name).fingerprint for name in ('1', '3', 'one-part')}) == 1


def test_a_bpe_pack_gives_its_text_back(tmp_path: Path) -> None:
    made = small_pack(tmp_path / 'p', [*TEXTS, 'a <|endoftext|> b'], tokenizer='bpe:300')
    tokenizer = load_tokenizer(tmp_path / 'p')
    assert tokenizer.fingerprint == made.tokenizer_fingerprint
    found = {tokenizer.decode(d) for split in manifest.SPLITS for d in documents_in(tmp_path / 'p', split)}
    assert found == {text.encode() for text in [*TEXTS, 'a <|endoftext|> b']}
    again = small_pack(tmp_path / 'q', [*TEXTS, 'a <|endoftext|> b'], tokenizer=f'file:{tmp_path}/p/tokenizer.json')
    assert again.fingerprint == made.fingerprint


def test_a_large_vocabulary_takes_four_bytes() -> None:
    tokens, segments = np.array([70_000, 1, 2], '<u4'), np.array([[2, 7, 4, 2]])
    assert (records.token_dtype(1 << 16), records.token_dtype((1 << 16) + 1)) == (np.dtype('<u2'), np.dtype('<u4'))
    row = records.decode_row(records.encode_row(tokens, segments), 2, 70_001, 8)
    assert [column.tolist() for column in row] == [[70_000, 1, 2], [1, 1, 0], [0, 1, 0], [7, 7, 0], [4, 4, 0]]


@pytest.mark.parametrize(
    ('tokens', 'segments', 'complaint'),
    [
        ([1, 2], [[2, 0, 2, 0]], 'a record of 24 bytes with 1 segments where row_tokens=2 needs 26'),
        ([1, 2, 9], [[2, 0, 2, 0]], 'token 9 where there are 9'),
        ([1, 2, 3], [[2, 0, 2, 0], [2, 0, 2, 0]], 'segments of 4 tokens in a row of 3'),
        ([1, 2, 3], [[2**32 - 1, 0, 2, 0]], 'segments of 4294967295 tokens in a row of 3'),
        ([1, 2, 3], [[2, 5, 2, 0]], 'source 5 where there are 5'),
        ([1, 2, 3], [[2, 0, 2, 1]], 'a segment that is no part of its document'),
        ([1, 2, 3], [[0, 0, 2, 1]], 'a segment that is no part of its document'),
    ],
)
def test_a_record_that_is_no_row_is_an_error(tokens: list, segments: list, complaint: str) -> None:
    record = records.encode_row(np.array(tokens, '<u2'), np.array(segments))
    with pytest.raises(ValueError, match=f'^{complaint}$'):
        records.decode_row(record, 2, 9, 5)
    for cut in (record[:3], b'', bytes(32)):
        with pytest.raises(ValueError, match=f'^a record of {len(cut)} bytes'):
            records.decode_row(cut, 2, 9, 5)


def test_documents_come_in_one_order_however_they_are_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for buckets, buffer in [(1024, 1 << 18), (1024, 1), (4, 500)]:
        monkeypatch.setattr(spill, '_BUCKETS', buckets)
        monkeypatch.setattr(spill, '_BUFFER_BYTES', buffer)
        found.append(small_pack(tmp_path / f'{buckets}-{buffer}', TEXTS).fingerprint)
    assert len(set(found)) == 1
