"""What `smelt evaluate` is asked: which checkpoints, tasks and visits."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smelt_jax.data.manifest import open_pack
from smelt_jax.evaluate.downstream import Ask, picked, read
from smelt_jax.model.config import ModelConfig
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.runs import RunDir
from smelt_jax.storage.files import is_local
from smelt_jax.tasks.prompts import check_shots
from smelt_jax.tasks.tables import HELDOUT, task_folder, tasks_of
from smelt_jax.tasks.task import Task
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.load import pack_of, require_visits

Where = tuple[str, int | None]  # run directory, step or None for the latest


@dataclasses.dataclass(frozen=True)
class Asked:
    """Attributes:
    checkpoints: that are evaluated. Of several, each is compared with the first one, or with its partner.
    against: the partner of each; () for none.
    heldout: whether held-out loss is among the tasks.
    ask: the other tasks, and how.
    groups: group → names of its tasks, of the groups whose mean is told.
    visits: of the loop, one after the other; () for those of training. See `visits_of`.
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

    def visits_of(self, model: ModelConfig) -> tuple[int, ...]:
        """At which a checkpoint is evaluated: one without a loop once, beside those with one."""
        own = (model.loop.visits,)
        return (self.visits or own) if model.loop.length else own

    def check(self) -> None:
        """Raises ValueError or FileNotFoundError for what cannot be evaluated so: before anything is."""
        for text in self.ask.tasks:
            only = picked(len(text.examples), self.ask.limit)
            for shots in self.ask.shots or (text.task.shots,):
                check_shots(text.task, text.examples, shots, text.pool, only)
        runs = {workdir: RunDir(workdir).config() for workdir, _ in (*self.against, *self.checkpoints)}
        looped = any(run.model.loop.length for run in runs.values())
        for workdir, run in runs.items():
            for visits in self.visits_of(run.model) if looped else self.visits:
                require_visits(workdir, run.model, visits)
            open_pack(pack_of(workdir, self.pack), RunDir(workdir).lineage().tokenizer)
        found = [_found(where) for where in self.checkpoints]
        for place, (workdir, _) in zip(found, self.checkpoints, strict=True):
            if found.count(place) > 1:
                raise ValueError(f'--checkpoint: step {place[1]} of {workdir} is there twice; leave one out')
        for ours, theirs in zip(found, map(_found, self.against), strict=False):
            if ours == theirs:
                raise ValueError(f'--against: {ours[0]}@{ours[1]} would be compared with itself; give another partner')


def _found(where: Where) -> tuple[str, int]:
    """The run directory, by one name, and the step."""
    run_dir, step = RunDir(where[0]), where[1]
    with Checkpoints(run_dir, read_only=True) as checkpoints:
        steps = checkpoints.steps()
    if not steps:
        raise FileNotFoundError(f'{run_dir.path} has no complete checkpoint yet')
    if step is not None and step not in steps:
        raise ValueError(f'{run_dir.checkpoints} has no checkpoint of step {step}; it has {steps}')
    path = run_dir.path.resolve() if is_local(run_dir.path) else run_dir.path
    return str(path), max(steps) if step is None else step


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
    if not given.tasks:
        raise ValueError(f'--tasks= names none; give some, or leave it out for {HELDOUT}')
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
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
            raise ValueError(f'--{flag}={",".join(texts)[:60]}: {text!r:.40} is no whole number from {least} on')
    if len(set(map(int, texts))) < len(texts):
        raise ValueError(f'--{flag}={",".join(texts)} says a number twice')
    return tuple(int(text) for text in texts)
