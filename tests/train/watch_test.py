"""What is said of updates that are not as they should be, and what ends a run that does not get on."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from runs_helper import ROOT

from smelt_jax.runs import RunDir
from smelt_jax.train.config import TrainConfig
from smelt_jax.train.report import Report
from smelt_jax.train.watch import WINDOW, NonFiniteError, Spikes, Watch, skipped_before

NAN = float('nan')


def watched(run_dir: RunDir, losses: list[float], most: int = 0, skipped: int = 0, spike: float = 0.0) -> None:
    """Updates with these losses, of batches of the rows 10 · step and 10 · step + 1."""
    run_dir.path.mkdir(parents=True, exist_ok=True)
    train = dataclasses.replace(TrainConfig(), log_every=1, spike=spike)
    with Report(run_dir, 'run', 0, len(losses), 6.0, 300.0) as report:
        watch = Watch(report, train, most, len(losses), 50, lambda step: 10 * step + np.arange(2), skipped)
        for step, loss in enumerate(losses, start=1):
            watch.look()
            watch.follow(step, {'loss': jnp.float32(loss), 'grad_norm': jnp.float32(1.0)})
        watch.look()


def test_the_first_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / 'run')
    with pytest.raises(
        NonFiniteError,
        match=r'^step 3: loss nan, .*rows of its batch, \[30, 31\].*finite metrics: loss 2\.5, grad_norm 1$',
    ):
        watched(run_dir, [3.0, 2.5, NAN, 2.0])
    assert [line['step'] for line in run_dir.metrics()] == [1, 2]
    assert [(line['kind'], line['step'], line['rows']) for line in run_dir.incidents()] == [('nonfinite', 3, [30, 31])]


def test_the_update_that_went_wrong_is_named_though_others_were_skipped_since(tmp_path: Path) -> None:
    train = dataclasses.replace(TrainConfig(), log_every=1)
    with Report(RunDir(tmp_path), 'run', 0, 9, 6.0, 300.0) as report:
        watch = Watch(report, train, 5, 9, 50, lambda step: 10 * step + np.arange(2))
        for step, loss in enumerate([3.0, NAN, NAN], start=1):
            watch.follow(step, {'loss': jnp.float32(loss), 'grad_norm': jnp.float32(1.0)})
            watch.look()
        with pytest.raises(
            NonFiniteError, match=r'^step 1: its update made parameters .* rows of its batch, \[10, 11\]'
        ):
            watch.require_finite(False, 3)


def test_so_many_in_a_row_are_skipped_and_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run_dir = RunDir(tmp_path / 'run')
    watched(run_dir, [3.0, NAN, math.inf, 2.0, NAN, NAN, 1.0], most=2)
    lines = run_dir.incidents()
    assert [(line['kind'], line['step'], line['rows']) for line in lines] == [
        ('skipped', step, [10 * step, 10 * step + 1]) for step in (2, 3, 5, 6)
    ]
    assert [line['text'] for line in lines[:2]] == [
        'loss nan, gradient norm 1.0; skipped, 1 of at most 2 in a row',
        'loss inf, gradient norm 1.0; skipped, 2 of at most 2 in a row',
    ]
    assert 'step 2: loss nan, gradient norm 1.0; skipped, 1 of' in capsys.readouterr().err
    assert [line['loss'] for line in run_dir.metrics()] == [3.0, None, None, 2.0, None, None, 1.0]
    for line in run_dir.metrics_file.read_text().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(f'{word} is no JSON'))


def test_one_more_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r'^step 4: loss nan, gradient norm 1.0, and 2 before it were skipped'):
        watched(RunDir(tmp_path / 'run'), [3.0, NAN, NAN, NAN, 2.0], most=2)


def test_those_before_a_resume_count(tmp_path: Path) -> None:
    """Else a run that is started again and again would never end."""
    incidents = [{'kind': 'skipped', 'step': step} for step in (3, 8, 9, 9, 10, 12)] + [{'kind': 'spike', 'step': 11}]
    assert [skipped_before(incidents, step) for step in (3, 4, 10, 11, 12)] == [1, 0, 3, 0, 1]
    with pytest.raises(NonFiniteError, match=r'^step 1: .* and 3 before it were skipped'):
        watched(RunDir(tmp_path / 'run'), [NAN], most=3, skipped=3)


def test_a_spike_is_told_once(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    losses = [*(3 + 0.01 * chance.standard_normal(40)), 3.3, 3.2, *(3 + 0.01 * chance.standard_normal(9)), 3.4]
    run_dir = RunDir(tmp_path / 'run')
    watched(run_dir, losses, spike=8.0)
    assert [(line['kind'], line['step']) for line in run_dir.incidents()] == [('spike', 41), ('spike', 52)]
    assert 'loss 3.3000, against a median of 2.9987 with a deviation of ' in run_dir.incidents()[0]['text']
    watched(silent := RunDir(tmp_path / 'silent'), losses, spike=0.0)
    assert silent.incidents() == []


def test_neither_noise_nor_a_falling_loss_is_a_spike() -> None:
    chance = np.random.default_rng(1)
    for losses in (
        3 + 0.1 * chance.standard_normal(2000),
        8 * np.exp(-np.arange(500) / 50) + 0.02 * chance.standard_normal(500),
    ):
        spikes = Spikes(8.0)
        assert not [loss for loss in losses if spikes.told(loss)]


def test_few_losses_tell_nothing() -> None:
    spikes = Spikes(1.0)
    assert not [loss for loss in range(WINDOW // 4) if spikes.told(float(loss**3))]
    assert spikes.told(1e9)


STALLED = """
import os, signal, sys, time
from etils import epath
from smelt_jax.train.stall import Stall
sys.argv = ['smelt train']

def wait_for_ever():
    time.sleep(30)

with Stall(MINUTES, epath.Path('stall.txt')) as stall:
    time.sleep(1)  # compiling: nothing is counted yet
    for step in range(4):
        stall.at(f'after step {step}')
        time.sleep(0.3)
    if not WAITS:
        sys.exit(0)
    wait_for_ever()
"""


def stalled(folder: Path, minutes: float, waits: bool) -> subprocess.CompletedProcess[str]:
    source = STALLED.replace('MINUTES', str(minutes)).replace('WAITS', str(waits))
    return subprocess.run(
        [sys.executable, '-c', source],
        cwd=folder,
        env={'PYTHONPATH': str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_run_that_does_not_get_on_says_where_it_stands_and_ends(tmp_path: Path) -> None:
    done = stalled(tmp_path, 0.6 / 60, waits=True)
    assert done.returncode == os.EX_TEMPFAIL
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        'smelt train: error: stalled for 0.01 minutes (train.stall_minutes): after step 3. The stacks'
    )
    assert 'in wait_for_ever' in done.stderr
    assert 'in wait_for_ever' in (tmp_path / 'stall.txt').read_text()


def test_a_disk_that_hangs_does_not_keep_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / 'stall.txt')
    done = stalled(tmp_path, 0.6 / 60, waits=True)
    assert done.returncode == os.EX_TEMPFAIL
    assert 'in wait_for_ever' in done.stderr


def test_a_process_that_was_suspended_has_not_stalled(tmp_path: Path) -> None:
    source = STALLED.replace('MINUTES', '0.02').replace('WAITS', 'False').replace('range(4)', 'range(12)')
    process = subprocess.Popen([sys.executable, '-c', source], cwd=tmp_path, env={'PYTHONPATH': str(ROOT)})
    time.sleep(2.5)
    process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 0


@pytest.mark.parametrize(('minutes', 'waits'), [(0.6 / 60, False), (0, False)])
def test_one_that_does_is_left_alone(tmp_path: Path, minutes: float, waits: bool) -> None:
    done = stalled(tmp_path, minutes, waits)
    assert (done.returncode, done.stderr) == (0, '')
