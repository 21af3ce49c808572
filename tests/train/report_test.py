"""What a run says of itself: lines that appear at once, each step once, and events that TensorBoard reads."""

import struct
from pathlib import Path

import pytest
from runs_helper import fill
from tensorboardX.proto.event_pb2 import Event, SessionLog

from smelt_jax.runs import RunDir
from smelt_jax.train.report import CLOCK_KEYS, Report


def report(run_dir: RunDir, start: int = 0, stop: int = 4) -> Report:
    run_dir.path.mkdir(parents=True, exist_ok=True)
    return Report(run_dir, 'run', start, stop, flops_per_token=6.0, peak=300.0)


def events(run_dir: RunDir) -> list[Event]:
    """The events of all files, in the order in which they were written: a length, its checksum, the event, its checksum."""
    found = []
    for path in sorted(Path(run_dir.tensorboard).iterdir(), key=lambda path: path.stat().st_mtime_ns):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from('<Q', data, at)
            found.append(Event.FromString(data[at + 12 : at + 12 + length]))
            at += length + 16
    return found


def test_a_line_is_there_as_soon_as_it_is_logged(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    with report(run_dir) as reporter:
        reporter.step(1, 50)
        reporter.log(1, {'loss': 2.5, 'lr': 0.1})
        (line,) = run_dir.metrics()
        assert {key: line[key] for key in line if key not in CLOCK_KEYS} == {'step': 1, 'loss': 2.5, 'lr': 0.1}
        assert set(line) - set(CLOCK_KEYS) == {'step', 'loss', 'lr'}


def test_speed_counts_the_tokens_since_the_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens a second, and the share of the peak that their FLOPs are. Compilation is none of it."""
    clock = 100.0
    monkeypatch.setattr('time.perf_counter', lambda: clock)
    run_dir = RunDir(tmp_path)
    with report(run_dir) as reporter:
        clock += 30
        reporter.step(1, 64)
        reporter.log(1, {'loss': 1.0})
        reporter.start_clock()
        for step, seconds in ((2, 1), (3, 3), (4, 4)):
            clock += seconds
            reporter.step(step, 64)
            if step > 2:
                reporter.log(step, {'loss': 1.0})
    speeds = [128 / 4, 64 / 4]
    first, *lines = run_dir.metrics()
    assert first == {'step': 1, 'loss': 1.0, 'tokens_per_second': None, 'mfu': None, 'seconds': 30}
    assert [line['tokens_per_second'] for line in lines] == speeds
    assert [line['mfu'] for line in lines] == pytest.approx([speed * 6 / 300 for speed in speeds])
    assert [line['seconds'] for line in lines] == [34, 38]


def test_a_resumed_run_writes_over_what_was_done_after_its_checkpoint(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    with report(run_dir) as reporter:
        for step in (1, 2, 3):
            reporter.log(step, {'loss': 9.0 + step})
    with run_dir.metrics_file.open('a') as file:
        file.write('{"step": 4, "lo')
    before = [line for line in run_dir.metrics_file.read_text().splitlines() if '"step": 1' in line]
    with report(run_dir, start=1) as reporter:
        for step in (2, 3, 4):
            reporter.log(step, {'loss': 1.0 + step})
    assert [(line['step'], line['loss']) for line in run_dir.metrics()] == [(1, 10), (2, 3), (3, 4), (4, 5)]
    assert run_dir.metrics_file.read_text().splitlines()[:1] == before  # to the last digit


def test_tensorboard_sees_every_value_and_where_a_run_was_resumed(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    with report(run_dir) as reporter:
        reporter.start_clock()
        reporter.log(1, {'loss': 2.5, 'lr': 0.125})
        reporter.log(2, {'loss': 2.25, 'lr': 0.125})
    with report(run_dir, start=1) as reporter:
        reporter.log(2, {'loss': 2.0, 'lr': 0.125})
    found = events(run_dir)
    starts = [event.step for event in found if event.session_log.status == SessionLog.START]
    assert starts == [1, 2]  # from there on, what came before is not shown
    values = [
        (event.step, value.tag, value.simple_value)
        for event in found
        for value in event.summary.value
        if value.tag in ('loss', 'lr')
    ]
    assert values == [
        (1, 'loss', 2.5), (1, 'lr', 0.125), (2, 'loss', 2.25), (2, 'lr', 0.125), (2, 'loss', 2.0), (2, 'lr', 0.125),
    ]  # fmt: skip
    tags = {value.tag for event in found for value in event.summary.value}
    assert tags == {'loss', 'lr', *CLOCK_KEYS}


def test_without_a_terminal_progress_is_a_few_plain_lines(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with report(RunDir(tmp_path)) as reporter:
        reporter.start_clock()
        for step in (1, 2, 3, 4):
            reporter.step(step, 64)
            reporter.log(step, {'loss': 1.5})
    out, err = capsys.readouterr()
    assert out == ''
    lines = [line for line in err.splitlines() if line]
    assert [line.split('  ')[1] for line in lines] == ['step 1/4', 'step 4/4']
    assert all('loss 1.5000' in line and 'MFU' in line for line in lines)


def test_a_disk_that_is_full_is_an_error_that_names_the_file(small_disk: Path) -> None:
    """And no thread hangs because of it."""
    run_dir = RunDir(small_disk / 'run')

    def write_on() -> None:
        with report(run_dir) as reporter:
            for step in range(100_000):
                reporter.log(step, {f'metric_{i}': 0.5 for i in range(200)} | {'loss': 1.0})

    with pytest.raises(OSError, match='No space left on device') as caught:
        write_on()
    assert caught.value.filename in (str(run_dir.metrics_file), str(run_dir.tensorboard))
    assert [line['step'] for line in run_dir.metrics()] == list(range(len(run_dir.metrics())))


def test_the_last_lines_reach_the_disk_or_are_an_error(small_disk: Path) -> None:
    """What is written when the report is closed can fail too; an error that came before it is not hidden."""
    run_dir = RunDir(small_disk / 'run')

    def fill_and_leave(error: Exception | None) -> None:
        with report(run_dir) as reporter:
            reporter.log(1, {'loss': 1.0})
            fill(small_disk / 'filler')
            if error:
                raise error

    for error in (ValueError('not a number'), None):
        with pytest.raises(type(error) if error else OSError) as caught:
            fill_and_leave(error)
        (small_disk / 'filler').unlink()
        assert error or caught.value.filename == str(run_dir.tensorboard)
