"""Orbax checkpoints of a run: asynchronous, atomic, the last few kept and the branch seeds for ever.

A step has two items: `params`, which analysis reads alone, and `optimizer` (moments, counts, step).
"""

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from smelt_jax.parallel import processes
from smelt_jax.runs import RunDir
from smelt_jax.train.state import TrainState

_ITEMS = ('params', 'optimizer')


class Checkpoints:
    """The checkpoints/ of a run directory. Use as a context manager: leaving waits for the save under way.

    A step counts if all that is there of it is whole: what a killed process or an interrupted copy left does not. A
    writer sets such leftovers aside, and says so; it deletes only what it saved.
    """

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
        self._local = '://' not in str(self.path)
        if not read_only:
            if processes.first():
                self._set_aside()
            processes.meet('what is incomplete is set aside')
        kept = [policies.LatestN(keep), policies.CustomSteps(list(pinned))]
        self._manager = ocp.CheckpointManager(
            self.path.resolve() if self._local else self.path,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy(kept),
                save_decision_policy=policies.FixedIntervalPolicy(1),
                read_only=read_only,
                enable_async_checkpointing=not read_only,
            ),
            item_handlers={name: ocp.StandardCheckpointHandler() for name in _ITEMS},
        )

    def __enter__(self) -> 'Checkpoints':
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with self._writing():
                self._manager.close()
        except OSError:
            if kind is None:  # else there is an error on its way that came first
                raise

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        return sorted(step for step in self._manager.all_steps() if self._whole(step))

    def latest(self) -> int | None:
        """The newest complete checkpoint."""
        return max(self.steps(), default=None)

    def save(self, step: int, state: TrainState) -> None:
        """Starts saving. The failure of an earlier save is raised here, or by `wait`. A step is saved once.

        Raises:
          OSError: it cannot be written, or an earlier one could not; what had been saved before is untouched.
        """
        self.wait()
        if step in self._manager.all_steps():
            return
        self._require_space(step, sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
        params, optimizer = state.params, {'step': state.step, 'opt_state': state.opt_state}
        save = ocp.args.StandardSave
        with self._writing():
            self._manager.save(step, args=ocp.args.Composite(params=save(params), optimizer=save(optimizer)))

    def wait(self) -> None:
        """Returns when everything that was started is on disk. Raises OSError if it could not be written."""
        with self._writing():
            self._manager.wait_until_finished()
            self._manager.check_for_errors()

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The whole state of a step.

        Args:
          like: arrays or `jax.ShapeDtypeStruct`s: the shapes, dtypes and shardings wanted. Without a sharding a leaf comes to
            the first device, wherever it was saved from.

        Raises:
          ValueError: there is no such checkpoint, or its arrays are not the model's.
        """
        optimizer = {'step': like.step, 'opt_state': like.opt_state}
        items = self._restore(step, {'params': like.params, 'optimizer': optimizer})
        if (found := int(items['optimizer']['step'])) != step:
            raise ValueError(f'{self.path / str(step)} holds step {found}; give it its own name back')
        return TrainState(items['optimizer']['step'], items['params'], items['optimizer']['opt_state'])

    def restore_params(self, step: int, like: dict) -> dict:
        """The parameters alone; nothing of the optimizer is read. `like` and errors as in `restore`."""
        return self._restore(step, {'params': like})['params']

    def _restore(self, step: int, items: dict[str, Any]) -> Any:
        if step not in self.steps():
            raise ValueError(f'{self.path} has no checkpoint of step {step}; it has {self.steps() or "none"}')
        with self._reading(step):
            metadata = self._manager.item_metadata(step)
        for name, like in items.items():
            where = f'checkpoint {self.path / str(step) / name}'
            if not (self.path / str(step) / name).exists():
                raise ValueError(f'{where} is not there: the step can be read, but not gone on from')
            _check_leaves(metadata[name], like, where)
        args = {name: ocp.args.StandardRestore(jax.tree.map(_placed, like)) for name, like in items.items()}
        with self._reading(step):
            return self._manager.restore(step, args=ocp.args.Composite(**args))

    def _whole(self, step: int) -> bool:
        """Whether every item that is there has what Orbax writes last. An optimizer that is gone was left out on purpose."""
        folder = self.path / str(step)
        there = ['params', *(name for name in _ITEMS[1:] if (folder / name).exists())]
        return all((folder / name / file).exists() for name in there for file in ('_METADATA', 'manifest.ocdbt'))

    def _set_aside(self) -> None:
        """Incomplete steps get another name: Orbax would count them among the newest, and delete good ones instead."""
        names = [path.name for path in self.path.iterdir()] if self.path.exists() else []
        for name in names:
            if name.isdecimal() and not self._whole(int(name)):
                free = (f'{name}.incomplete-{count}' for count in itertools.count(1))
                aside = next(new for new in free if new not in names)
                (self.path / name).rename(self.path / aside)
                print(f'{self.path}: checkpoint {name} is incomplete; it is called {aside} now', file=sys.stderr)

    def _require_space(self, step: int, size: int) -> None:
        """Better now, in one line, than in the middle of writing."""
        if not self._local:
            return
        disk = os.statvfs(self.path)
        free = disk.f_bavail * disk.f_frsize
        if free < size:
            raise OSError(
                errno.ENOSPC,
                f'no room for the checkpoint of step {step}: it takes {size:,} bytes, {free:,} are free; '
                f'make room and run again, it goes on from the last one',
                str(self.path),
            )

    @contextlib.contextmanager
    def _reading(self, step: int) -> Iterator[None]:
        """Damage shows as errors of many kinds, and Orbax's threads may drown the first one: it becomes one ValueError."""
        try:
            yield
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0][:300]
            others = [other for other in self.steps() if other != step]
            raise ValueError(
                f'checkpoint {self.path / str(step)} is damaged: {reason}. Move it away and run again; '
                f'the others are {others or "none"}'
            ) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """What Orbax and tensorstore raise when something cannot be written is of many kinds: it becomes an OSError."""
        try:
            yield
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise OSError(f'{self.path}: a checkpoint could not be written: {reason}') from error


def _check_leaves(found: Any, wanted: Any, where: str) -> None:
    """Raises ValueError for the first leaf that is missing, superfluous or of another shape. Orbax would pad or cut."""
    found_shapes, wanted_shapes = _shapes(found), _shapes(wanted)
    for name in sorted(found_shapes | wanted_shapes):
        have, want = found_shapes.get(name, 'nothing'), wanted_shapes.get(name, 'nothing')
        if have != want:
            raise ValueError(f'{where} is of another model: at {name} it has {have}, the config says {want}')


def _placed(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = leaf.sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _shapes(tree: Any) -> dict[str, Any]:
    """Shape by path, in one spelling: Orbax reads named tuples back as dicts."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator='/'): tuple(leaf.shape) for path, leaf in leaves}
