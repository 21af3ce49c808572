"""A shard that is not the one that was packed is found at start, a damaged row when it is read; the file is always named."""

import dataclasses
import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from etils import epath
from packs import sentences, small_pack

from smelt_jax.data import manifest, records, shards
from smelt_jax.data.config import RowsConfig
from smelt_jax.data.rows import PackedRows, heldout_batches, row_ids, train_batches

TEXTS = sentences(60)
SHARD_ROWS = 151  # so there are three full shards, and one that is not
SHARD = 'train-00001-of-00004.array_record'


@pytest.fixture(scope='module')
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('packed') / 'p'
    small_pack(folder, TEXTS, shard_rows=SHARD_ROWS)
    return folder


@pytest.fixture
def pack(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / 'p'))


def other_pack(folder: Path) -> Path:
    """The shards are of the size of `packed`'s, and have as many rows."""
    small_pack(folder, [text.replace('1', '7') for text in TEXTS], shard_rows=SHARD_ROWS)
    return folder


def one_row_changed(shard: Path) -> bytes:
    """The shard as a pack would have it that differs in one token of a row in the middle."""
    rows = [bytearray(row) for row in ArrayRecordReader(str(shard)).read(list(range(SHARD_ROWS)))]
    rows[70][-1] = 1
    file = shard.parent / 'changed'
    writer = ArrayRecordWriter(str(file), records._WRITER_OPTIONS)
    for record in (*rows, hashlib.sha256(b''.join(rows)).digest()):
        writer.write(bytes(record))
    writer.close()
    return file.read_bytes()


# At start.


@pytest.mark.parametrize('whose', ['another pack', 'one row of another pack', 'another place'])
def test_a_shard_of_another_pack_is_found_at_start(pack: Path, tmp_path: Path, whose: str) -> None:
    found = manifest.open_pack(pack).train.shards
    if whose == 'another place':
        (pack / SHARD).write_bytes((pack / found[0].name).read_bytes())
    elif whose == 'another pack':
        (pack / SHARD).write_bytes((other_pack(tmp_path / 'q') / SHARD).read_bytes())
    else:
        (pack / SHARD).write_bytes(one_row_changed(pack / SHARD))
    assert (pack / SHARD).stat().st_size == found[1].bytes
    with pytest.raises(
        ValueError, match=rf'{pack}/{SHARD} has the seal \w+, the manifest says \w+: of another pack; copy'
    ):
        manifest.open_pack(pack)


def test_a_shard_with_other_rows_is_found_at_start(pack: Path) -> None:
    last = pack / manifest.load_manifest(pack).train.shards[-1].name
    assert last.stat().st_size == (pack / SHARD).stat().st_size  # array_record fills files up
    last.write_bytes((pack / SHARD).read_bytes())
    with pytest.raises(ValueError, match=rf'{last} has 151 rows, the manifest says 68: of another pack'):
        manifest.open_pack(pack)


def test_a_manifest_of_another_pack_is_found_at_start(pack: Path, tmp_path: Path) -> None:
    shutil.copy(other_pack(tmp_path / 'elsewhere' / 'p') / 'manifest.json', pack / 'manifest.json')
    with pytest.raises(ValueError, match=r'of another pack|has \d+ rows'):
        manifest.open_pack(pack)


def test_a_pack_of_the_same_name_is_refused_where_one_is_asked_for(pack: Path, tmp_path: Path) -> None:
    mine, other = manifest.load_manifest(pack).fingerprint, other_pack(tmp_path / 'elsewhere' / 'p')
    manifest.open_pack(pack, pack_fingerprint=mine)
    found = manifest.open_pack(other).fingerprint
    complaint = rf'elsewhere/p was packed anew: it is pack {found[:12]} now, not {mine[:12]}; bring that one back'
    for take in (
        lambda: train_batches(other, RowsConfig(), 0, pack_fingerprint=mine),
        lambda: heldout_batches(other, 4, pack_fingerprint=mine),
    ):
        with pytest.raises(ValueError, match=complaint):
            take()


def test_rows_are_not_read_from_a_bucket() -> None:
    with pytest.raises(
        ValueError, match=r'gs://bucket/p: rows are read from a disk; copy the pack to one, or mount the'
    ):
        PackedRows('gs://bucket/p', 'train')


# At the read.


def test_any_changed_byte_is_an_error_or_changes_nothing(packed: Path, tmp_path: Path) -> None:
    shard, file = manifest.load_manifest(packed).train.shards[1], tmp_path / SHARD
    whole, random = (packed / SHARD).read_bytes(), np.random.default_rng(0)
    good = shards.Shards(packed, [shard]).read(range(SHARD_ROWS))
    used = max(at for at in range(65536) if whole[at])  # from there to the index there is nothing
    at_random = random.integers(len(whole), size=100).tolist() + random.integers(used, size=300).tolist()
    index = range(65536, 65536 + 1500, 7)
    outcomes = dict.fromkeys(('start', 'read', 'nothing'), 0)
    for offset in [*range(0, 200, 3), *index, *range(len(whole) - 100, len(whole), 7), *at_random]:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << int(random.integers(8))
        file.write_bytes(damaged)
        when, complaint = 'start', f'{file}'
        try:
            shards.check_shards(tmp_path, [shard])
            when = 'read'
            assert shards.Shards(tmp_path, [shard]).read(range(SHARD_ROWS)) == good, f'byte {offset}'
            when = 'nothing'
        except ValueError as error:
            complaint = str(error)
        outcomes[when] += 1
        assert complaint.startswith(f'{file}')
        assert '\n' not in complaint
    assert min(outcomes.values()) > 20, outcomes


def damage(shard: Path, row: int) -> None:
    """Changes a byte of a row."""
    (record,) = ArrayRecordReader(str(shard)).read([row])
    whole = bytearray(shard.read_bytes())
    whole[whole.index(record[:40]) + 20] ^= 4
    shard.write_bytes(whole)


@pytest.mark.parametrize('prefetch', [0, 3])
def test_a_damaged_row_is_named_in_the_step_that_reads_it(pack: Path, prefetch: int) -> None:
    damage(pack / SHARD, 29)
    config, rows = RowsConfig(batch_rows=5, prefetch=prefetch), PackedRows(pack, 'train')
    number = SHARD_ROWS + 29
    step = next(step for step in itertools.count() if number in row_ids(rows, config, step))
    batches = train_batches(pack, config, 0)
    assert [at for at, _, _ in itertools.islice(batches, step)] == list(range(step))
    with pytest.raises(
        ValueError, match=rf'^{pack}/{SHARD}, row 29: cannot be read: .*at byte \d+; copy the pack again'
    ):
        next(batches)
    with pytest.raises(ValueError, match=rf'{SHARD}, row 29: cannot be read'):
        list(PackedRows(pack, 'train'))
    assert rows[number - 1].tokens.any()


def test_a_record_that_is_no_row_is_named(pack: Path) -> None:
    whole = manifest.load_manifest(pack)
    rows = [row.tokens[row.segment_ids > 0].max() for row in PackedRows(pack, 'train')]
    number = next(index for index, largest in enumerate(rows) if index > SHARD_ROWS and largest > 240)
    manifest.save(dataclasses.replace(whole, vocab=240, eos=1), epath.Path(pack))
    with pytest.raises(
        ValueError, match=rf'^{pack}/{SHARD}, row {number - SHARD_ROWS}: token \d+ where there are 240; copy'
    ):
        PackedRows(pack, 'train')[number]


# While a run reads it.


@pytest.fixture
def running(pack: Path) -> Iterator:
    """Batches that have been read from all shards."""
    batches = train_batches(pack, RowsConfig(batch_rows=5, prefetch=2), 0)
    assert len(list(itertools.islice(batches, 8))) == 8
    return batches


def test_a_shard_that_vanishes_under_a_run(pack: Path, running: Iterator) -> None:
    (pack / SHARD).unlink()
    with pytest.raises(ValueError, match=f'{pack}/{SHARD} is missing; copy the pack again'):
        list(running)


def test_a_shard_that_is_cut_off_under_a_run(pack: Path, running: Iterator) -> None:
    os.truncate(pack / SHARD, 5000)
    # The second where a reader had looked at the file just before.
    said = r'(has 5000 bytes, the manifest says 131072: truncated|, row \d+: the file ends before it)'
    with pytest.raises(ValueError, match=f'{pack}/{SHARD} ?{said}'):
        list(running)


def test_a_cut_off_between_looking_and_reading_is_found_too(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """array_record gives empty records there, and no error."""
    rows, version = PackedRows(pack, 'train'), shards._version(str(pack / SHARD))
    rows[SHARD_ROWS]
    monkeypatch.setattr(shards, '_version', lambda path: version)
    os.truncate(pack / SHARD, 5000)
    with pytest.raises(ValueError, match=rf'{pack}/{SHARD}, row 140: (the file ends before it|cannot be read)'):
        rows.read([0, SHARD_ROWS + 140])


@pytest.mark.parametrize('in_place', [True, False])
def test_a_pack_that_is_made_anew_under_a_run(pack: Path, tmp_path: Path, running: Iterator, in_place: bool) -> None:
    other = other_pack(tmp_path / 'q')
    for file in other.iterdir():
        if in_place:
            (pack / file.name).write_bytes(file.read_bytes())
        else:
            os.replace(file, pack / file.name)
    with pytest.raises(ValueError, match=rf'{pack}/train-.* has the seal .* of another pack|has 24 rows'):
        list(running)


def test_a_pack_that_is_touched_under_a_run_is_the_same(pack: Path, running: Iterator) -> None:
    step = next(running)[0]
    for file in pack.iterdir():
        file.touch()
    (pack / 'manifest.json').unlink()
    later = list(itertools.islice(running, 20))
    assert [at for at, _, _ in later] == list(range(step + 1, step + 21))


def test_a_manifest_that_is_written_anew_under_a_run_changes_nothing_of_it(pack: Path, running: Iterator) -> None:
    whole = manifest.load_manifest(pack)
    larger = dataclasses.replace(whole, train=dataclasses.replace(whole.train, rows=10**6))
    manifest.save(larger, epath.Path(pack))
    steps = whole.train.rows // 5
    assert len(list(itertools.islice(running, steps - 8))) == steps - 8
    with pytest.raises(ValueError, match=rf'has {whole.train.rows}, enough for {steps} steps of batch_rows=5'):
        next(running)


def test_more_shards_than_a_process_may_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, '_OPEN_FILES', 4)
    small_pack(tmp_path / 'p', TEXTS, shard_rows=10)
    before, rows = len(os.listdir('/proc/self/fd')), PackedRows(tmp_path / 'p', 'train')
    assert len(rows.split.shards) > 50
    for number in range(0, len(rows), 3):
        rows.read([number, 0])
    assert len(os.listdir('/proc/self/fd')) <= before + 4
