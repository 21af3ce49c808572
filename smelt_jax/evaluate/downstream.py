"""Tasks of a checkpoint: examples become prompts, prompts are scored, and each task leaves a record and its outcomes.

A record says the task's version, its shots, the seed that drew them, and the visits. What has a record of the same version, and
outcomes that it sums up, is not done again, so that an evaluation that was killed goes on with the task it was at.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from smelt_jax.evaluate import outcomes
from smelt_jax.evaluate.opened import Opened, Record
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.generate.decode import generate
from smelt_jax.generate.sampling import Sampling
from smelt_jax.parallel import processes
from smelt_jax.runs import TASK_KEYS
from smelt_jax.tasks import metrics
from smelt_jax.tasks.example import Example
from smelt_jax.tasks.metrics import Summary
from smelt_jax.tasks.prompts import openings, prompts, room_to_open
from smelt_jax.tasks.reading import examples, fingerprint, shot_pool
from smelt_jax.tasks.task import Task

Say = Callable[[str, int, int], None]  # what is scored, requests done, requests in all


@dataclasses.dataclass(frozen=True)
class Ask:
    """What is asked of a checkpoint.

    Attributes:
      tasks: that are evaluated.
      shots: numbers of shots, of every task; () for each task's own.
      seeds: draws of the shots, from 0 on. Without shots there is nothing to draw, and one is made.
      limit: examples of a task, evenly over the file; 0 for all.
      room: tokens of the longest prompt; 0 for those of a row in training.
      new_tokens: that are generated at most.
      again: whether what has a record is done again.
    """

    tasks: tuple['Read', ...]
    shots: tuple[int, ...] = ()
    seeds: int = 1
    limit: int = 0
    room: int = 0
    new_tokens: int = 128
    again: bool = False


class Read(NamedTuple):
    """A task, its examples, those that are shown first (None: its own), and the hash of all that decides its scores."""

    task: Task
    examples: list[Example]
    pool: list[Example] | None
    version: str


def read(task: Task, folder: epath.Path) -> Read:
    """From its files. Raises ValueError for a malformed one, naming file and line."""
    found, pool = examples(task, folder), shot_pool(task, folder)
    return Read(task, found, pool, fingerprint(task, found, pool))


class Part(NamedTuple):
    """One record's worth of work: a task at a number of shots, drawn by a seed."""

    task: Task
    shots: int
    seed: int


def parts_of(ask: Ask) -> Iterator[Part]:
    """In the order in which they are done."""
    for task, *_ in ask.tasks:
        for shots in ask.shots or (task.shots,):
            for seed in range(ask.seeds if shots else 1):
                yield Part(task, shots, seed)


def evaluate_tasks(opened: Opened, ask: Ask, visits: int, say: Say = lambda *_: None) -> list[Record]:
    """The records of all parts, of which those that were missing are made and added to the run's records.jsonl.

    Raises:
      ValueError: a prompt, or what is generated, has no room: before anything is scored.
    """
    scorer = Scorer(opened.run.model, opened.params, opened.devices, visits)
    works = {text.task: _Work(opened, ask, text, visits, scorer) for text in ask.tasks}
    parts = list(parts_of(ask))
    there = {} if ask.again else _there(opened, works, parts)
    processes.agree('let all see the same run directory', evaluations=repr([part in there for part in parts]))
    for task in dict.fromkeys(part.task for part in parts if part not in there):
        works[task].check()
    found = []
    for part in parts:
        work = works[part.task]
        if part in there:
            found.append(there[part])
            continue
        what = f'{part.task.name}, {part.shots} shots' + f', seed {part.seed}' * (ask.seeds > 1 and part.shots > 0)
        scores, lines = work.done(part, functools.partial(say, what))
        found.append({**work.begun(part), **scores})
        if processes.first():
            outcomes.write(work.file(part), lines)
            opened.run_dir.put_records([found[-1]])
    return found


def _there(opened: Opened, works: Mapping[Task, '_Work'], parts: Sequence[Part]) -> dict[Part, Record]:
    """The records that need not be made again."""
    known = {_key(record): record for record in opened.run_dir.records() if 'task_version' in record}
    there = {}
    for part in parts:
        work = works[part.task]
        old = known.get(_key(work.begun(part)))
        if old and old.items() >= work.facts(part).items() and outcomes.fit(work.file(part), old):
            there[part] = old
    return there


class _Work:
    """A task of a checkpoint."""

    def __init__(self, opened: Opened, ask: Ask, text: Read, visits: int, scorer: Scorer) -> None:
        self._opened, self._visits, self._scorer = opened, visits, scorer
        self._task, self._examples, self._pool, self._version = text
        self._ask, self._room = ask, ask.room or opened.manifest.row_tokens
        self._only = picked(len(self._examples), ask.limit)
        self._tokenizer = opened.tokenizer

    def check(self) -> None:
        """Raises ValueError if there is no room for a continuation, or for what is generated."""
        prompts(self._task, self._examples, 0, 0, self._tokenizer, self._room, only=self._only)
        if self._task.kind == 'generation':
            room_to_open(self._room, self._ask.new_tokens)

    def facts(self, part: Part) -> Record:
        """What decides the scores, besides the checkpoint."""
        generated = {'new_tokens': self._ask.new_tokens} if self._task.kind == 'generation' else {}
        return {
            **generated,
            'task_version': self._version,
            'shots': part.shots,
            'shot_seed': part.seed,
            'room': self._room,
            'examples': len(self._only),
        }

    def begun(self, part: Part) -> Record:
        return {**self._opened.record(self._task.name, self._visits), 'group': self._task.group, **self.facts(part)}

    def file(self, part: Part) -> epath.Path:
        return outcomes.outcome_file(self._opened.run_dir, self.begun(part))

    def done(self, part: Part, progress: Callable[[int, int], None]) -> tuple[Record, list[dict[str, Any]]]:
        """Scores, as a record has them, and how each example came out, as `outcomes` has it."""
        task, asked = self._task, (self._task, self._examples, part.shots, part.seed, self._tokenizer, self._room)
        found = prompts(*asked, pool=self._pool, only=self._only)
        scored = iter(self._scorer.score([request for prompt in found for request in prompt.requests], progress))
        texts: Sequence[str | None] = [None] * len(found)
        if task.kind == 'generation':
            opened = openings(*asked, new_tokens=self._ask.new_tokens, pool=self._pool, only=self._only)
            texts = self._generated([opening.tokens for opening in opened])
        chosen = [self._examples[index] for index in self._only]
        made = [
            metrics.outcome(task, example, prompt, [next(scored) for _ in prompt.requests], text)
            for example, prompt, text in zip(chosen, found, texts, strict=True)
        ]
        scores = _scores(task, metrics.summary(task, chosen, made))
        overflow = {
            'dropped': sum(prompt.dropped for prompt in found),
            'cut': sum(prompt.cut > 0 for prompt in found),
        }
        lines = [
            {'example': index, 'right': one.right, 'nats': one.completion_sum, 'tokens': one.completion_tokens}
            | ({} if text is None else {'text': text})
            for index, one, text in zip(self._only, made, texts, strict=True)
        ]
        return {**scores, **overflow}, lines

    def _generated(self, prompts: Sequence[np.ndarray]) -> list[str]:
        """What the model says, greedily, up to the end of an answer."""
        opened, tokenizer = self._opened, self._tokenizer
        sampling = Sampling(new_tokens=self._ask.new_tokens, stops=self._stops())
        made = generate(
            opened.params,
            opened.run.model,
            opened.devices,
            prompts,
            sampling,
            self._visits,
            tokenizer.eos,
            tokenizer=tokenizer,
        )
        return [tokenizer.decode(tokens).decode('utf-8', 'replace') for tokens in made]

    def _stops(self) -> tuple[str, ...]:
        """Where an answer is sure to be over: at the next question, or without a chain of thought at the joint, unless what is
        generated begins with it."""
        task = self._task
        if task.question:
            return (task.joint + task.question,)
        space = task.delimiter[len(task.delimiter.rstrip()) :]
        return () if task.reasoning or task.joint in space else (task.joint,)


def _scores(task: Task, summary: Summary) -> Record:
    return {
        'accuracy': summary.accuracy,
        'accuracy_error': summary.error,
        'chance': task.chance,
        'centered': summary.centered,
        'completion': summary.completion,
        'completion_tokens': summary.completion_tokens,
        'by_category': {
            name: {'accuracy': part.accuracy, 'completion': part.completion, 'examples': part.examples}
            for name, part in summary.by_category.items()
        },
    }


def _key(record: Record) -> tuple:
    return tuple(record.get(key) for key in ('task', 'step', 'visits', 'pack', *TASK_KEYS))


def picked(count: int, limit: int) -> list[int]:
    """Indices of `limit` of `count` examples, evenly; of all if limit is 0."""
    return [i * count // limit for i in range(limit)] if 0 < limit < count else list(range(count))
