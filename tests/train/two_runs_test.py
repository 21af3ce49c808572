"""A second run in a workdir is refused before it does anything, on a disk and in a bucket, and is told who is there."""

import os
from pathlib import Path

import pytest
from buckets import Bucket
from runs_helper import RUN, edit

from smelt_jax.runs import RunDir
from smelt_jax.storage import hold
from smelt_jax.train.loop import train


@pytest.mark.parametrize('place', ['disk', 'bucket'])
def test_a_second_run_is_refused(place: str, tiny_pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Bucket(tmp_path / 'objects').patch(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hold, 'SETTLE', 0.0)
    workdir = 'gs://bucket/run' if place == 'bucket' else str(tmp_path / 'run')
    run_dir = RunDir(workdir)
    run_dir.path.mkdir(parents=True, exist_ok=True)
    with (
        run_dir.held(),
        pytest.raises(
            ValueError, match=rf'{workdir} is in use by process {os.getpid()} on .*; wait for it, or stop it'
        ),
    ):
        train(edit(RUN, data__pack=str(tiny_pack)), workdir)
    assert not run_dir.checkpoints.exists()
    assert not (tmp_path / 'gs:').exists()


def test_a_pack_in_a_bucket_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='gs://bucket/p: rows are read from a disk; copy the pack to one, or mount'):
        train(edit(RUN, data__pack='gs://bucket/p'), str(tmp_path / 'run'))
    assert list(tmp_path.iterdir()) == []
