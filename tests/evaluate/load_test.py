"""A run directory as a model in a notebook."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from models import assert_same, params_of, rows_of

import smelt_jax
from smelt_jax.config import RunConfig
from smelt_jax.data.rows import heldout_batches
from smelt_jax.runs import RunDir


@pytest.mark.parametrize(('asked', 'step'), [(None, 10), (5, 5)])
def test_parameters_and_config_are_those_of_the_run(run_dir: RunDir, looped: RunConfig, asked: int, step: int) -> None:
    shutil.rmtree(run_dir.checkpoints / str(step) / 'optimizer')  # not needed, not read
    loaded = smelt_jax.load(run_dir.path, asked)
    assert (loaded.config, loaded.step) == (looped, step)
    assert_same(loaded.params, params_of(looped.model, step))
    assert {leaf.sharding.device_set.pop() for leaf in jax.tree.leaves(loaded.params)} == {jax.devices()[0]}


def test_the_readme_lines_run(run_dir: RunDir, looped: RunConfig) -> None:
    model, params, config, _ = smelt_jax.load(run_dir.path)
    forward = jax.jit(model.apply, static_argnames='visits')
    batch = next(iter(heldout_batches(config.data.pack, config.heldout.batch_rows))).batch
    output = forward({'params': params}, *rows_of(batch), visits=3)
    assert output.router.counts_E.shape == (3, config.model.experts.count)
    assert np.isfinite(output.hidden_BTD @ params['head']).all()


def test_what_is_not_there_is_said(run_dir: RunDir, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'has no checkpoint of step 7; it has \[5, 10\]'):
        smelt_jax.load(run_dir.path, 7)
    with pytest.raises(FileNotFoundError, match=r'gone is no run directory'):
        smelt_jax.load(tmp_path / 'gone')
    with pytest.raises(AttributeError, match="'smelt_jax' has no attribute 'lode'"):
        smelt_jax.lode  # noqa: B018
