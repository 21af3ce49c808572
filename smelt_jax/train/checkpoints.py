"""Orbax checkpoints of a run: asynchronous, atomic, the last few kept and the branch seeds for ever.

A step has three items: `params`, which analysis reads alone; `optimizer` (moments, counts, step); and `digest`: whose step it
is, and a digest of every array, by which it is known to come back as it was.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from smelt_jax import stop
from smelt_jax.parallel import processes
from smelt_jax.runs import RunDir
from smelt_jax.storage.files import is_local
from smelt_jax.train.damage import DamagedError, reading, writing
from smelt_jax.train.digest import look_over, opened, sealed
from smelt_jax.train.leaves import check_leaves, placed
from smelt_jax.train.state import TrainState

# What is written last of each item.
_LAST_FILES = {
    'params': ('_METADATA', 'manifest.ocdbt'),
    'optimizer': ('_METADATA', 'manifest.ocdbt'),
    'digest': ('digest.json',),
}


class Checkpoints:
    """The checkpoints/ of a run directory. Use as a context manager: leaving waits for the save under way.

    A step counts if all that is there of it is whole: what a killed process or an interrupted copy left does not. A
    writer sets such leftovers aside, and says so; it deletes only what it saved.
    """

    def __init__(
        self,
        run_dir: RunDir,
        keep: int = 1,
        pinned: Sequence[int] = (),
        read_only: bool = False,
        strict: bool = False,
    ) -> None:
        """
        Args:
          run_dir: of the run.
          keep: the newest that are kept.
          pinned: steps that are kept for ever.
          read_only: never write or delete. Raises FileNotFoundError if there is nothing to read.
          strict: what is incomplete or damaged is an error; otherwise it is set aside.
        """
        if read_only and not run_dir.checkpoints.exists():
            raise FileNotFoundError(f'{run_dir.path} has no checkpoints')
        self.path = run_dir.checkpoints
        self.set_aside: list[tuple[int, str]] = []  # steps that were, and why
        self._strict, self._owner = strict, run_dir.identity()
        self._local = is_local(self.path)
        if not read_only:
            if processes.first():
                self._set_incomplete_aside()
            processes.meet('what is incomplete is set aside')
        kept = [policies.LatestN(keep), policies.CustomSteps(list(pinned))]
        arrays = {name: ocp.StandardCheckpointHandler() for name in ('params', 'optimizer')}
        self._manager = ocp.CheckpointManager(
            self.path.resolve() if self._local else self.path,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy(kept),
                save_decision_policy=policies.FixedIntervalPolicy(1),
                read_only=read_only,
                create=not read_only,
                enable_async_checkpointing=not read_only,
            ),
            item_handlers=arrays | {'digest': ocp.JsonCheckpointHandler('digest.json')},
        )

    def __enter__(self) -> 'Checkpoints':
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with writing(self.path):
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

    def save(self, step: int, state: TrainState, digests: dict[str, str] | None = None) -> None:
        """Starts saving. The failure of an earlier save is raised here, or by `check` or `wait`. A step is saved once.

        Args:
          digests: of `look_over(state)`, if that has been called already.

        Raises:
          OSError: it cannot be written, or an earlier one could not; what had been saved before is untouched.
        """
        self.wait()
        if step in self._manager.all_steps():
            return
        self._require_space(step, sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
        digest = sealed({'step': step, 'run': self._owner, 'arrays': digests or look_over(state)[0]})
        items = {name: ocp.args.StandardSave(item) for name, item in _items(state).items()}
        with writing(self.path):
            self._manager.save(step, args=ocp.args.Composite(**items, digest=ocp.args.JsonSave(digest)))

    def check(self) -> None:
        """Raises OSError if a save that was under way has failed. Waits for nothing."""
        if not self._manager.is_saving_in_progress():
            self.wait()

    def wait(self) -> None:
        """Returns when everything that was started is on disk. Raises OSError if it could not be written."""
        with writing(self.path):
            self._manager.wait_until_finished()
            self._manager.check_for_errors()

    def restore_latest(self, like: TrainState) -> tuple[int, TrainState] | None:
        """The newest complete checkpoint that comes back as it was saved, and its step; None if nothing was ever saved.

        A damaged one is set aside, with a line that names it, and the one before is taken. `like` and errors as in `restore`.

        Raises:
          DamagedError: there is none that comes back, or the newest is damaged and the rule is strict.
        """
        while (step := self.latest()) is not None:
            try:
                return step, self.restore(step, like)
            except DamagedError as error:
                others = self._others(step)
                if self._strict or not others:
                    raise
                aside = self._put_aside(str(step), 'damaged')
                line = f'{error.what}; it is called {aside} now'
                if jax.process_count() > 1:  # one alone may have met the damage, while the others wait for it
                    raise DamagedError(line, f'run all again, to go on from step {others[-1]}') from error
                self._say(step, f'{line}, and the run goes on from step {others[-1]}')
                self._manager.reload()
        return None

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The whole state of a step.

        Args:
          like: arrays or `jax.ShapeDtypeStruct`s: the shapes, dtypes and shardings wanted. Without a sharding a leaf comes to
            the first device, wherever it was saved from.

        Raises:
          ValueError: there is no such checkpoint, it is another run's, or its arrays are not the model's.
          DamagedError: it does not come back as it was saved.
          OSError: the disk or the network does not answer.
        """
        items = self._restore(step, _items(like))
        state = TrainState(items['optimizer']['step'], items['params'], items['optimizer']['opt_state'])
        self._verify(step, items['digest'], state)
        return state

    def restore_params(self, step: int, like: dict) -> dict:
        """The parameters alone; nothing of the optimizer is read. `like` and errors as in `restore`."""
        items = self._restore(step, {'params': like})
        self._verify(step, items['digest'], {'params': items['params']})
        return items['params']

    def _restore(self, step: int, items: dict[str, Any]) -> Any:
        if step not in self.steps():
            raise ValueError(f'{self.path} has no checkpoint of step {step}; it has {self.steps() or "none"}')
        with reading(self._name(step), self._remedy(step)):
            metadata = self._manager.item_metadata(step)
        for name, like in items.items():
            where = f'{self._name(step)}/{name}'
            if not (self.path / str(step) / name).exists():
                raise ValueError(f'{where} is not there: the step can be read, but not gone on from')
            check_leaves(metadata[name], like, where)
        args: dict[str, Any] = {name: ocp.args.StandardRestore(placed(like)) for name, like in items.items()}
        with reading(self._name(step), self._remedy(step)):
            found = self._manager.restore(step, args=ocp.args.Composite(**args, digest=ocp.args.JsonRestore()))
            digest = opened(found['digest'])
            saved_as, owner = digest['step'], digest['run']
        if saved_as != step:
            raise ValueError(f'{self.path / str(step)} holds step {saved_as}; give it its own name back')
        if owner != self._owner:
            raise ValueError(f'{self._name(step)} is of another run ({owner}, not {self._owner}); move it away')
        return found

    def _verify(self, step: int, digest: Any, tree: Any) -> None:
        for name, found in look_over(tree)[0].items():
            saved = digest['arrays'].get(name)
            if found != saved:
                reason = f'{name} is not what was saved: its digest is {found}, not {saved}'
                raise DamagedError(f'{self._name(step)} is damaged: {reason}', self._remedy(step))

    def _name(self, step: int) -> str:
        return f'checkpoint {self.path / str(step)}'

    def _remedy(self, step: int) -> str:
        return f'bring back a copy of it, or take another: there is {self._others(step) or "none"}'

    def _others(self, step: int) -> list[int]:
        return [other for other in self.steps() if other != step]

    def _whole(self, step: int) -> bool:
        """Whether every item that is there has what is written last. An optimizer that is gone was left out on purpose."""
        folder = self.path / str(step)
        there = [name for name in _LAST_FILES if name != 'optimizer' or (folder / name).exists()]
        return all((folder / name / file).exists() for name in there for file in _LAST_FILES[name])

    def _set_incomplete_aside(self) -> None:
        """Orbax would count them among the newest, and delete good ones instead. Raises DamagedError if no other is left, or if
        the rule is strict."""
        names = [path.name for path in self.path.iterdir()] if self.path.exists() else []
        there = sorted(int(name) for name in names if name.isdecimal())
        whole = [step for step in there if self._whole(step)]
        for step in (step for step in there if step not in whole):
            what = f'{self.path}: checkpoint {step} is incomplete'
            if self._strict or not whole:
                remedy = (
                    'without --strict_restore the run goes on from the newest'
                    if whole
                    else 'begin anew in another workdir'
                )
                raise DamagedError(what, f'bring its files back; the complete ones are {whole or "none"}: {remedy}')
            self._say(step, f'{what}; it is called {self._put_aside(str(step), "incomplete")} now')

    def _say(self, step: int, line: str) -> None:
        self.set_aside.append((step, line))
        stop.say(line)

    def _put_aside(self, name: str, why: str) -> str:
        """Renames the folder of a step, which is never deleted; returns its new name."""
        free = (f'{name}.{why}-{count}' for count in itertools.count(1))
        aside = next(new for new in free if not (self.path / new).exists())
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            (self.path / name).rename(self.path / aside)
        return aside

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


def _items(state: TrainState) -> dict[str, Any]:
    return {'params': state.params, 'optimizer': {'step': state.step, 'opt_state': state.opt_state}}
