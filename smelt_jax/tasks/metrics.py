"""What scores say: of an example, of a task, of the CORE tasks together."""

import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from smelt_jax.tasks.example import Example
from smelt_jax.tasks.prompts import Prompt
from smelt_jax.tasks.request import Scored
from smelt_jax.tasks.task import Task

_QUOTES = '‘’´`“”'
_PUNCTUATION = str.maketrans('', '', string.punctuation + _QUOTES)
_ARTICLE = re.compile(r'\b(?:a|an|the)\b')


class Outcome(NamedTuple):
    """Of one example.

    Attributes:
      right: 1 or 0; None if it takes generated text and there is none.
      completion_sum: cross-entropy of the gold continuation's tokens, nats, summed.
      completion_tokens: how many those are.
    """

    right: float | None
    completion_sum: float
    completion_tokens: int

    @property
    def completion(self) -> float:
        """Nats a token."""
        return self.completion_sum / self.completion_tokens


class Summary(NamedTuple):
    """Of the examples of a task.

    Attributes:
      examples: how many.
      right: how many are; None, as all that follows from it, if that was not asked.
      accuracy: share that is right.
      error: standard error of the accuracy, √(p(1 − p)/(n − 1)); None of one example.
      centered: (accuracy − chance) / (1 − chance).
      completion: nats a token of the gold continuations: the sum over all examples by the number of tokens of all.
      completion_sum, completion_tokens: those two.
      by_category: the same of each category; empty if there are none.
    """

    examples: int
    right: float | None
    accuracy: float | None
    error: float | None
    centered: float | None
    completion: float
    completion_sum: float
    completion_tokens: int
    by_category: dict[str, 'Summary']


class Core(NamedTuple):
    """Attributes:
    value: mean of the centered accuracies that there are; None if there is none.
    tasks: how many those are.
    of: how many were asked for. The value is that of CORE only if both are all of them.
    """

    value: float | None
    tasks: int
    of: int


def outcome(
    task: Task, example: Example, prompt: Prompt, scored: Sequence[Scored], generated: str | None = None
) -> Outcome:
    """Of the scores of a prompt's requests, in their order.

    Multiple choice and schema: right if the gold candidate scores best; of equals the first does. Language modelling: right if
    each token is the most probable one. Generation: right if `generated` is an answer; None without it.
    """
    if len(scored) != len(prompt.requests):
        raise ValueError(
            f'{len(scored)} scores for the {len(prompt.requests)} requests of an example of {task.name}; score each'
        )
    gold = scored[example.gold]
    right: float | None
    if task.kind == 'generation':
        right = None if generated is None else float(is_answer(task, example, generated))
    elif task.kind == 'language_modeling':
        right = float(gold.greedy)
    else:
        how = 'raw' if task.kind == 'schema' else task.normalise
        texts = [request.text for request in prompt.requests]
        right = float(best(scored, texts, how) == example.gold)
    return Outcome(right, -gold.log_prob, gold.tokens)


def best(scored: Sequence[Scored], texts: Sequence[str], normalise: str) -> int:
    """The candidate of the highest log-probability: raw, or by its number of characters, bytes of UTF-8, or tokens."""
    if normalise == 'raw':
        lengths = [1] * len(scored)
    elif normalise == 'character':
        lengths = [len(text) for text in texts]
    elif normalise == 'byte':
        lengths = [len(text.encode()) for text in texts]
    elif normalise == 'token':
        lengths = [each.tokens for each in scored]
    else:
        raise ValueError(f'{normalise=} is none of raw, character, byte, token')
    values = [each.log_prob / length for each, length in zip(scored, lengths, strict=True)]
    if any(math.isnan(value) for value in values):
        raise ValueError(f'a log-probability of {texts[0]!r:.60}… and others is no number; the model has broken down')
    return values.index(max(values))


def is_answer(task: Task, example: Example, generated: str) -> bool:
    """Whether the answer in a generated text equals one that counts as right, both normalised."""
    said = normalised(answer_in(task, generated))
    return bool(said) and any(said == normalised(answer) for answer in example.answers)


def answer_in(task: Task, generated: str) -> str:
    """The answer: what is generated up to the next example, of that what follows the last reasoning delimiter, of that what
    stands before the task's joint: the first line."""
    text, delimiter = generated.lstrip(), task.reasoning.strip()
    if task.question:
        text = text.partition(task.joint + task.question)[0]
    if delimiter and delimiter in text:
        text = text.rpartition(delimiter)[2].lstrip()
    elif delimiter:
        return text.strip()  # a chain of thought that never ends in an answer
    return text.partition(task.joint)[0].strip()


def normalised(text: str) -> str:
    """Lower case, without punctuation and articles, white space as single spaces. The sign of a number and its point stay, and
    so does what would leave nothing."""
    plain = text.lower()
    bare = plain.translate(str.maketrans('\0\1', '  '))
    bare = re.sub(r'(?<=\d)\.(?=\d)', '\1', re.sub(r'(?<![\w)])-(?=\.?\d)', '\0', bare))
    bare = bare.translate(_PUNCTUATION).replace('\0', '-').replace('\1', '.')
    shortened = (' '.join(each.split()) for each in (_ARTICLE.sub(' ', bare), bare, plain))
    return next(filter(None, shortened), '')


def centered(accuracy: float, chance: float) -> float:
    """0 of what guessing scores, 1 if all is right: (accuracy − chance) / (1 − chance)."""
    if not 0 <= chance < 1:
        raise ValueError(f'{chance=} is not in [0, 1); it is a fraction, not per cent')
    return (accuracy - chance) / (1 - chance)


def summary(task: Task, examples: Sequence[Example], outcomes: Sequence[Outcome]) -> Summary:
    """Over the examples, and over those of each category."""
    if len(outcomes) != len(examples) or not examples:
        raise ValueError(f'{len(outcomes)} outcomes of {len(examples)} examples of {task.name}; one each, one at least')
    of_category: dict[str, list[Outcome]] = {}
    for example, each in zip(examples, outcomes, strict=True):
        of_category.setdefault(example.category, []).append(each)
    named = {} if set(of_category) == {''} else of_category
    return _summary(task, outcomes)._replace(
        by_category={name: _summary(task, each) for name, each in sorted(named.items())}
    )


def core(summaries: Mapping[str, Summary], tasks: Sequence[Task]) -> Core:
    """The mean centered accuracy of `tasks`, each of the same weight, of those whose summary is there."""
    found = [summaries[task.name].centered for task in tasks if task.name in summaries]
    values = [value for value in found if value is not None]
    return Core(math.fsum(values) / len(values) if values else None, len(values), len(tasks))


def _summary(task: Task, outcomes: Sequence[Outcome]) -> Summary:
    count = len(outcomes)
    rights = [each.right for each in outcomes if each.right is not None]
    if rights and len(rights) < count:
        raise ValueError(
            f'{count - len(rights)} of {count} examples of {task.name} have no text; generate for all or none'
        )
    nats, tokens = math.fsum(each.completion_sum for each in outcomes), sum(each.completion_tokens for each in outcomes)
    right = math.fsum(rights) if rights else None
    accuracy = None if right is None else right / count
    return Summary(
        examples=count,
        right=right,
        accuracy=accuracy,
        error=None if accuracy is None or count == 1 else math.sqrt(accuracy * (1 - accuracy) / (count - 1)),
        centered=None if accuracy is None else centered(accuracy, task.chance),
        completion=nats / tokens,
        completion_sum=nats,
        completion_tokens=tokens,
        by_category={},
    )
