"""Tasks of a checkpoint: examples become prompts, prompts are scored, and each task leaves a record and its outcomes.

A record says the task's version, its shots, the seed that drew them, and the visits. What has a record of the same version, and
its outcomes beside it, is not done again, so that an evaluation that was killed goes on with the task it was at.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from smelt_jax.data.tokenizer import Tokenizer
from smelt_jax.evaluate import outcomes
from smelt_jax.evaluate.opened import Opened, Record
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.generate.decode import generate
from smelt_jax.generate.sampling import Sampling
from smelt_jax.parallel import processes
from smelt_jax.runs import TASK_KEYS
from smelt_jax.tasks import metrics
from smelt_jax.tasks.example import Example
from smelt_jax.tasks.prompts import Prompt, generation_prompts, prompts
from smelt_jax.tasks.reading import examples, fingerprint
from smelt_jax.tasks.request import Scores
from smelt_jax.tasks.task import Task

Say = Callable[[str, int, int], None]  # what is scored, requests done, requests in all


@dataclasses.dataclass(frozen=True)
class Ask:
    """What is asked of a checkpoint.

    Attributes:
      tasks: that are evaluated.
      folder: of their files.
      shots: numbers of shots, of every task; () for each task's own.
      seeds: draws of the shots, from 0 on. Without shots there is nothing to draw, and one is made.
      limit: examples of a task, evenly over the file; 0 for all.
      room: tokens of the longest prompt; 0 for those of a row in training.
      new_tokens: that are generated at most.
      again: whether what has a record is done again.
    """

    tasks: tuple[Task, ...]
    folder: str
    shots: tuple[int, ...] = ()
    seeds: int = 1
    limit: int = 0
    room: int = 0
    new_tokens: int = 128
    again: bool = False


class Part(NamedTuple):
    """One record's worth of work: a task at a number of shots, drawn by a seed."""

    task: Task
    shots: int
    seed: int


def parts_of(ask: Ask) -> Iterator[Part]:
    """In the order in which they are done."""
    for task in ask.tasks:
        for shots in ask.shots or (task.shots,):
            for seed in range(ask.seeds if shots else 1):
                yield Part(task, shots, seed)


def evaluate_tasks(opened: Opened, ask: Ask, visits: int, say: Say = lambda *_: None) -> list[Record]:
    """The records of all parts, of which those that were missing are made and added to the run's records.jsonl.

    Raises:
      ValueError: a task's file is malformed, or a prompt has no room: before anything of that task is scored.
    """
    scorer = Scorer(opened.run.model, opened.params, opened.devices, visits)
    known = {_key(record): record for record in opened.run_dir.records() if 'task_version' in record}
    found = []
    for task, parts in itertools.groupby(parts_of(ask), key=lambda part: part.task):
        work = _Work(opened, ask, task, visits, scorer)
        for part in parts:
            record, file = work.begun(part), work.file(part)
            old = known.get(_key(record))
            if old and not ask.again and file.exists() and old.items() >= work.facts(part).items():
                found.append(old)
                continue
            scores, made = work.done(
                part, lambda done, of, part=part: say(f'{part.task.name}, {part.shots} shots', done, of)
            )
            found.append({**record, **scores})
            if processes.first():
                outcomes.write(file, made)
                opened.run_dir.put_records([found[-1]])
    return found


class _Work:
    """A task of a checkpoint, its examples read."""

    def __init__(self, opened: Opened, ask: Ask, task: Task, visits: int, scorer: Scores) -> None:
        folder = reach(ask.folder or '.')
        self._opened, self._task, self._visits, self._scorer = opened, task, visits, scorer
        self._ask, self._room = ask, ask.room or opened.manifest.row_tokens
        self._examples, self._pool = examples(task, folder), shot_pool(task, folder)
        self._version = fingerprint(task, self._examples, self._pool)
        self._only = picked(len(self._examples), ask.limit)
        self._tokenizer = opened.tokenizer

    def facts(self, part: Part) -> Record:
        """What decides the scores, besides the checkpoint."""
        return {
            'task_version': self._version,
            'shots': part.shots,
            'shot_seed': part.seed,
            'room': self._room,
            'examples': len(self._only),
        }

    def begun(self, part: Part) -> Record:
        return {**self._opened.record(self._task.name, self._visits), 'group': self._task.group, **self.facts(part)}

    def file(self, part: Part) -> epath.Path:
        opened = self._opened
        return outcomes.outcome_file(opened.run_dir, opened.step, self._task.name, self._visits, part.shots, part.seed)

    def done(self, part: Part, progress: Callable[[int, int], None]) -> tuple[Record, Outcomes]:
        """Scores, as a record has them, and how each example came out."""
        ...


def picked(count: int, limit: int) -> np.ndarray:
    """Indices of `limit` of `count` examples, evenly; of all if limit is 0."""
    return np.arange(count) if not limit or limit >= count else np.linspace(0, count, limit, endpoint=False).astype(int)
