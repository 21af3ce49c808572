"""A looped model over the tiny pack, with checkpoints that were drawn and not trained."""

import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import params_of
from runs_helper import RUN, edit

from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import load_manifest
from smelt_jax.data.rows import PackedRows
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
