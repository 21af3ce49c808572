"""What keeping a run safe costs: the time that saving takes from training, and the time until a resumed run trains again."""

import dataclasses
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from smelt_jax.bench.step import made_up_batch
from smelt_jax.config import RunConfig, to_dict
from smelt_jax.runs import RunDir
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.checks import named_pack
from smelt_jax.train.digest import look_over
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import init_state
from smelt_jax.train.step import make_step

INTERVAL = 50  # updates from one checkpoint to the next
WINDOW = 10  # updates during which a checkpoint is written


def measure(run: RunConfig, repeats: int = 10) -> dict[str, Any]:
    """Times `repeats` windows of updates that begin with a checkpoint, as training makes it, and end when it is on disk, and as
    many without, in turn.

    A checkpoint is written while training goes on, and takes from it what it needs of the machine: it is the window that gets
    longer.

    Returns:
      `lost_share`: what a checkpoint every `interval` updates takes longer, as a share of these; `lost_seconds` of one (the
      median over pairs of windows), `step_seconds` without (median), `blocked_seconds`, in which no update runs (median),
      `bytes` of a checkpoint.
    """
    batch, lr = made_up_batch(run), jnp.float32(run.optim.peak_lr)
    state = jax.jit(lambda: init_state(run.model, optimizer(run.optim), run.seed))()
    step = make_step(run.model, run.loss, run.optim).lower(state, batch, lr).compile()
    seconds: dict[bool, list[float]] = {True: [], False: []}
    blocked = []
    with tempfile.TemporaryDirectory() as folder, Checkpoints(RunDir(folder), keep=1) as checkpoints:
        checkpoints.save(1, state)  # what is compiled and imported once
        state, _ = step(state, batch, lr)
        checkpoints.wait()
        for count, saves in itertools.product(range(repeats), (True, False)):
            begin = time.perf_counter()
            if saves:
                digests, _ = look_over(state)
                checkpoints.save(count + 2, state, digests)
                blocked.append(time.perf_counter() - begin)
            for _ in range(WINDOW):
                state, metrics = step(state, batch, lr)
                jax.block_until_ready(metrics)
                checkpoints.check()
            checkpoints.wait()
            seconds[saves].append(time.perf_counter() - begin)
        size = sum(file.stat().st_size for file in Path(folder).rglob('*') if file.is_file())
    lost = statistics.median(a - b for a, b in zip(seconds[True], seconds[False], strict=True))
    step_seconds = statistics.median(seconds[False]) / WINDOW
    return {
        'interval': INTERVAL,
        'lost_share': lost / (INTERVAL * step_seconds),
        'lost_seconds': lost,
        'step_seconds': step_seconds,
        'blocked_seconds': statistics.median(blocked),
        'bytes': size,
        'load_average': os.getloadavg()[0],
    }


def measure_restart(run: RunConfig, repeats: int = 10) -> dict[str, Any]:
    """Times `smelt train` from its start as a process to the line of its first update, fresh and resumed, in turn.

    Returns:
      `fresh_seconds`, `resumed_seconds` (medians) and their `ratio`, resumed over fresh.

    Raises:
      ValueError: the config names no pack, or the command failed.
    """
    named_pack(run)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            command = _command(run, Path(folder))
            for resumed in (False, True):
                times[resumed].append(_until_first_update(command, RunDir(Path(folder) / 'run')))
    fresh, again = statistics.median(times[False]), statistics.median(times[True])
    return {
        'ratio': again / fresh,
        'fresh_seconds': fresh,
        'resumed_seconds': again,
        'load_average': os.getloadavg()[0],
    }


EXPERIMENT = """import json
from ml_collections import ConfigDict

def get_config():
    return ConfigDict(json.loads({!r}))
"""


def _command(run: RunConfig, folder: Path) -> list[str]:
    train = dataclasses.replace(run.train, log_every=1, branch_steps=())
    file = folder / 'experiment.py'
    file.write_text(EXPERIMENT.format(json.dumps(to_dict(dataclasses.replace(run, train=train)))))
    return [sys.executable, '-m', 'smelt_jax', 'train', f'--config={file}', f'--workdir={folder}/run']


def _until_first_update(command: list[str], run_dir: RunDir) -> float:
    """Seconds; the process is stopped then, which saves what it has done."""
    before = len(run_dir.metrics())
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while len(run_dir.metrics()) <= before and process.poll() is None:
        time.sleep(0.02)
    seconds = time.perf_counter() - begin
    process.terminate()
    _, said = process.communicate()
    if process.returncode != 128 + signal.SIGTERM:
        raise ValueError(f'smelt train ended with {process.returncode}: {said.strip().splitlines()[-1]}')
    return seconds
