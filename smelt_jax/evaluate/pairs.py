"""Two checkpoints on the same examples: what the one scores above the other, with intervals, and who wins. No jax."""

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from smelt_jax.evaluate.outcomes import Outcomes
from smelt_jax.tasks.metrics import centered

REPLICATES = 1000
LEVEL = 0.95
ROUNDING = 1e-12  # of means in float64; no win


class Difference(NamedTuple):
    """Attributes:
    reference, other: what each scores.
    difference: other − reference.
    low, high: 95% of it, by a bootstrap over examples; of several tasks over each one's examples.
    """

    reference: float
    other: float
    difference: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


class Pair(NamedTuple):
    """A task, or a mean over tasks, of two checkpoints: centered accuracy (a fraction), and completion (nats per token)."""

    accuracy: Difference
    completion: Difference


def compared(
    reference: Mapping[str, Outcomes], other: Mapping[str, Outcomes], chance: Mapping[str, float], seed: int = 0
) -> tuple[dict[str, Pair], Pair]:
    """By task, and the mean over tasks.

    Replicate i draws the same examples for both checkpoints, since it is their difference that is asked for. What is said of a
    task depends on no other.

    Args:
      reference, other: task → its outcomes, of the same tasks and examples.
      chance: task → what guessing scores.
      seed: of the draws.

    Raises ValueError, naming the task, if a task or an example is missing from one of them.
    """
    if reference.keys() != other.keys():
        alone = sorted(reference.keys() ^ other.keys())
        raise ValueError(f'{", ".join(alone)}: evaluated for one of the two only')
    drawn: dict[str, np.ndarray] = {}
    for task in sorted(reference):
        ours, theirs = other[task], reference[task]
        if not np.array_equal(ours.tokens, theirs.tokens):
            raise ValueError(f'{task}: the two were not evaluated on the same examples; evaluate both with --again')
        rng = np.random.default_rng([seed, zlib.crc32(task.encode())])
        count = len(ours.tokens)
        picked = np.concatenate([np.arange(count)[None], rng.integers(0, count, (REPLICATES, count))])
        drawn[task] = np.stack([_scores(of, picked, chance[task]) for of in (theirs, ours)])
    pairs = {task: _pair(scores) for task, scores in drawn.items()}
    return pairs, _pair(np.mean(list(drawn.values()), axis=0))


def wins(pairs: Sequence[Pair]) -> tuple[int, int, int]:
    """(wins of the other in accuracy, ties, wins in completion) over pairs."""
    differences = [pair.accuracy.difference for pair in pairs]
    won = sum(difference > ROUNDING for difference in differences)
    ties = sum(abs(difference) <= ROUNDING for difference in differences)
    return won, ties, sum(pair.completion.difference < -ROUNDING for pair in pairs)


def _scores(of: Outcomes, picked: np.ndarray, chance: float) -> np.ndarray:
    """[2, 1 + REPLICATES]: centered accuracy and completion of each draw; the first is all examples, each once."""
    right = centered(of.right[picked].mean(1), chance)
    return np.stack([right, of.nats[picked].sum(1) / of.tokens[picked].sum(1)])


def _pair(scores: np.ndarray) -> Pair:
    """Of [2 checkpoints, 2 measures, 1 + REPLICATES]."""
    tail = (1 - LEVEL) / 2
    found = []
    for measure in range(2):
        reference, other = scores[0, measure], scores[1, measure]
        low, high = np.quantile((other - reference)[1:], [tail, 1 - tail])
        values = (reference[0], other[0], other[0] - reference[0], low, high)
        found.append(Difference(*map(float, values)))
    return Pair(*found)
