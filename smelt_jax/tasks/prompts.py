"""What a model is asked: shots, the question, a candidate.

    shot      question + context + delimiter + gold continuation
    prompt    shot joint shot joint … question + context + delimiter | continuation

A shot of a schema has its gold context. One of generation has context + delimiter + chain of thought + reasoning delimiter +
answer where the task has such a delimiter and the example a chain of thought, else context + delimiter + answer, and that is
what is scored, too. White space is not doubled at a delimiter: where it begins with white space a context loses what it ends
in, and where it ends with white space continuations lose theirs at both ends; but choices that differ in that alone keep it.
"""

import collections
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from smelt_jax.data.tokenizer import Tokenizer
from smelt_jax.tasks.encoding import Encoder, shortened
from smelt_jax.tasks.example import Example
from smelt_jax.tasks.request import Request
from smelt_jax.tasks.task import Task


class Prompt(NamedTuple):
    """Attributes:
    requests: one a candidate, in order.
    dropped: shots that did not fit.
    cut: tokens cut from the left of the context, after all shots, because the question is too long; 0 for most.
    """

    requests: tuple[Request, ...]
    dropped: int
    cut: int


class Opening(NamedTuple):
    """Attributes:
    tokens: int32 [n], n ≥ 1, to go on from. Trailing white space is left to what is generated.
    dropped, cut: as of a Prompt.
    """

    tokens: np.ndarray
    dropped: int
    cut: int


def prompts(
    task: Task,
    examples: Sequence[Example],
    shots: int,
    seed: int,
    tokenizer: Tokenizer,
    room: int,
    pool: Sequence[Example] | None = None,
    only: Sequence[int] | None = None,
) -> list[Prompt]:
    """What to score, a Prompt an example.

    Args:
      shots: shown before each question, drawn by (seed, task's name, index of the example), never the example itself nor one
        with its question. More of them are the same ones first, then others.
      room: tokens of the longest request. Shots that do not fit are dropped, the first ones first; a question that does not
        fit is cut on the left, all candidates alike; a continuation is never cut.
      pool: where shots come from (`shot_pool`); None for `examples`.
      only: indices of the examples that are asked; None for all. Their shots are those that they have among all.

    Raises:
      ValueError: there are not as many shots, or a continuation alone has no room.
    """
    encoder, asked = Encoder(tokenizer), _Shots(task, examples, shots, seed, pool)
    found = []
    for index in range(len(examples)) if only is None else only:
        example = examples[index]
        candidates = _candidates(task, example)
        shown, dropped = asked.of(index), 0
        while True:
            front = ''.join(shown[dropped:])
            splits = [encoder.split(front + context, continuation) for context, continuation in candidates]
            if max(len(split.tokens) for split in splits) <= room or dropped == len(shown):
                break
            dropped += 1
        try:
            splits, cut = shortened(splits, room)
        except ValueError as error:
            raise ValueError(f'example {index} of task {task.name}: {error}') from None
        requests = [Request(*split, text) for split, (_, text) in zip(splits, candidates, strict=True)]
        found.append(Prompt(tuple(requests), dropped, cut))
    return found


def openings(
    task: Task,
    examples: Sequence[Example],
    shots: int,
    seed: int,
    tokenizer: Tokenizer,
    room: int,
    new_tokens: int,
    pool: Sequence[Example] | None = None,
    only: Sequence[int] | None = None,
) -> list[Opening]:
    """What to go on from, with `new_tokens` of `room` left for that; otherwise as `prompts`."""
    left = room_to_open(room, new_tokens)
    encoder, asked = Encoder(tokenizer), _Shots(task, examples, shots, seed, pool)
    found = []
    for index in range(len(examples)) if only is None else only:
        example = examples[index]
        ((context, _), *_), shown, dropped = _candidates(task, example), asked.of(index), 0
        while len(tokens := encoder.opening(''.join(shown[dropped:]) + context)) > left and dropped < len(shown):
            dropped += 1
        cut = max(0, len(tokens) - left)
        found.append(Opening(tokens[cut:], dropped, cut))
    return found


def check_shots(
    task: Task, examples: Sequence[Example], shots: int, pool: Sequence[Example] | None, only: Sequence[int]
) -> None:
    """Raises ValueError, as `prompts` would, if there are not as many shots."""
    asked = _Shots(task, examples, shots, 0, pool)
    for index in only:
        asked.check(index)


def room_to_open(room: int, new_tokens: int) -> int:
    """Tokens of the longest opening. ValueError if none are left."""
    if room <= new_tokens:
        raise ValueError(f'{new_tokens=} leave nothing of {room=} for a prompt; generate fewer, or give more room')
    return room - new_tokens


class _Shots:
    """Draws shots, as texts that end in the joint."""

    def __init__(
        self, task: Task, examples: Sequence[Example], shots: int, seed: int, pool: Sequence[Example] | None
    ) -> None:
        if shots < 0:
            raise ValueError(f'{shots=} is less than none; give 0 or more')
        if shots and task.shot_file and pool is None:
            raise ValueError(f'shots of task {task.name} come from {task.shot_file}; read it, and pass it as the pool')
        self._task, self._examples, self._count, self._seed = task, examples, shots, seed
        self._own = pool is None
        self._pool = examples if pool is None else pool
        self._keys = [_question(example) for example in self._pool]
        self._texts = [_shot(task, example) for example in self._pool] if shots else []
        self._of_category: dict[str, list[int]] = {}
        self._alike: collections.Counter[tuple[str, tuple[str, ...]]] = collections.Counter()  # by their questions
        for i, example in enumerate(self._pool):
            category = example.category if task.by_category else ''
            self._of_category.setdefault(category, []).append(i)
            self._alike[category, self._keys[i]] += 1

    def of(self, index: int) -> list[str]:
        """Those of an example."""
        self.check(index)
        return [self._texts[i] for i, _ in zip(self._drawn(index), range(self._count), strict=False)]

    def check(self, index: int) -> None:
        """Raises ValueError if an example has too few."""
        example = self._examples[index]
        category = example.category if self._task.by_category else ''
        left = len(self._of_category.get(category, [])) - self._alike[category, _question(example)]
        if left < self._count:
            of = f' of category {category!r}' if self._task.by_category else ''
            raise ValueError(
                f'example {index} of task {self._task.name}: there are {left} other examples{of}, not '
                f'{self._count}; show fewer'
            )

    def _drawn(self, index: int) -> Iterator[int]:
        if not self._count:
            return
        example, name = self._examples[index], zlib.crc32(self._task.name.encode())
        eligible = self._of_category.get(example.category if self._task.by_category else '', [])
        own = _question(example)
        for drawn in np.random.default_rng([self._seed, name, index]).permutation(len(eligible)).tolist():
            i = eligible[drawn]
            if not (self._own and i == index) and self._keys[i] != own:
                yield i


def _question(example: Example) -> tuple[str, ...]:
    """What two examples have in common that must not be shown to each other: the contexts, or if there are none the rest."""
    contexts = tuple(' '.join(context.split()) for context in example.contexts)
    return contexts if any(contexts) else tuple(' '.join(text.split()) for text in example.continuations)


def _candidates(task: Task, example: Example) -> list[tuple[str, str]]:
    """(question + context + delimiter, continuation) of each."""
    before, after = task.delimiter[:1].isspace(), task.delimiter[-1:].isspace()
    bare = [text.strip() for text in example.continuations]
    keep = len(set(bare)) < len(set(example.continuations)) or not all(bare) or not after
    found = []
    for context, continuation in example.candidates:
        context = f'{task.question}{context.rstrip() if before else context}{task.delimiter}'
        found.append((context, _solution(task, example, continuation if keep else continuation.strip())))
    return found


def _solution(task: Task, example: Example, continuation: str) -> str:
    if task.kind == 'generation' and task.reasoning and example.reasoning:
        return f'{example.reasoning}{task.reasoning}{continuation}'
    return continuation


def _shot(task: Task, example: Example) -> str:
    context, continuation = _candidates(task, example)[example.gold]
    return context + continuation + task.joint
