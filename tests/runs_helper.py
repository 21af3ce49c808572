"""A made-up pack of five sources, a tiny run over it, and commands that are killed at a given update, for tests of runs."""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from packs import sentences, write_jsonl

from smelt_jax.config import RunConfig, to_dict
from smelt_jax.data.config import PackConfig, RowsConfig
from smelt_jax.data.packing import pack
from smelt_jax.evaluate.config import HeldoutConfig
from smelt_jax.model.config import AttentionConfig, ExpertsConfig, ModelConfig
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.runs import RunDir
from smelt_jax.train.config import LossConfig, OptimConfig, TrainConfig
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.report import CLOCK_KEYS
from smelt_jax.train.state import TrainState, init_state

ROOT = Path(__file__).parents[1]
# Two domains have a source of one name.
SOURCES = [('blogs', 'Web'), ('tools', 'Web'), ('scripts', 'Code'), ('tools', 'Code'), ('papers', 'Science')]

RUN = RunConfig(
    name='tiny',
    data=RowsConfig(batch_rows=2, prefetch=2),
    model=ModelConfig(
        vocab=257,
        width=16,
        layers=1,
        attention=AttentionConfig(heads=2, kv_heads=1, head_dim=8),
        experts=ExpertsConfig(count=4, per_token=2, width=8),
    ),
    loss=LossConfig(chunk_tokens=64),
    optim=OptimConfig(peak_lr=1e-2, warmup_steps=4),
    train=TrainConfig(
        steps=12, log_every=1, save_every=5, branch_steps=(5, 10, 11), branch_tokens=448, peak_flops=1e10
    ),
    heldout=HeldoutConfig(batch_rows=4, length_bins=(64, 256)),
    mesh=MeshConfig(fsdp=1),  # of the eight devices that tests have
)

# `smelt ARGS`, which writes the rows of every update into ROWS and dies by SIGKILL at a given moment: once the line of step
# KILL_AT is written and the file THERE exists, or when the save of step KILL_IN_SAVE has begun. Or fails, at FAIL_AT.
# One that fails says so LATE seconds later than it would.
KILLED = """
import json, os, signal, sys, time
from smelt_jax.parallel import processes
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train import loop
from smelt_jax.train.watch import Watch
from smelt_jax.train.report import Report

def after(kind, name, then):
    method = getattr(kind, name)
    def both(self, step, *args):
        method(self, step, *args)
        then(step, *args)
    setattr(kind, name, both)

def die_at(key):
    def die(step, *_):
        if step == int(os.environ.get(key, -1)):
            while not os.path.exists(os.environ.get('THERE', '/')):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
    return die

def fail(step, *_):
    if step == int(os.environ.get('FAIL_AT', -1)):
        raise ValueError('told to fail')

def noted(*args):
    for step, row_ids, batch in train_batches(*args):
        taken[step + 1] = row_ids.tolist()
        yield step, row_ids, batch

def note(step, metrics):
    with open(os.environ['ROWS'], 'a') as file:
        file.write(json.dumps([step, taken[step]]) + chr(10))

taken = {}
train_batches, loop.train_batches = loop.train_batches, noted
after(Watch, 'follow', note)
after(Report, 'log', die_at('KILL_AT'))
after(Watch, 'follow', fail)
after(Checkpoints, 'save', die_at('KILL_IN_SAVE'))

def looked_around():
    look_around()
    time.sleep(int(os.environ.get('LATE', 0)))

look_around, processes.look_around = processes.look_around, looked_around

from smelt_jax.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def edit(config: Any, **changes: Any) -> Any:
    """A frozen config with `field=value` or `room__field=value`, to any depth."""
    for name, value in changes.items():
        room, _, rest = name.partition('__')
        if rest:
            value = edit(getattr(config, room), **{rest: value})
        config = dataclasses.replace(config, **{room: value})
    return config


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(('localhost', 0))
        return probe.getsockname()[1]


def make_pack(folder: Path, count: int = 14, **settings: Any) -> Path:
    """Packs `count` made-up documents of each source into `folder`/pack, as bytes, in rows of 32 tokens."""
    corpora = tuple(
        write_jsonl(folder / f'{domain}-{source}.jsonl', sentences(count, seed), domain, source)
        for seed, (source, domain) in enumerate(SOURCES)
    )
    values: dict = {'corpora': corpora, 'row_tokens': 32, 'heldout_fraction': 0.2, 'workers': 1}
    pack(PackConfig(**values | settings), folder / 'pack')
    return folder / 'pack'


EXPERIMENT = """from ml_collections import ConfigDict

CONFIGS = {}
ARGS = tuple(CONFIGS)
NOTE = 'What it can show: nothing.'


def get_config(arg=ARGS[0]):
    return ConfigDict(CONFIGS[arg])
"""


def write_experiment(file: Path, **arms: RunConfig) -> str:
    """An experiment file whose arguments are `arms`; the first one is its default."""
    configs = {name: to_dict(run) for name, run in arms.items()}
    file.write_text(EXPERIMENT.replace('{}', repr(configs), 1))
    return str(file)


def smelt_killed(*args: str, rows: Path, env: dict[str, str], **moment: object) -> int:
    """Runs `smelt ARGS` as KILLED says, with KILL_AT=step, THERE=file or KILL_IN_SAVE=step; returns the exit code, −9 for
    SIGKILL."""
    moments = {key: str(value) for key, value in moment.items()}
    done = subprocess.run(
        [sys.executable, '-c', KILLED, *args],
        env=os.environ | {'PYTHONPATH': str(ROOT), 'XLA_FLAGS': '', 'ROWS': str(rows)} | env | moments,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def state_at(run_dir: RunDir, step: int) -> TrainState:
    """The state that the checkpoint of `step` holds, read back."""
    from smelt_jax.train.checkpoints import Checkpoints

    run = run_dir.config()
    with Checkpoints(run_dir, read_only=True) as checkpoints:
        return checkpoints.restore(step, jax.eval_shape(lambda: init_state(run.model, optimizer(run.optim), 0)))


def without_clock(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of metrics.jsonl as text, but for what tells the time."""
    return [json.dumps({key: value for key, value in line.items() if key not in CLOCK_KEYS}) for line in lines]


def times_of(run_dir: RunDir) -> dict[str, int]:
    """When each file of a run was last written."""
    return {str(path): path.stat().st_mtime_ns for path in Path(str(run_dir.path)).rglob('*')}


def fill(file: Path) -> None:
    """Writes until no byte is free."""
    with contextlib.suppress(OSError), file.open('wb', buffering=0) as out:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while out.write(b'x' * size):
                    pass
