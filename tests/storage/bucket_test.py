"""What a run writes is the same on a disk and in a bucket; nothing meant for a bucket lands beside the process."""

import json
import os
from pathlib import Path

import pytest
from buckets import Bucket
from etils import epath
from packs import sentences, small_pack
from runs_helper import RUN, edit

from smelt_jax.data import corpora, manifest
from smelt_jax.data.documents import Tally
from smelt_jax.data.packing import pack
from smelt_jax.figures.style import new_figure, save
from smelt_jax.runs import Lineage, RunDir
from smelt_jax.screen import Answer, give
from smelt_jax.storage import files, hold
from smelt_jax.storage.files import is_local, write_atomically
from smelt_jax.storage.lines import Lines
from smelt_jax.sweep import launcher_lines
from smelt_jax.train.branch import _way
from smelt_jax.train.report import Report

TRUNK = Lineage('trunk', 'rows', 'bytes', 0, 12)
RECORD = {'task': 'heldout', 'step': 5, 'visits': 1, 'pack': 'rows', 'loss': 3.0}


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """gs://, and an empty folder to stand in, where nothing may be left."""
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    monkeypatch.setattr(hold, 'SETTLE', 0.0)
    bucket = Bucket(tmp_path / 'objects')
    bucket.patch(monkeypatch)
    return bucket


@pytest.fixture(params=['disk', 'bucket'])
def place(request: pytest.FixtureRequest, bucket: Bucket, tmp_path: Path) -> str:
    return 'gs://bucket/runs' if request.param == 'bucket' else str(tmp_path / 'runs')


def test_what_is_local() -> None:
    for path in ('gs://b/x', 's3://b', '/gs/b'):  # epath takes the last for gs://b
        assert not is_local(path)
        assert not is_local(epath.Path(path))
    for path in ('/x', 'x/gs:', 'gs/b', '.'):
        assert is_local(path)
        assert is_local(epath.Path(path))


def test_a_place_that_cannot_be_is_named() -> None:
    for take in (RunDir, manifest.open_pack, manifest.load_manifest, lambda path: save(new_figure()[0], f'{path}.png')):
        with pytest.raises(
            ValueError, match=r'^http://x/p(.png)?: http:// is no place for files; give a folder, or one of gs:'
        ):
            take('http://x/p')


def test_what_it_takes_to_reach_a_bucket_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, '_installed', lambda package: package not in ('gcsfs', 'tensorflow'))
    for take in (RunDir, manifest.load_manifest, lambda path: save(new_figure()[0], f'{path}.png')):
        with pytest.raises(ValueError, match=r'^gs://b/p(.png)?: it takes gcsfs to reach it, .*; pip install gcsfs$'):
            take('gs://b/p')
    RunDir('s3://b/p')
    runs = {'a': RUN}
    assert (
        'gs://b/sweep/a/trunk' in launcher_lines('experiments/x.py', runs, 'gs://b/sweep')[1][0]
    )  # for other machines


def test_a_run_directory_is_the_same_in_a_bucket(place: str, tmp_path: Path) -> None:
    run_dir = RunDir(f'{place}/a')
    run_dir.claim(RUN, TRUNK)
    run_dir.claim(edit(RUN, data__pack='/elsewhere'), TRUNK)
    with pytest.raises(ValueError, match=rf'{place}/a belongs to another run, .* config.seed: 0 -> 3'):
        run_dir.claim(edit(RUN, seed=3), TRUNK)
    assert (run_dir.config().data.pack, run_dir.lineage()) == ('/elsewhere', TRUNK)
    run_dir.forget_metrics_after(0)
    for start in (0, 3):
        run_dir.forget_metrics_after(start)
        lines = Lines(run_dir.metrics_file)
        for step in range(start + 1, start + 6):
            lines.add(json.dumps({'step': step, 'loss': 1.5}))
        lines.close()
    assert [line['step'] for line in run_dir.metrics()] == list(range(1, 9))
    run_dir.put_records([RECORD])
    run_dir.put_records([RECORD | {'loss': 2.0}, RECORD | {'step': 10}])
    assert [record['loss'] for record in run_dir.records()] == [2.0, 3.0]
    with run_dir.held():
        assert run_dir.holder().startswith(f'process {os.getpid()} on ')
    assert run_dir.holder() == ''
    names = (path.name for path in run_dir.path.iterdir())
    assert sorted(name for name in names if not name.startswith('.')) == [
        'config.json', 'lineage.json', 'metrics.jsonl', 'records.jsonl',
    ]  # fmt: skip
    assert list((tmp_path / 'here').iterdir()) == []


def test_checkpoints_of_nobody_are_found_in_a_bucket(bucket: Bucket) -> None:
    write_atomically(epath.Path('gs://bucket/a/checkpoints/5/params'), 'x')
    with pytest.raises(ValueError, match='gs://bucket/a has checkpoints, but no config'):
        RunDir('gs://bucket/a').claim(RUN, TRUNK)


def test_a_manifest_is_read_from_a_bucket_and_rows_are_not(bucket: Bucket, tmp_path: Path) -> None:
    made = small_pack(tmp_path / 'p', sentences(20), tokenizer='bpe:300')
    for file in (tmp_path / 'p').iterdir():
        write_atomically(epath.Path('gs://bucket/p') / file.name, file.read_bytes())
    assert manifest.load_manifest('gs://bucket/p') == made
    assert manifest.load_tokenizer('gs://bucket/p').fingerprint == made.tokenizer_fingerprint
    with pytest.raises(ValueError, match=r'gs://bucket/q is no pack: it has no manifest\.json'):
        manifest.load_manifest('gs://bucket/q')
    with pytest.raises(ValueError, match='gs://bucket/p: rows are read from a disk; copy the pack to one'):
        manifest.open_pack('gs://bucket/p')


def test_texts_in_a_bucket_make_the_same_pack(bucket: Bucket, tmp_path: Path) -> None:
    from packs import small_config, write_jsonl

    spec = write_jsonl(tmp_path / 'texts' / 'a.jsonl', sentences(20))
    write_atomically(epath.Path('gs://bucket/texts/a.jsonl'), (tmp_path / 'texts' / 'a.jsonl').read_bytes())
    made = [
        pack(small_config(corpus), tmp_path / str(n)) for n, corpus in enumerate([spec, 'jsonl:gs://bucket/texts/*'])
    ]
    assert made[0] == made[1]
    assert len(list(corpora.read(['text:gs://bucket/texts'], 'refuse', Tally(), lambda name: None))) == 1
    with pytest.raises(ValueError, match='needs a listing of the whole bucket'):
        pack(small_config('jsonl:gs://bucket/**/*.jsonl'), tmp_path / 'q')
    with pytest.raises(
        ValueError, match=r'gs://bucket/q: rows are written to a disk; give --out, or data\.pack of a sweep, a folder'
    ):
        pack(small_config(spec), 'gs://bucket/q')


def test_figures_and_answers_are_written_to_a_bucket(place: str, tmp_path: Path) -> None:
    save(new_figure()[0], f'{place}/figures/a.png')
    assert epath.Path(f'{place}/figures/a.png').read_bytes().startswith(b'\x89PNG')
    give(lambda: Answer([], {'a': 1}, ['line']), 'q', f'{place}/figures/a.json', f'{place}/figures/a.md')
    assert json.loads(epath.Path(f'{place}/figures/a.json').read_text()) == {'a': 1}
    assert epath.Path(f'{place}/figures/a.md').read_text() == '# q\n\nline\n'
    assert list((tmp_path / 'here').iterdir()) == []


def test_a_branch_finds_its_trunk() -> None:
    trunk, leaf = epath.Path('/runs/trunk'), epath.Path('/runs/leaf')
    assert _way(trunk, leaf) == '../trunk'
    assert _way(epath.Path('gs://b/trunk'), leaf) == 'gs://b/trunk'
    assert _way(trunk, epath.Path('gs://b/leaf')) == '/runs/trunk'


# Lines.


def test_lines_are_in_the_file_when_they_have_to_be(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = epath.Path(place) / 'lines'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('old\n')
    lines = Lines(file)
    lines.add('one')
    assert file.read_text() == ('old\none\n' if is_local(file) else 'old\n')
    lines.flush()
    assert file.read_text() == 'old\none\n'
    monkeypatch.setattr(Lines, 'SECONDS', 0.0)
    lines.add('two')
    assert file.read_text() == 'old\none\ntwo\n'
    monkeypatch.setattr(Lines, 'SECONDS', 60.0)
    lines.add('three')
    lines.close()
    assert file.read_text() == 'old\none\ntwo\nthree\n'


def test_a_bucket_that_does_not_answer_is_named(bucket: Bucket) -> None:
    file = epath.Path('gs://bucket/lines')
    lines = Lines(file)
    lines.add('one')
    bucket.broken = True
    for write in (lines.flush, lambda: write_atomically(file, 'x')):
        with pytest.raises(OSError, match=r'^gs://bucket/lines: 503 Service Unavailable$'):
            write()
    bucket.broken = False
    lines.close()
    assert file.read_text() == 'one\n'


def test_a_line_that_was_cut_off_is_taken_away(place: str) -> None:
    """The next one would become part of it, and the file be damaged for good."""
    file = epath.Path(place) / 'lines'
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, '{"a": 1}\n{"a": 2')
    lines = Lines(file)
    lines.add('{"a": 3}')
    lines.close()
    assert file.read_text() == '{"a": 1}\n{"a": 3}\n'


def test_a_report_is_the_same_in_both(place: str) -> None:
    """Metrics and incidents at a flush, events at a flush or the end; what an earlier process wrote stays."""
    run_dir = RunDir(place)
    run_dir.path.mkdir(parents=True, exist_ok=True)
    for start in (0, 2):
        with Report(run_dir, 'run', start, 4, 6.0, 300.0) as report:
            report.log(start + 1, {'loss': 2.0})
            report.incident(start + 1, 'spike', 'high', {'rows': [1]})
            report.flush()
            assert all(len(path.read_bytes()) > 60 for path in run_dir.tensorboard.iterdir())
            assert run_dir.metrics()[-1]['step'] == run_dir.incidents()[-1]['step'] == start + 1
    assert [line['step'] for line in run_dir.metrics()] == [line['step'] for line in run_dir.incidents()] == [1, 3]
    events = sorted(run_dir.tensorboard.iterdir(), key=lambda path: path.name[-1])
    assert [path.name.rpartition('.')[2] for path in events] == ['0', '2']
    assert all(len(path.read_bytes()) > 60 for path in events)
