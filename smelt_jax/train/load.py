"""A trained model for analysis: from a run directory, on one device, nothing of the optimizer read."""

import functools
from typing import NamedTuple

import jax
from etils import epath

from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import FILE_NAME, Manifest, load_manifest, load_tokenizer
from smelt_jax.data.tokenizer import Tokenizer
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.transformer import Transformer
from smelt_jax.parallel.devices import Devices
from smelt_jax.runs import RunDir
from smelt_jax.storage.files import reach
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


def tokenizer_of(workdir: epath.PathLike, pack: str = '') -> tuple[Tokenizer, Manifest]:
    """The tokenizer that a run was trained with, and the manifest of the pack that it is from: the run's own, or `pack`, which
    must have the same one. Of a pack nothing else is needed.

    Raises:
      FileNotFoundError: no run directory.
      ValueError: the pack is gone, damaged, or has another tokenizer.
    """
    folder, wanted = pack_of(workdir, pack), RunDir(workdir).lineage().tokenizer
    manifest = load_manifest(folder)
    if manifest.tokenizer_fingerprint != wanted:
        raise ValueError(
            f'{folder} has tokenizer {manifest.tokenizer} ({manifest.tokenizer_fingerprint[:12]}), and {workdir} was trained '
            f'with another one ({wanted[:12]}); give --pack=DIR of one that has it'
        )
    return load_tokenizer(folder), manifest


def require_visits(workdir: epath.PathLike, model: ModelConfig, visits: int) -> None:
    """Raises ValueError, naming the run, if its model cannot be executed with so many visits."""
    if visits > 1 and not model.loop.length:
        raise ValueError(f'visits={visits} of {workdir}: its model has no loop; leave visits out')
    try:
        model.at_visits(visits).check()
    except ValueError as error:
        raise ValueError(f'visits={visits} of {workdir}: {error}') from None


def pack_of(workdir: epath.PathLike, pack: str = '') -> str:
    """The folder of `pack`, or else of the pack that a run read. ValueError if that is gone."""
    run_dir = RunDir(workdir)
    folder = pack or run_dir.config().data.pack
    if not pack and not (reach(folder) / FILE_NAME).exists():
        raise ValueError(
            f'{folder}, the pack that {workdir} read, is gone, and with it the tokenizer; bring it back, or give --pack=DIR of '
            f'one with the same tokenizer ({run_dir.lineage().tokenizer[:12]})'
        )
    return folder
