"""Orbax checkpoints of a run: asynchronous, atomic, the last few kept and the branch seeds for ever.

A step has two items: `params`, which analysis reads alone, and `optimizer` (moments, counts, step).
"""

from collections.abc import Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from smelt_jax.runs import RunDir
from smelt_jax.train.state import TrainState


class Checkpoints:
    """The checkpoints/ of a run directory. Use as a context manager: leaving waits for the save under way."""

    def __init__(self, run_dir: RunDir, keep: int = 1, pinned: Sequence[int] = (), read_only: bool = False) -> None:
        """
        Args:
          run_dir: of the run.
          keep: the newest that are kept.
          pinned: steps that are kept for ever.
          read_only: never write or delete. Raises FileNotFoundError if there is nothing to read.
        """
        if read_only and not run_dir.checkpoints.exists():
            raise FileNotFoundError(f'{run_dir.path} has no checkpoints')
        self.path = run_dir.checkpoints
        kept = [policies.LatestN(keep), policies.CustomSteps(list(pinned))]
        self._manager = ocp.CheckpointManager(
            self.path if '://' in str(self.path) else self.path.resolve(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy(kept),
                save_decision_policy=policies.FixedIntervalPolicy(1),
                read_only=read_only,
                enable_async_checkpointing=not read_only,
            ),
            item_handlers={name: ocp.StandardCheckpointHandler() for name in ('params', 'optimizer')},
        )

    def __enter__(self) -> 'Checkpoints':
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        return sorted(self._manager.all_steps())

    def latest(self) -> int | None:
        """The newest complete checkpoint; one that a killed process left unfinished does not count."""
        return self._manager.latest_step()

    def save(self, step: int, state: TrainState) -> None:
        """Starts saving. The failure of an earlier save is raised here, or by `wait`. A step is saved once."""
        self._manager.check_for_errors()
        if step not in self._manager.all_steps():
            params, optimizer = state.params, {'step': state.step, 'opt_state': state.opt_state}
            save = ocp.args.StandardSave
            self._manager.save(step, args=ocp.args.Composite(params=save(params), optimizer=save(optimizer)))

    def wait(self) -> None:
        """Returns when everything that was started is on disk; raises if it could not be written."""
        self._manager.wait_until_finished()
        self._manager.check_for_errors()

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The whole state of a step.

        Args:
          like: arrays or `jax.ShapeDtypeStruct`s: the shapes, dtypes and shardings wanted.

        Raises:
          ValueError: there is no such checkpoint, or its arrays are not the model's.
        """
        optimizer = {'step': like.step, 'opt_state': like.opt_state}
        items = self._restore(step, {'params': like.params, 'optimizer': optimizer})
        return TrainState(items['optimizer']['step'], items['params'], items['optimizer']['opt_state'])

    def restore_params(self, step: int, like: dict) -> dict:
        """The parameters alone; nothing of the optimizer is read. `like` and errors as in `restore`."""
        return self._restore(step, {'params': like})['params']

    def _restore(self, step: int, items: dict[str, Any]) -> Any:
        if step not in self._manager.all_steps():
            raise ValueError(f'{self.path} has no checkpoint of step {step}; it has {self.steps() or "none"}')
        metadata = self._manager.item_metadata(step)
        for name, like in items.items():
            _check_leaves(metadata[name], like, f'checkpoint {self.path / str(step) / name}')
        args = {name: ocp.args.StandardRestore(like) for name, like in items.items()}
        return self._manager.restore(step, args=ocp.args.Composite(**args))


def _check_leaves(found: Any, wanted: Any, where: str) -> None:
    """Raises ValueError for the first leaf that is missing, superfluous or of another shape. Orbax would pad or cut."""
    found_shapes, wanted_shapes = _shapes(found), _shapes(wanted)
    for name in sorted(found_shapes | wanted_shapes):
        have, want = found_shapes.get(name, 'nothing'), wanted_shapes.get(name, 'nothing')
        if have != want:
            raise ValueError(f'{where} is of another model: at {name} it has {have}, the config says {want}')


def _shapes(tree: Any) -> dict[str, Any]:
    """Shape by path, in one spelling: Orbax reads named tuples back as dicts."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator='/'): tuple(leaf.shape) for path, leaf in leaves}
