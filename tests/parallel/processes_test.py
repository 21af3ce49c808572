"""One run by several processes: the same losses and the same rows as by one, resumed by any number of them; and what is said
of one that is missing."""

import concurrent.futures
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from runs_helper import KILLED, ROOT, RUN, edit, write_experiment

from smelt_jax.data.rows import PackedRows, row_ids
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.rollcall import roll_call
from smelt_jax.runs import RunDir

STEPS = 12
FOUR = 'fsdp=2,expert=2'
CONFIG = edit(
    RUN, data__batch_rows=4, train__steps=STEPS, train__branch_steps=(), train__branch_tokens=0, mesh=MeshConfig(fsdp=1)
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('localhost', 0))
        return probe.getsockname()[1]


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
            words = [*args, *joined, f'--process_id={number}'] if (there or processes) > 1 else list(args)
            log = (self.folder / f'log-{number}').open('w')
            found.append(
                subprocess.Popen([sys.executable, '-c', KILLED, *words], env=env, cwd=ROOT, stdout=log, stderr=log)
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


@pytest.mark.parametrize('came', [0, 2])
def test_processes_that_do_not_come_are_named_in_time(came: int) -> None:
    """Of four, process 0 and one other; or that other alone."""
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        numbers = [came] if came else [0, 2]
        calls = [pool.submit(roll_call, f'localhost:{port}', number, 4, 1.0) for number in numbers]
        said = [str(call.exception()) for call in calls]
    if came:
        assert said == [f'process 0 does not answer at localhost:{port} for 1 s; start it']
    else:
        assert said == ['process 1, 3 of 4 did not come within 1 s; start it'] * 2


def test_one_that_does_not_come_ends_the_run_before_it_starts(crowd: Crowd, tiny_pack: Path) -> None:
    args = train_args(crowd.folder, tiny_pack, crowd.folder / 'run', FOUR)
    start = time.monotonic()
    assert crowd.end(crowd.start(*args, processes=1, devices=2, there=2, timeout=3)) == [1]
    assert time.monotonic() - start < 30
    assert crowd.said(0) == 'smelt train: error: process 1 of 2 did not come within 3 s; start it\n'
    assert not (crowd.folder / 'run').exists()


def test_a_process_that_dies_is_named_in_time(crowd: Crowd, tiny_pack: Path) -> None:
    args = train_args(crowd.folder, tiny_pack, crowd.folder / 'run', FOUR)
    both = crowd.start(*args, processes=2, devices=2)
    while not losses(crowd.folder / 'run') and all(process.poll() is None for process in both):
        time.sleep(0.1)
    both[1].kill()
    start = time.monotonic()
    code = both[0].wait(120)
    assert time.monotonic() - start < 60
    assert code != 0
    assert re.search(r'Task 1 heartbeat timeout|stopped sending heartbeats\):\s+1\b', crowd.said(0))
