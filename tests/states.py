"""Small training states of no model, and saving them, for tests of checkpoints."""

import os

import jax
import jax.numpy as jnp

from smelt_jax.runs import RunDir
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.state import TrainState


def state(step: int) -> TrainState:
    """Any state that knows its step."""
    params = {'embed': jnp.full((3, 4), float(step)), 'norm': {'scale': jnp.arange(5.0) + step}}
    return TrainState(jnp.int32(step), params, ({'mu': jnp.full((3, 4), step / 7)},))


def like(**params: jax.Array) -> TrainState:
    shapes = jax.eval_shape(lambda: state(0))
    return shapes._replace(params=shapes.params | params)


def save(run_dir: RunDir, *steps: int, keep: int = 9, pinned: tuple[int, ...] = ()) -> None:
    """Saves states as one process does."""
    with Checkpoints(run_dir, keep, pinned) as checkpoints:
        for step in steps:
            checkpoints.save(step, state(step))


def names(run_dir: RunDir) -> set[str]:
    return set(os.listdir(run_dir.checkpoints))


def steps_of(run_dir: RunDir) -> list[int]:
    with Checkpoints(run_dir, read_only=True) as checkpoints:
        return checkpoints.steps()
