"""A looped model over the tiny pack, with checkpoints that were drawn and not trained."""

import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from models import params_of
from runs_helper import RUN, edit
from small_tasks import CHANCES, FLAGS, HEAD, KINDS, ROWS, lines_of

from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import load_manifest
from smelt_jax.data.rows import PackedRows
from smelt_jax.evaluate.answer import evaluated
from smelt_jax.evaluate.wanted import wanted
from smelt_jax.runs import Lineage, RunDir
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import TrainState

drawn = functools.cache(params_of)


@pytest.fixture(scope='session')
def make_run() -> Callable[..., RunDir]:
    """make_run(folder, config, *steps) makes a trunk's run directory with checkpoints of random parameters, those of a step
    drawn with the step as seed; `poison` is added to the head, `lineage` differs from a trunk's."""

    def make(folder: Path, run: RunConfig, *steps: int, poison: float = 0.0, **lineage: Any) -> RunDir:
        run_dir, manifest = RunDir(folder), load_manifest(run.data.pack)
        trunk = Lineage('trunk', manifest.fingerprint, manifest.tokenizer_fingerprint, 0, run.train.steps)
        run_dir.claim(run, dataclasses.replace(trunk, **lineage))
        with Checkpoints(run_dir, keep=2) as checkpoints:
            for step in steps:
                params = drawn(run.model, step)
                params = params | {'head': params['head'] + poison}
                checkpoints.save(step, TrainState(np.int32(step), params, optimizer(run.optim).init(params)))
        return run_dir

    return make


@pytest.fixture(scope='session')
def looped(tiny_pack: Path) -> RunConfig:
    """One layer, run twice. Every edge of a length bin is the length of a document."""
    sizes = np.unique(np.concatenate([row.document_tokens for row in PackedRows(tiny_pack, 'heldout')]))
    edges = tuple(int(sizes[len(sizes) * part // 4]) for part in (1, 2, 3))
    return edit(
        RUN, data__pack=str(tiny_pack), model__loop__length=1, model__loop__visits=2, heldout__length_bins=edges
    )


@pytest.fixture(scope='session')
def made(looped: RunConfig, make_run: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make_run(tmp_path_factory.mktemp('made') / 'run', looped, 5, 10).path)


@pytest.fixture
def run_dir(made: Path, tmp_path: Path) -> RunDir:
    """Of `looped`, with checkpoints of steps 5 and 10 and no record yet."""
    return RunDir(shutil.copytree(made, tmp_path / 'run'))


@pytest.fixture(scope='session')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tasks, one a kind, of the group `small`."""
    made = tmp_path_factory.mktemp('tasks')
    for name, rows in ROWS.items():
        (made / f'{name}.jsonl').write_text(lines_of(rows))
    lines = (f'{name},{name}.jsonl,{KINDS[name]},2,{CHANCES[name]}, \n' for name in ROWS)
    (made / 'small.csv').write_text(HEAD + ''.join(lines))
    return made


@pytest.fixture
def ask(run_dir: RunDir, folder: Path) -> Callable:
    """ask(tasks, …) evaluates step 10; flags as on the command line."""

    def ask(*tasks, step=10, checkpoints=(), against=(), **given):
        flags = SimpleNamespace(**{**FLAGS, 'task_dir': str(folder), 'tasks': list(tasks), **given})
        return evaluated(wanted(flags, checkpoints or [(str(run_dir.path), step)], against, None))

    return ask
