"""One process at a time holds a folder, on a disk and in a bucket, and a second one is told who."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from buckets import Bucket
from etils import epath

from smelt_jax.storage import hold
from smelt_jax.storage.files import write_atomically

ROOT = Path(__file__).parents[2]
LEASED = epath.Path('gs://bucket/run/holder')

# Holds FILE, says so, and waits. In gs://, which is the folder BUCKET.
CHILD = """
import sys, time
from pathlib import Path
from buckets import Bucket
from etils import epath
from pytest import MonkeyPatch
from smelt_jax.storage import hold
file, root, hold.SETTLE, hold.RENEW, hold.LEASE = epath.Path(sys.argv[1]), Path(sys.argv[2]), 0.0, 0.1, float(sys.argv[3])
Bucket(root).patch(MonkeyPatch())
try:
    with hold.held(file):
        print('held', flush=True)
        time.sleep(60)
except ValueError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(hold, 'SETTLE', 0.0)
    monkeypatch.setattr(hold, 'RENEW', 0.02)
    bucket = Bucket(tmp_path / 'objects')
    bucket.patch(monkeypatch)
    return bucket


@pytest.fixture(params=['disk', 'bucket'])
def file(request: pytest.FixtureRequest, bucket: Bucket, tmp_path: Path) -> epath.Path:
    return LEASED if request.param == 'bucket' else epath.Path(tmp_path / 'holder')


def child(file: epath.Path, tmp_path: Path, lease: float = 60.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, '-c', CHILD, str(file), str(tmp_path / 'objects'), str(lease)],
        env=os.environ | {'PYTHONPATH': f'{ROOT}{os.pathsep}{ROOT / "tests"}'},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(true: Callable[[], object]) -> None:
    """Waits for what has to become true."""
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError('it never became true')


def write_lease(age: float) -> None:
    write_atomically(LEASED, f'process 7 on far since long\n{time.time() - age}\nsecret')


def test_a_second_process_is_told_who_the_first_is(file: epath.Path, tmp_path: Path) -> None:
    with hold.held(file):
        before = hold.holder(file)
        assert before.startswith(f'process {os.getpid()} on ')
        second = child(file, tmp_path)
        complaint = second.communicate()[1]
        assert second.returncode == 1
        assert complaint.startswith(f'{file.parent} is in use by {before}; wait for it, or stop it')
        assert hold.holder(file) == before
    assert hold.holder(file) == ''
    assert not file.exists()
    with hold.held(file):
        pass


def test_threads_of_one_process_exclude_each_other_too(file: epath.Path) -> None:
    who = rf'{file.parent} is in use by process {os.getpid()} on'
    with hold.held(file), pytest.raises(ValueError, match=who), hold.held(file):
        pass


@pytest.mark.parametrize('comes', [False, True])
def test_a_lock_on_a_file_that_has_lost_its_name_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    """The one before lets go between the opening and the locking of the next, and perhaps a third comes."""
    file, flock = epath.Path(tmp_path / 'holder'), hold.fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(hold.fcntl, 'flock', flock)
        file.unlink()
        if comes:
            file.write_text('')
        flock(descriptor, how)

    monkeypatch.setattr(hold.fcntl, 'flock', late)
    with hold.held(file):
        assert hold.holder(file).startswith(f'process {os.getpid()} on ')
        with pytest.raises(ValueError, match='is in use by'), hold.held(file):
            pass


def test_what_fails_lets_go(file: epath.Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), hold.held(file):
            raise ZeroDivisionError
    assert not file.exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith('lease')]


def test_a_killed_process_holds_a_disk_no_longer_and_a_bucket_until_its_lease_is_out(
    file: epath.Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = child(file, tmp_path)
    assert first.stdout
    assert first.stdout.readline() == 'held\n'
    who = hold.holder(file)
    with pytest.raises(ValueError, match=f'in use by process {first.pid} on '), hold.held(file):
        pass
    first.send_signal(signal.SIGKILL)
    first.wait()
    if file == LEASED:
        with pytest.raises(ValueError, match=r'if it is dead, its hold runs out in [3-6]\d seconds'), hold.held(file):
            pass
        monkeypatch.setattr(hold, 'LEASE', 0.0)
    with hold.held(file):
        assert hold.holder(file).startswith(f'process {os.getpid()} on ')
    said = capsys.readouterr().err
    assert said == (f'gs://bucket/run: taken over from {who}, not heard of for 0 seconds\n' if file == LEASED else '')


def test_a_lease_is_renewed_and_says_the_same(bucket: Bucket) -> None:
    with hold.held(LEASED):
        first, words = LEASED.read_text(), hold.holder(LEASED)
        until(lambda: LEASED.read_text() != first)
        assert hold.holder(LEASED) == words


@pytest.mark.parametrize(('age', 'taken'), [(0, False), (50, False), (61, True), (1e6, True)])
def test_a_lease_is_good_for_a_minute(bucket: Bucket, age: float, taken: bool) -> None:
    write_lease(age)
    if taken:
        with hold.held(LEASED):
            assert hold.holder(LEASED).startswith(f'process {os.getpid()}')
    else:
        who = r'run is in use by process 7 on far since long; .* its hold runs out in \d+ seconds'
        with pytest.raises(ValueError, match=who), hold.held(LEASED):
            pass
        assert 'secret' in LEASED.read_text()


def test_of_two_that_begin_at_once_one_has_it(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold.time, 'sleep', lambda seconds: write_lease(0))  # the other one, after this one wrote
    with (
        pytest.raises(ValueError, match='run is in use by process 7 on far since long; wait for it'),
        hold.held(LEASED),
    ):
        pass
    assert 'secret' in LEASED.read_text()


def test_who_was_taken_over_is_told_and_leaves_it_to_the_other(bucket: Bucket) -> None:
    told: list[str] = []
    with hold.held(LEASED, told.append):
        write_lease(0)
        until(lambda: told)
    assert told == ['gs://bucket/run was taken over by process 7 on far since long']
    assert 'secret' in LEASED.read_text()


def test_a_process_that_was_taken_over_ends(bucket: Bucket, tmp_path: Path) -> None:
    first = child(LEASED, tmp_path)
    assert first.stdout
    first.stdout.readline()
    write_lease(0)
    said = first.communicate()[1]
    assert first.returncode == os.EX_TEMPFAIL
    assert said == (
        '-c: error: gs://bucket/run was taken over by process 7 on far since long; '
        'this process ends, before two write there\n'
    )


def test_a_bucket_that_answers_again_in_time_is_held_still(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with hold.held(LEASED, told.append):
        bucket.broken = True
        time.sleep(0.1)
        bucket.broken = False
        before = LEASED.read_text()
        until(lambda: LEASED.read_text() != before)
        assert told == []
        monkeypatch.setattr(hold, 'LEASE', 0.1)
        bucket.broken = True
        until(lambda: told)
    assert told == ['the hold of gs://bucket/run could not be renewed: 503 Service Unavailable']


def test_a_holder_that_is_no_lease_is_named(bucket: Bucket) -> None:
    for text in ('', 'x\ny\nz', 'one line'):
        write_atomically(LEASED, text)
        with pytest.raises(ValueError, match=r'gs://bucket/run/holder is damaged: .*; remove it'), hold.held(LEASED):
            pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match='No such file') as caught, hold.held(epath.Path(tmp_path / 'gone' / 'holder')):
        pass
    assert caught.value.filename == f'{tmp_path}/gone/holder'
