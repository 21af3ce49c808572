"""A run directory belongs to one run, its files are whole or not there, and a config that cannot be is named as it is."""

import dataclasses
import json
import os
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_helper import RUN, edit, fill, times_of

from smelt_jax.parallel.config import MeshConfig
from smelt_jax.runs import FREE_KEYS, Lineage, RunDir, config_fingerprint, read_lines
from smelt_jax.storage.files import write_atomically

TRUNK = Lineage('trunk', 'rows', 'bytes', 0, 12)
BRANCH = Lineage('branch', 'rows', 'bytes', 10, 17, '../trunk', 'c0ffee')
CHANGES = {  # of every free key
    'data__pack': '/elsewhere',
    'data__prefetch': 9,
    'pack__workers': 3,
    'optim__skip_nonfinite': 2,
    'train__log_every': 7,
    'train__save_every': 7,
    'train__save_minutes': 5.0,
    'train__keep': 7,
    'train__spike': 0.0,
    'train__stall_minutes': 1.0,
    'train__peak_flops': 7.0,
    'mesh': MeshConfig(expert=2),
}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / 'run')
    run_dir.claim(RUN, TRUNK)
    return run_dir


def record(step: int, loss: float, **others: object) -> dict:
    return {'task': 'heldout', 'step': step, 'visits': 1, 'pack': 'rows', 'loss': loss} | others


def test_what_is_written_is_read_back(run_dir: RunDir) -> None:
    assert run_dir.config() == RUN
    assert run_dir.lineage() == TRUNK
    assert run_dir.metrics() == run_dir.records() == run_dir.heldout() == []
    with pytest.raises(FileNotFoundError, match=r'gone is no run directory: it has no config\.json'):
        RunDir(run_dir.path.parent / 'gone').config()


@pytest.mark.parametrize(
    ('changes', 'named'),
    [
        ({'seed': 3}, ['config.seed: 0 -> 3']),
        ({'name': 'other'}, ["config.name: 'tiny' -> 'other'"]),
        (
            {'train__branch_steps': (5,), 'model__experts__count': 8, 'data__pack': '/elsewhere'},
            ['config.model.experts.count: 4 -> 8', 'config.train.branch_steps: [5, 10, 11] -> [5]'],
        ),
    ],
)
def test_another_configs_directory_is_refused_with_the_keys(run_dir: RunDir, changes: dict, named: list[str]) -> None:
    before = times_of(run_dir)
    with pytest.raises(ValueError, match='belongs to another run, which differs in ') as caught:
        run_dir.claim(edit(RUN, **changes), TRUNK)
    assert re.search(r'differs in (.*)\. Give this run a workdir of its own', str(caught.value))[1] == '; '.join(named)
    assert times_of(run_dir) == before


@pytest.mark.parametrize(
    ('lineage', 'named'),
    [
        (dataclasses.replace(TRUNK, pack='others'), r"lineage\.pack: 'rows' -> 'others'"),
        (dataclasses.replace(TRUNK, stop=13), r'lineage\.stop: 12 -> 13'),
        (BRANCH, r"lineage\.kind: 'trunk' -> 'branch'.*lineage\.start: 0 -> 10.*trunk_config: '' -> 'c0ffee'"),
    ],
)
def test_another_lineages_directory_is_refused(run_dir: RunDir, lineage: Lineage, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        run_dir.claim(RUN, lineage)
    assert run_dir.lineage() == TRUNK


def test_records_that_are_put_at_once_are_all_kept(run_dir: RunDir) -> None:
    def put(first: int) -> None:
        for step in range(first, first + 20):
            RunDir(run_dir.path).put_records([{'step': step, 'visits': 1, 'task': 'heldout', 'pack': 'rows'}])

    threads = [threading.Thread(target=put, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(run_dir.records()) == 60


def test_keys_that_change_no_number_are_free_and_kept_up_to_date(run_dir: RunDir) -> None:
    assert {key.replace('__', '.') for key in CHANGES} == set(FREE_KEYS)
    moved = edit(RUN, **CHANGES)
    run_dir.claim(moved, TRUNK)
    assert run_dir.config() == moved
    assert config_fingerprint(moved) == config_fingerprint(RUN) != config_fingerprint(edit(RUN, seed=1))
    before = times_of(run_dir)
    run_dir.claim(moved, TRUNK)
    assert times_of(run_dir) == before


def test_a_branchs_trunk_may_have_moved(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / 'leaf')
    run_dir.claim(RUN, BRANCH)
    run_dir.claim(RUN, dataclasses.replace(BRANCH, trunk='/moved/trunk'))
    with pytest.raises(ValueError, match=r"lineage\.trunk_config: 'c0ffee' -> 'bad'"):
        run_dir.claim(RUN, dataclasses.replace(BRANCH, trunk_config='bad'))


def test_a_claim_that_was_cut_off_is_made_again(run_dir: RunDir) -> None:
    """Between config.json and lineage.json nothing else is written."""
    os.remove(run_dir.lineage_file)
    run_dir.claim(edit(RUN, seed=4), TRUNK)
    assert run_dir.config().seed == 4


@pytest.mark.parametrize('gone', ['config_file', 'lineage_file'])
def test_checkpoints_of_nobody_are_not_taken_for_ones_own(run_dir: RunDir, gone: str) -> None:
    run_dir.checkpoints.mkdir()
    os.remove(getattr(run_dir, gone))
    before = times_of(run_dir)
    with pytest.raises(ValueError, match=r'has checkpoints, but no config\.json and lineage\.json that say whose'):
        run_dir.claim(RUN, TRUNK)
    assert times_of(run_dir) == before


def test_a_config_of_another_version_is_refused(run_dir: RunDir) -> None:
    config = json.loads(run_dir.config_file.read_text())
    del config['optim']['eps']
    run_dir.config_file.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.optim\.eps: '\(absent\)' -> 1e-08"):
        run_dir.claim(RUN, TRUNK)
    with pytest.raises(ValueError, match=r'optim\.eps is missing; a config\.json of this version has it'):
        run_dir.config()


def test_a_second_writer_is_told_who_the_first_is(run_dir: RunDir) -> None:
    before = times_of(run_dir)
    who = rf'run is in use by process {os.getpid()} on .* since 20.*; wait for it, or stop it'
    with run_dir.held(), pytest.raises(ValueError, match=who), RunDir(run_dir.path).held():
        pass
    with run_dir.held():
        pass
    assert times_of(run_dir) == before


@pytest.mark.parametrize('file', ['config.json', 'lineage.json'])
@pytest.mark.parametrize(('text', 'what'), [('', 'damaged, no JSON'), ('[3]', r"holds '\[3\]', not the keys")])
def test_a_damaged_file_is_named(run_dir: RunDir, file: str, text: str, what: str) -> None:
    (run_dir.path / file).write_text(text)
    with pytest.raises(ValueError, match=rf'{re.escape(str(run_dir.path / file))}: {what}'):
        run_dir.claim(RUN, TRUNK)


@pytest.mark.parametrize(('line', 'what'), [('gibberish', ': damaged, no JSON'), ('{"loss": 3}', ': has no step')])
def test_a_damaged_line_is_named(run_dir: RunDir, line: str, what: str) -> None:
    good = json.dumps(record(5, 3.0))
    for file, read in ((run_dir.metrics_file, run_dir.metrics), (run_dir.records_file, run_dir.records)):
        file.write_text(f'{good}\n{line}\n{good}\n')
        with pytest.raises(ValueError, match=rf'{file.name}, line 2{what}'):
            read()


@given(cut=st.integers(0, 200))
def test_a_line_that_was_cut_off_is_passed_over(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    run_dir = RunDir(tmp_path_factory.mktemp('run'))
    lines = [{'step': step, 'loss': step / 3} for step in range(1, 5)]
    text = ''.join(json.dumps(line) + '\n' for line in lines)[:cut]
    run_dir.metrics_file.write_text(text)
    assert run_dir.metrics() == lines[: text.count('\n')]


def test_what_is_done_again_is_forgotten(run_dir: RunDir) -> None:
    lines = [{'step': step, 'loss': step / 3} for step in range(1, 8)]
    run_dir.metrics_file.write_text(''.join(json.dumps(line) + '\n' for line in lines) + '{"step"')
    run_dir.forget_metrics_after(5)
    assert run_dir.metrics_file.read_text() == ''.join(json.dumps(line) + '\n' for line in lines[:5])
    run_dir.forget_metrics_after(0)
    assert run_dir.metrics() == []
    RunDir(run_dir.path.parent / 'fresh').forget_metrics_after(0)


def test_an_evaluation_takes_the_place_of_its_like_alone(run_dir: RunDir) -> None:
    first = [record(5, 3.0), record(5, 3.1, visits=2), record(5, 3.2, pack='others'), record(10, 2.0)]
    run_dir.put_records(first)
    run_dir.put_records([record(5, 2.9), record(5, 1.0, task='arc')])
    assert sorted(r['loss'] for r in run_dir.records()) == [1.0, 2.0, 2.9, 3.1, 3.2]
    assert sorted(r['loss'] for r in run_dir.heldout()) == [2.0, 2.9]  # as trained, on its own rows


def test_a_file_is_whole_or_the_old_one(small_disk: Path) -> None:
    file = RunDir(small_disk).records_file
    write_atomically(file, 'old\n')
    fill(small_disk / 'filler')
    with pytest.raises(OSError, match='No space left on device') as caught:
        write_atomically(file, 'x' * 100_000)
    assert caught.value.filename == str(file)
    assert file.read_text() == 'old\n'
    assert sorted(os.listdir(small_disk)) == ['filler', 'records.jsonl']


def test_lines_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert read_lines(RunDir(tmp_path).records_file, ()) == []
    RunDir(tmp_path).records_file.write_bytes(b'{"a": 1}\n\xff\n')
    with pytest.raises(ValueError, match=r'records\.jsonl is no text in UTF-8 .*; restore it from a copy'):
        read_lines(RunDir(tmp_path).records_file, ())
