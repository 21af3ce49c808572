"""A checkpoint ready to be evaluated: its run, its parameters on the devices, its place on the axes of the laws."""

import dataclasses
import functools
from typing import Any

from smelt_jax.budget.accounting import budget_of
from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import Manifest, load_manifest, load_tokenizer, open_pack
from smelt_jax.data.tokenizer import Tokenizer
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices
from smelt_jax.runs import Lineage, RunDir
from smelt_jax.train.load import load, pack_of, require_visits
from smelt_jax.version import __version__

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Opened:
    """Attributes:
    run_dir, run, lineage, step: whose checkpoint it is.
    pack: the folder of the rows, or the tokenizer, that it is evaluated with; `manifest` is theirs.
    trained_on: the manifest of the rows it was trained on.
    params: on `devices`.
    """

    run_dir: RunDir
    run: RunConfig
    lineage: Lineage
    step: int
    pack: str
    manifest: Manifest
    trained_on: Manifest
    params: dict
    devices: Devices

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The one it was trained with."""
        return load_tokenizer(self.pack)

    def record(self, task: str, visits: int) -> Record:
        """What every record of it begins with: whose it is, and where it stands."""
        return {
            'task': task,
            'name': self.run.name,
            'kind': self.lineage.kind,
            'step': self.step,
            'trunk_step': self.lineage.start if self.lineage.kind == 'branch' else self.step,
            'seed': self.run.seed,
            'pack': self.manifest.fingerprint,
            'tokenizer': self.manifest.tokenizer_fingerprint,
            'version': __version__,
            **endpoint(self.run, self.trained_on, self.step, visits),
        }


def open_checkpoint(
    workdir: str,
    step: int | None = None,
    visits: int | None = None,
    pack: str = '',
    mesh: MeshConfig | None = None,
    **batches: int,
) -> Opened:
    """Opens a checkpoint.

    Args:
      workdir: run directory of a trunk or a branch.
      step: of the checkpoint; None for the latest.
      visits: that it will be evaluated at; None for the config's. All that cannot be is refused before parameters are read.
      pack: another pack than the run's own, of the same tokenizer; '' for its own.
      mesh: of the devices; None for the config's. Evaluation is dropless: `mesh.buffer` is taken as 0.
      batches: name → rows of a batch that the mesh has to share.

    Raises:
      ValueError, FileNotFoundError: no such run or checkpoint, a pack of another tokenizer, or the run's own pack is gone or
        another one now.
    """
    run_dir = RunDir(workdir)
    run, lineage = run_dir.config(), run_dir.lineage()
    run_dir.records()  # they must be readable before work starts: new ones join them
    require_visits(workdir, run.model, run.model.loop.visits if visits is None else visits)
    pack = pack_of(workdir, pack)
    manifest = open_pack(pack, lineage.tokenizer)
    trained_on = manifest if manifest.fingerprint == lineage.pack else load_manifest(run.data.pack)
    if trained_on.fingerprint != lineage.pack:
        raise ValueError(
            f'{run.data.pack} was packed anew since {workdir} read it: {trained_on.fingerprint[:12]}, then {lineage.pack[:12]}'
        )
    # A bounded buffer drops choices by what else is in the batch: evaluation has room for all.
    devices = Devices.of(dataclasses.replace(mesh or run.mesh, buffer=0.0))
    devices.check(run.model, **batches)
    loaded = load(workdir, step, devices)
    return Opened(run_dir, run, lineage, loaded.step, pack, manifest, trained_on, loaded.params, devices)


def endpoint(run: RunConfig, manifest: Manifest, step: int, visits: int) -> Record:
    """Where on the axes of the laws a checkpoint stands: tokens D, FLOPs F · D, and the whole budget of the model.

    `flops` are those spent in training, at the trained visits; the rest of the budget is counted at `visits`. `manifest` is
    that of the rows it was trained on.
    """
    keys = manifest.train.mean_attended_keys
    tokens = step * run.data.batch_rows * manifest.row_tokens
    return {
        'tokens_seen': tokens,
        'flops': budget_of(run.model, keys).compute(tokens),
        'trained_visits': run.model.loop.visits,
        **budget_of(run.model.at_visits(visits), keys).as_dict(),
    }
