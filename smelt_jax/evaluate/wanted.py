"""What `smelt evaluate` is asked: which checkpoints, tasks and visits."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smelt_jax.evaluate.downstream import Ask, read
from smelt_jax.evaluate.opened import at_visits
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.runs import RunDir
from smelt_jax.tasks.tables import task_folder, tasks_of
from smelt_jax.tasks.task import Task

HELDOUT = 'heldout'

Where = tuple[str, int | None]  # run directory, step or None for the latest


@dataclasses.dataclass(frozen=True)
class Asked:
    """Attributes:
    checkpoints: that are evaluated. Of several, each is compared with the first one, or with its partner.
    against: the partner of each; () for none.
    heldout: whether held-out loss is among the tasks.
    ask: the other tasks, and how.
    groups: group → names of its tasks, of the groups whose mean is told.
    visits: of the loop, one after the other; () for those of training.
    length_bins: of held-out loss; () for the config's.
    pack, mesh: see `open_checkpoint`.
    """

    checkpoints: tuple[Where, ...]
    against: tuple[Where, ...]
    heldout: bool
    ask: Ask
    groups: Mapping[str, tuple[str, ...]]
    visits: tuple[int, ...] = ()
    length_bins: tuple[int, ...] = ()
    pack: str = ''
    mesh: MeshConfig | None = None

    def __post_init__(self) -> None:
        if self.against and len(self.against) != len(self.checkpoints):
            raise ValueError(
                f'--against has {len(self.against)} checkpoints, --checkpoint has {len(self.checkpoints)}; give one for each'
            )

    def check(self) -> None:
        """Raises ValueError for a checkpoint that cannot be evaluated so: before anything is."""
        for workdir, _ in (*self.against, *self.checkpoints):
            model = RunDir(workdir).config().model
            for visits in self.visits:
                try:
                    at_visits(model, visits).check()
                except ValueError as error:
                    raise ValueError(f'--visits={visits} of {workdir}: {error}') from None


def groups_of(tasks: Sequence[Task], whole: Callable[[str], Sequence[Task]]) -> dict[str, tuple[str, ...]]:
    """The groups of which all tasks are there; `whole` gives those of a group."""
    names = {task.name for task in tasks}
    found = {}
    for group in dict.fromkeys(task.group for task in tasks if task.group):
        members = tuple(task.name for task in whole(group))
        if len(members) > 1 and names.issuperset(members):
            found[group] = members
    return found


def wanted(given: Any, checkpoints: Sequence[Where], against: Sequence[Where], mesh: MeshConfig | None) -> Asked:
    """From the flags of the verb. Raises ValueError, naming the flag, for what cannot be evaluated."""
    folder = task_folder(given.task_dir)
    names = [name for name in given.tasks if name != HELDOUT]
    tasks = tuple(tasks_of(names, folder)) if names else ()
    ask = Ask(
        tasks=tuple(read(task, folder) for task in tasks),
        shots=_numbers('shots', given.shots, 0),
        seeds=given.seeds,
        limit=given.limit,
        room=given.room,
        new_tokens=given.new_tokens,
        again=given.again,
    )
    asked = Asked(
        checkpoints=tuple(checkpoints),
        against=tuple(against),
        heldout=HELDOUT in given.tasks,
        ask=ask,
        groups=groups_of(tasks, lambda group: tasks_of([group], folder, lambda _: None)),
        visits=_numbers('visits', given.visits, 1),
        length_bins=_numbers('length_bins', given.length_bins, 1),
        pack=given.pack,
        mesh=mesh,
    )
    if asked.length_bins and not asked.heldout:
        raise ValueError(f'--length_bins is of held-out loss; ask for --tasks={HELDOUT},{",".join(names)}')
    asked.check()
    return asked


def _numbers(flag: str, texts: Sequence[str], least: int) -> tuple[int, ...]:
    """Whole numbers, each once, from `least` on."""
    for text in texts:
        if not (text.isascii() and text.isdecimal() and int(text) >= least):
            raise ValueError(f'--{flag}={",".join(texts)}: {text!r} is no whole number from {least} on')
    if len(set(map(int, texts))) < len(texts):
        raise ValueError(f'--{flag}={",".join(texts)} says a number twice')
    return tuple(int(text) for text in texts)
