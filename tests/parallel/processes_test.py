"""One run by several processes: the same losses and the same rows as by one, resumed by any number of them; and what is said
of one that is missing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from runs_helper import KILLED, ROOT, RUN, edit, free_port, write_experiment

from smelt_jax.data.rows import PackedRows, row_ids
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.runs import RunDir

STEPS = 12
FOUR = 'fsdp=2,expert=2'
CONFIG = edit(
    RUN, data__batch_rows=4, train__steps=STEPS, train__branch_steps=(), train__branch_tokens=0, mesh=MeshConfig(fsdp=1)
)


class Crowd:
    """`processes` of `smelt ARGS` with `devices` each, run to their end or killed at once."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder, self.env = folder, env

    def start(
        self,
        *args: str,
        processes: int,
        devices: int,
        there: int = 0,
        timeout: int = 10,
        there_is: str = '',
        other: Sequence[str] = (),
        apart: bool = False,
        **moment: int,
    ) -> list:
        port = free_port()
        joined = [
            f'--coordinator=localhost:{port}',
            f'--process_count={there or processes}',
            f'--peer_timeout={timeout}',
        ]
        found = []
        for number in range(processes):
            env = os.environ | self.env | {key: str(value) for key, value in moment.items() if number == 0}
            env |= {
                'PYTHONPATH': str(ROOT),
                'JAX_PLATFORMS': 'cpu',
                'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}',
                'ROWS': str(self.folder / f'rows-{number}-of-{processes}'),
                'THERE': there_is or '/',
            }
            words = (
                [*args, *joined, f'--process_id={number}', *(other if number else ())]
                if (there or processes) > 1
                else list(args)
            )
            log, cwd = (self.folder / f'log-{number}').open('w'), self.folder / str(number if apart else 0)
            cwd.mkdir(exist_ok=True)
            found.append(
                subprocess.Popen([sys.executable, '-c', KILLED, *words], env=env, cwd=cwd, stdout=log, stderr=log)
            )
        return found

    def end(self, crowd: list, timeout: float = 300) -> list[int]:
        """Exit codes; one that dies by a signal takes the others with it, as a machine does."""
        stop = time.monotonic() + timeout
        while any(process.poll() is None for process in crowd):
            if any((process.poll() or 0) < 0 for process in crowd) or time.monotonic() > stop:
                for process in crowd:
                    process.kill()
            time.sleep(0.05)
        return [process.returncode for process in crowd]

    def said(self, number: int) -> str:
        return (self.folder / f'log-{number}').read_text()

    def rows(self, processes: int) -> dict[int, list[int]]:
        """Step → rows that all processes read in it; the last reading of a step counts."""
        found: dict[int, dict[int, list[int]]] = {}
        for number in range(processes):
            for line in (self.folder / f'rows-{number}-of-{processes}').read_text().splitlines():
                step, ids = json.loads(line)
                found.setdefault(step, {})[number] = ids
        return {step: sorted(row for ids in parts.values() for row in ids) for step, parts in found.items()}


@pytest.fixture
def crowd(tmp_path: Path, quick_env: dict[str, str]) -> Crowd:
    return Crowd(tmp_path, quick_env)


def train_args(folder: Path, pack: Path, workdir: Path, mesh: str) -> list[str]:
    experiment = write_experiment(folder / 'many.py', many=CONFIG)
    sizes = [f'--config.mesh.{entry}' for entry in mesh.split(',')]
    return ['train', f'--config={experiment}', f'--config.data.pack={pack}', f'--workdir={workdir}', *sizes]


def losses(workdir: Path) -> dict[int, float]:
    return {line['step']: line['loss'] for line in RunDir(workdir).metrics()}


@pytest.fixture(scope='module')
def expected(tiny_pack: Path, tmp_path_factory: pytest.TempPathFactory, quick_env: dict) -> dict[int, float]:
    """Losses of one process with one device that nobody interrupts."""
    folder = tmp_path_factory.mktemp('alone')
    alone = Crowd(folder, quick_env)
    assert alone.end(alone.start(*train_args(folder, tiny_pack, folder / 'run', 'fsdp=1'), processes=1, devices=1)) == [
        0
    ]
    return losses(folder / 'run')


@pytest.mark.parametrize(('processes', 'devices', 'mesh'), [(1, 1, 'fsdp=1'), (4, 1, FOUR)])
def test_two_processes_of_two_devices_go_on_as_others(
    crowd: Crowd, tiny_pack: Path, expected: dict, processes: int, devices: int, mesh: str
) -> None:
    run = crowd.folder / 'run'
    args = train_args(crowd.folder, tiny_pack, run, FOUR)
    codes = crowd.end(crowd.start(*args, processes=2, devices=2, KILL_AT=8, there_is=f'{run}/checkpoints/5'))
    assert -9 in codes, crowd.said(0) + crowd.said(1)
    before = losses(run)
    assert RunDir(run).checkpoints.joinpath('5').exists()
    args = train_args(crowd.folder, tiny_pack, run, mesh)
    assert crowd.end(crowd.start(*args, processes=processes, devices=devices)) == [0] * processes, crowd.said(0)
    after = losses(run)
    assert list(after) == list(range(1, STEPS + 1))
    for step, loss in expected.items():
        np.testing.assert_allclose(after[step], loss, rtol=1e-5)
        if step in before:
            np.testing.assert_allclose(before[step], loss, rtol=1e-5)
    rows, first, second = PackedRows(tiny_pack, 'train'), crowd.rows(2), crowd.rows(processes)
    assert set(range(1, 8)) <= set(first)
    assert set(second) == set(range(6, STEPS + 1))
    for step, ids in [*((step, first[step]) for step in range(1, 8)), *second.items()]:
        assert ids == sorted(row_ids(rows, CONFIG.data, step - 1).tolist())


@pytest.mark.parametrize(
    ('words', 'complaint'),
    [
        (['--process_id=1', '--process_count=2'], 'go with --coordinator=HOST:PORT of process 0'),
        (['--coordinator=localhost:12345'], 'give every process the number of them all'),
        (['--coordinator=localhost:12345', '--process_id=2', '--process_count=2'], 'an id from 0 to one less'),
        (['--coordinator=auto'], '--coordinator=auto: jax knows no cluster here'),
    ],
)
def test_half_a_description_of_a_crowd_is_refused(smelt: Callable, words: list[str], complaint: str) -> None:
    assert complaint in smelt('evaluate', '--checkpoint=/nowhere', *words, code=1).stderr


def test_one_that_does_not_come_ends_the_run_before_it_starts(crowd: Crowd, tiny_pack: Path) -> None:
    args = train_args(crowd.folder, tiny_pack, crowd.folder / 'run', FOUR)
    start = time.monotonic()
    assert crowd.end(crowd.start(*args, processes=1, devices=2, there=2, timeout=3)) == [1]
    assert time.monotonic() - start < 30
    assert crowd.said(0) == 'smelt train: error: process 1 of 2 did not come within 3 s; start it\n'
    assert not (crowd.folder / 'run').exists()


def started(crowd: Crowd, *args: str) -> list:
    """Two processes that have made an update."""
    both = crowd.start(*args, processes=2, devices=2, timeout=120)
    while not losses(crowd.folder / 'run') and all(process.poll() is None for process in both):
        time.sleep(0.1)
    return both


ENDLESS = ('--config.train.steps=100000', '--config.data.repeat=True')


@pytest.mark.parametrize('which', [0, 1])
def test_a_process_that_dies_is_named_at_once(crowd: Crowd, tiny_pack: Path, which: int) -> None:
    args = train_args(crowd.folder, tiny_pack, crowd.folder / 'run', FOUR)
    both = started(crowd, *args, *ENDLESS)
    both[which].kill()
    assert both[1 - which].wait(20) == os.EX_TEMPFAIL
    assert f'error: process {which} of 2 is gone; its own log says why. Run all again' in crowd.said(1 - which)
    assert both[which].wait(20) == -signal.SIGKILL


@pytest.mark.parametrize('which', [0, 1])
def test_one_that_is_told_to_stop_stops_all_at_one_step(crowd: Crowd, tiny_pack: Path, which: int) -> None:
    """Which is saved; and nobody misses anybody."""
    args = train_args(crowd.folder, tiny_pack, crowd.folder / 'run', FOUR)
    both = started(crowd, *args, *ENDLESS, '--config.train.save_every=100000', '--config.train.branch_steps=()')
    both[which].terminate()
    assert [process.wait(60) for process in both] == [143, 143]
    (step,) = [int(name) for name in os.listdir(crowd.folder / 'run' / 'checkpoints')]
    for number in range(2):
        last = crowd.said(number).splitlines()[-1]
        assert (
            last
            == f'smelt train: stopped by SIGTERM at step {step}, which is saved; run the same command again to go on'
        )
        assert 'is gone' not in crowd.said(number)


@pytest.mark.parametrize(
    ('second', 'complaint'),
    [
        (
            ['--config.optim.peak_lr=1.0'],
            'process 1 has another config than process 0; start all with the same command',
        ),
        (['--workdir=elsewhere'], 'process 1 has another config than process 0; start all with the same command'),
    ],
)
def test_processes_that_would_not_do_the_same_are_refused(
    crowd: Crowd, tiny_pack: Path, second: list[str], complaint: str
) -> None:
    args = train_args(crowd.folder, tiny_pack, crowd.folder / 'run', FOUR)
    assert crowd.end(crowd.start(*args, processes=2, devices=2, other=second), 60) == [1, 1]
    for number in range(2):
        assert crowd.said(number).splitlines()[-1] == f'smelt train: error: {complaint}'
    assert not (crowd.folder / 'run').exists()


def test_a_workdir_that_is_not_shared_is_named(crowd: Crowd, tiny_pack: Path) -> None:
    args = train_args(crowd.folder, tiny_pack, Path('run'), FOUR)
    # the first hears that the other has ended before it has said why itself
    assert crowd.end(crowd.start(*args, processes=2, devices=2, apart=True, LATE=3), 60) == [1, 1]
    complaint = 'process 1 has another workdir than process 0; it has to be on a disk that all of them share'
    assert crowd.said(0).splitlines()[-1] == f'smelt train: error: {complaint}'


def test_one_that_fails_takes_the_others_with_it(crowd: Crowd, tiny_pack: Path) -> None:
    """A damaged shard that one of them alone reads: nobody waits for one that has given up."""
    args = train_args(crowd.folder, tiny_pack, crowd.folder / 'run', FOUR)
    start = time.monotonic()
    codes = crowd.end(crowd.start(*args, processes=2, devices=2, timeout=120, FAIL_AT=3), 90)
    assert codes == [1, os.EX_TEMPFAIL]
    assert time.monotonic() - start < 60
    assert 'error: told to fail' in crowd.said(0)
    assert 'process 0 of 2 is gone' in crowd.said(1)
