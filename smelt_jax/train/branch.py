"""Annealing branches: from a trunk's checkpoint, over tokens it has not seen, with a cosine decay."""

import dataclasses
import os

from etils import epath

from smelt_jax.data.manifest import open_pack
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.runs import Lineage, RunDir, config_fingerprint
from smelt_jax.storage.files import is_local
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.checks import branch_updates, named_pack
from smelt_jax.train.loop import fit
from smelt_jax.train.schedule import branch_schedule, trunk_schedule
from smelt_jax.train.state import TrainState


def branch(
    trunk: str, step: int, workdir: str, tokens: int, mesh: MeshConfig | None = None, strict_restore: bool = False
) -> RunDir:
    """Anneals the trunk's checkpoint of `step` in `workdir`, from the branch's own last checkpoint if it has one.

    The branch's first update has the trunk's learning rate at that step, its first row is the trunk's next one, and the
    optimizer's moments and count go on. Steps are counted on from the trunk's.

    Args:
      trunk: run directory of the trunk.
      step: of a checkpoint there.
      workdir: the branch's own directory.
      tokens: length; rounded up to whole updates.
      mesh: of the devices; None for the trunk's.
      strict_restore: see `loop.train`.

    Raises:
      ValueError: no such checkpoint, a trunk that is a branch itself, too few rows left, or a workdir that is another run's;
        nothing was written.
    """
    trunk_dir, run_dir = RunDir(trunk), RunDir(workdir)
    run = trunk_dir.config()
    run = dataclasses.replace(run, mesh=mesh or run.mesh)
    if tokens < 1:
        raise ValueError(f"a branch of {tokens} tokens: give --tokens, or train.branch_tokens in the trunk's config")
    if run_dir.path.resolve() == trunk_dir.path.resolve():
        raise ValueError(f"the branch cannot live in its trunk's directory {trunk}; give --workdir another one")
    manifest = open_pack(named_pack(run))
    steps = branch_updates(run, manifest.row_tokens, tokens)
    parent = trunk_dir.lineage()
    if parent.kind != 'trunk':
        raise ValueError(
            f'{trunk} is a branch, annealed from {parent.trunk}; branches start from a trunk: give that one'
        )
    if parent.pack != manifest.fingerprint:
        raise ValueError(
            f'{run.data.pack} was packed anew since the trunk {trunk} read it: '
            f'{manifest.fingerprint[:12]}, then {parent.pack[:12]}'
        )
    lineage = Lineage(
        kind='branch',
        pack=manifest.fingerprint,
        tokenizer=manifest.tokenizer_fingerprint,
        start=step,
        stop=step + steps,
        trunk=_way(trunk_dir.path, run_dir.path),
        trunk_config=config_fingerprint(run),
    )
    trunk_rate = trunk_schedule(run.optim.peak_lr, run.optim.warmup_steps)
    schedule = branch_schedule(trunk_rate, step, steps, run.train.final_lr_fraction)

    def seed(like: TrainState) -> TrainState:
        with Checkpoints(trunk_dir, read_only=True) as checkpoints:
            return checkpoints.restore(step, like)

    with Checkpoints(trunk_dir, read_only=True) as checkpoints:
        if step not in checkpoints.steps():
            raise ValueError(f'{trunk} has no checkpoint of step {step}; it has {checkpoints.steps() or "none"}')
    fit(run, run_dir, lineage, schedule, manifest, seed, strict_restore)
    return run_dir


def _way(trunk: epath.Path, leaf: epath.Path) -> str:
    """Where a branch finds its trunk: seen from the branch, so that both may move together, unless one is in a bucket."""
    return os.path.relpath(trunk, leaf) if is_local(trunk) and is_local(leaf) else str(trunk)
