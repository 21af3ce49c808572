"""A trained model for analysis: from a run directory, on one device, nothing of the optimizer read."""

import functools
from typing import NamedTuple

import jax
from etils import epath

from smelt_jax.config import RunConfig
from smelt_jax.model.transformer import Transformer
from smelt_jax.parallel.devices import Devices
from smelt_jax.runs import RunDir
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.state import init_params


class Loaded(NamedTuple):
    """Attributes:
    model: call `jax.jit(model.apply)({'params': params}, tokens_BT, segment_ids_BT, positions_BT)`.
    params: float32.
    config: of the run.
    step: of the checkpoint.
    """

    model: Transformer
    params: dict
    config: RunConfig
    step: int


def load(workdir: epath.PathLike, step: int | None = None, devices: Devices | None = None) -> Loaded:
    """The model of a run directory, trunk or branch, at a step; None is the newest complete one. On the first device, or
    where `devices` have it.

    Raises:
      FileNotFoundError: no run directory, or nothing saved there yet.
      ValueError: no checkpoint of that step, or its arrays are not those of the config.
    """
    run_dir = RunDir(workdir)
    run = run_dir.config()
    init = functools.partial(init_params, run.model, seed=0)
    like = jax.eval_shape(init) if devices is None else devices.placed(init)
    while True:
        with Checkpoints(run_dir, read_only=True) as checkpoints:
            found = checkpoints.latest() if step is None else step
            if found is None:
                raise FileNotFoundError(f'{workdir} has no complete checkpoint yet')
            try:
                return Loaded(Transformer(run.model), checkpoints.restore_params(found, like), run, found)
            except ValueError:
                # A run that goes on may have deleted it meanwhile, for a newer one.
                if step is not None or (checkpoints.path / str(found)).exists():
                    raise
