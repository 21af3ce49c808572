"""From run directories to what figures draw: arms, and the held-out records of a run."""

from collections.abc import Iterable
from typing import Any

from etils import epath

from smelt_jax.runs import RunDir
from smelt_jax.storage.files import reach

NEEDED = ('kind', 'step', 'trunk_step', 'flops', 'flops_per_token', 'loss')


def by_name(paths: Iterable[epath.PathLike]) -> dict[str, list[RunDir]]:
    """Run directories by the `name` in their config, in the order given. A directory given twice counts once.

    Raises:
      FileNotFoundError: one is no run directory.
    """
    arms: dict[str, list[RunDir]] = {}
    for path in dict.fromkeys(reach(path) for path in paths):
        run = RunDir(path)
        arms.setdefault(run.config().name, []).append(run)
    return arms


def heldout_records(run: RunDir) -> list[dict[str, Any]]:
    """The run's held-out records, as `RunDir.heldout` chooses them, by step.

    Raises:
      ValueError: a record lacks a key that figures need.
    """
    records = run.heldout()
    for record in records:
        missing = [key for key in NEEDED if record.get(key) is None]
        if missing:
            what = f'the held-out record of step {record["step"]} has no {", ".join(missing)}'
            raise ValueError(f'{run.records_file}: {what}; evaluate that step again')
    return sorted(records, key=lambda record: record['step'])
