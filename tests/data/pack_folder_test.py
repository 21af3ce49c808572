"""The folder of a pack: made again, killed, out of room, of impossible settings, damaged. Never half a pack."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from packs import contents, sentences, small_pack, write_jsonl

from smelt_jax.data import corpora, packing
from smelt_jax.data.config import PackConfig
from smelt_jax.data.manifest import load_manifest, load_tokenizer, open_pack
from smelt_jax.data.rows import PackedRows
from smelt_jax.storage.hold import held

ROOT = Path(__file__).parents[2]
TEXTS = sentences(60)


# Again into the same folder.


def test_again_with_the_same_inputs_does_nothing(tmp_path: Path) -> None:
    made = small_pack(tmp_path / 'p', TEXTS)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / 'p').iterdir()}
    (tmp_path / 'p-corpus' / 'texts.jsonl').touch()  # a newer date is no other text
    assert small_pack(tmp_path / 'p', TEXTS, workers=2) == made
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / 'p').iterdir()} == before


def test_again_with_other_inputs_is_refused_and_named(tmp_path: Path) -> None:
    small_pack(tmp_path / 'p', TEXTS)
    before = contents(tmp_path / 'p')
    with pytest.raises(ValueError, match='row_tokens: 32 -> 64'):
        small_pack(tmp_path / 'p', TEXTS, row_tokens=64)
    with pytest.raises(ValueError, match='tokenizer: bytes -> bpe:300'):
        small_pack(tmp_path / 'p', TEXTS, tokenizer='bpe:300')
    with pytest.raises(ValueError, match=r'p-corpus/texts\.jsonl: \w+ -> \w+'):
        small_pack(tmp_path / 'p', TEXTS[1:])
    assert contents(tmp_path / 'p') == before


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / 'p').mkdir()
    (tmp_path / 'p' / 'tokenizer.json').write_text('mine')
    with pytest.raises(ValueError, match=r'no pack and not empty \(it has tokenizer\.json\)'):
        small_pack(tmp_path / 'p', TEXTS)
    assert (tmp_path / 'p' / 'tokenizer.json').read_text() == 'mine'


def test_two_runs_at_once_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / 'p').mkdir()
    who = rf'p is in use by process {os.getpid()} on .* since 20.*; wait for it, or stop it'
    with held(epath.Path(tmp_path / 'p' / packing._HOLDER)), pytest.raises(ValueError, match=who):
        small_pack(tmp_path / 'p', TEXTS)
    small_pack(tmp_path / 'p', TEXTS)


# Killed, or out of room.

CHILD = """
import os, resource, signal, sys
sys.path.insert(0, 'tests')
from pathlib import Path
from packs import small_config
from smelt_jax.data import packing
out, corpus, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
die = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
if what == 'reading':
    packing._write_rows = die
elif what == 'moving':
    real = os.replace
    os.replace = lambda a, b: die() if str(b).endswith('manifest.json') and '.packing' not in str(b) else real(a, b)
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(what), int(what)))
try:
    packing.pack(small_config(corpus, shard_rows=250), out)
except ValueError as error:
    sys.exit(str(error))
"""


def child(out: Path, what: str) -> subprocess.CompletedProcess[str]:
    corpus = write_jsonl(out.parent / f'{out.name}-corpus' / 'texts.jsonl', TEXTS)
    command = [sys.executable, '-c', CHILD, str(out), corpus, what]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {'PYTHONPATH': '.'}, capture_output=True, text=True)


@pytest.mark.parametrize('when', ['reading', 'moving'])
def test_killed_it_leaves_no_pack_and_the_next_run_starts_over(tmp_path: Path, when: str) -> None:
    assert child(tmp_path / 'p', when).returncode == -signal.SIGKILL
    left = {path.name for path in (tmp_path / 'p').iterdir()}
    assert '.packing' in left
    assert 'manifest.json' not in left
    assert ('train-00000-of-00003.array_record' in left) == (when == 'moving')
    with pytest.raises(ValueError, match=r'is no pack: it has no manifest\.json'):
        open_pack(tmp_path / 'p')
    small_pack(tmp_path / 'p', TEXTS, shard_rows=250)
    small_pack(tmp_path / 'whole', TEXTS, shard_rows=250)
    assert load_manifest(tmp_path / 'p').fingerprint == load_manifest(tmp_path / 'whole').fingerprint
    assert contents(tmp_path / 'p').keys() == contents(tmp_path / 'whole').keys()


# The spill of the documents is the first to find no room; with more of it, a shard is.
@pytest.mark.parametrize('room', [10_000, 60_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, room: int) -> None:
    done = child(tmp_path / 'p', str(room))
    assert done.returncode == 1
    assert done.stderr.strip().startswith(f'cannot write {tmp_path}/p: ')
    assert 'File too large' in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list((tmp_path / 'p').iterdir()) == []
    small_pack(tmp_path / 'p', TEXTS)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / 'file').write_text('')
    corpus = write_jsonl(tmp_path / 'texts.jsonl', TEXTS)
    for out in (tmp_path / 'file', tmp_path / 'file' / 'p', Path('/proc/p')):
        with pytest.raises(ValueError, match=f'cannot write {out}: .*; make room there, or choose another --out'):
            packing.pack(PackConfig(corpora=(corpus,)), out)
    with pytest.raises(ValueError, match='gs://bucket/p: rows are written to a disk; give --out'):
        packing.pack(PackConfig(corpora=(corpus,)), 'gs://bucket/p')


# What is no corpus, or too little of one.


@pytest.mark.parametrize(
    ('texts', 'settings', 'complaint'),
    [
        ([], {}, 'hold no text'),
        (['', ''], {}, 'hold no text'),
        (TEXTS[:1], {}, 'leave 1 documents to train on and 0 held out; add text'),
        (TEXTS[:1], {'heldout_fraction': 0.999999}, 'leave 0 documents to train on'),
        (TEXTS, {'max_bytes': 3}, 'max_bytes=3 leave 0 documents to train on'),
        (TEXTS, {'max_bytes': -1}, r'pack\.max_bytes=-1'),
        (TEXTS, {'row_tokens': 0}, r'pack\.row_tokens=0'),
        (TEXTS, {'heldout_fraction': 1.0}, r'pack\.heldout_fraction=1\.0'),
        (TEXTS, {'invalid_utf8': 'ignore'}, r"pack\.invalid_utf8='ignore': choose replace or refuse"),
        (TEXTS, {'corpora': ()}, r'pack\.corpora is empty'),
        (TEXTS, {'tokenizer': 'bpe:12'}, "tokenizer 'bpe:12'"),
        (TEXTS, {'tokenizer': 'bpe:²'}, "tokenizer 'bpe:²'"),
        (TEXTS, {'tokenizer': f'bpe:{10**20}'}, "tokenizer 'bpe:1000"),
    ],
)
def test_impossible_packs_are_errors_that_leave_nothing(
    tmp_path: Path, texts: list[str], settings: dict, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        small_pack(tmp_path / 'p', texts, **settings)
    assert not (tmp_path / 'p').exists() or list((tmp_path / 'p').iterdir()) == []


def test_a_bad_tokenizer_is_found_before_the_corpus_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, 'read', None)
    (tmp_path / 'tokenizer.json').write_text('[' * 100_000)
    for spec, complaint in (('bpex', "tokenizer 'bpex'"), (f'file:{tmp_path}/tokenizer.json', 'is not a Hugging Face')):
        with pytest.raises(ValueError, match=complaint):
            small_pack(tmp_path / 'p', TEXTS, tokenizer=spec)


# A pack that is no longer what it was.


def test_open_pack_finds_what_is_missing_or_cut(tmp_path: Path) -> None:
    small_pack(tmp_path / 'p', TEXTS, shard_rows=250)
    shard = tmp_path / 'p' / 'train-00001-of-00003.array_record'
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r'train-00001-of-00003\.array_record has \d+ bytes, the manifest says \d+'):
        open_pack(tmp_path / 'p')
    shard.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    with pytest.raises(
        ValueError, match=r'train-00001-of-00003\.array_record, row 250: cannot be read: .*; copy the pack'
    ):
        PackedRows(tmp_path / 'p', 'train')
    shard.unlink()
    with pytest.raises(ValueError, match=r'train-00001-of-00003\.array_record is missing; copy the pack again'):
        small_pack(tmp_path / 'p', TEXTS, shard_rows=250)
    shard.write_bytes(whole)
    open_pack(tmp_path / 'p')


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    made = small_pack(tmp_path / 'p', TEXTS, tokenizer='bpe:300')
    other = small_pack(tmp_path / 'q', TEXTS, tokenizer='bpe:301')
    open_pack(tmp_path / 'p', made.tokenizer_fingerprint)
    with pytest.raises(ValueError, match=f'not with the one asked for .{other.tokenizer_fingerprint[:12]}'):
        open_pack(tmp_path / 'p', other.tokenizer_fingerprint)
    (tmp_path / 'p' / 'tokenizer.json').write_bytes((tmp_path / 'q' / 'tokenizer.json').read_bytes())
    with pytest.raises(ValueError, match='is not the tokenizer this pack was made with'):
        load_tokenizer(tmp_path / 'p')
    (tmp_path / 'p' / 'tokenizer.json').unlink()
    with pytest.raises(ValueError, match=r'cannot read the tokenizer .*p/tokenizer\.json: .*; bring it back'):
        open_pack(tmp_path / 'p')


def test_foreign_and_other_manifests_are_refused(tmp_path: Path) -> None:
    small_pack(tmp_path / 'p', TEXTS)
    path = tmp_path / 'p' / 'manifest.json'
    state = json.loads(path.read_text())
    for edit, complaint in [
        ({'version': None}, 'format version None, this smelt_jax reads 2'),
        ({'version': 1}, 'format version 1, this smelt_jax reads 2; .*: use that version, or pack again'),
        ({'format': 'other'}, 'was not written by smelt pack'),
        ({'train': {}}, 'is not as smelt pack wrote it: edited or damaged; restore it from a copy'),
        ({'more': 1}, 'is not as smelt pack wrote it'),
        ({'vocab': 258}, 'is not as smelt pack wrote it'),
        ({'checksum': None}, 'is not as smelt pack wrote it'),
    ]:
        path.write_text(json.dumps(state | edit))
        with pytest.raises(ValueError, match=complaint):
            load_manifest(tmp_path / 'p')
    for text in ('{', '', '[' * 100_000, '\udcff'):
        path.write_text(text, errors='surrogateescape')
        with pytest.raises(ValueError, match='cannot read'):
            load_manifest(tmp_path / 'p')


def test_a_manifest_with_any_byte_changed_is_refused_or_says_the_same(tmp_path: Path) -> None:
    made = small_pack(tmp_path / 'p', TEXTS)
    path = tmp_path / 'p' / 'manifest.json'
    whole, random = path.read_bytes(), np.random.default_rng(0)
    for offset in random.choice(len(whole), 400, replace=False):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            assert load_manifest(tmp_path / 'p') == made, f'byte {offset}'
