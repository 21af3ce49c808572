"""How much of a task's examples stands in a corpus, as runs of words.

A run is `n` words in lower case, white space not counted. Those of the tasks are held as 64-bit hashes; the corpus streams by,
so memory is bounded by the tasks. Two different runs share a hash once in 2^64 pairs: of a million runs against 10^11
words, one false find in 200 corpora.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from smelt_jax.tasks.example import Example

WORDS = 13
_BATCH = 1 << 18  # words that are looked up at once


class Overlap(NamedTuple):
    """Of one task.

    Attributes:
      examples: how many.
      short: of those, with fewer than n words: they have no run, and cannot be found.
      hit: examples with at least one run that stands in the corpus.
      runs: different ones, of all examples.
      found: of those, in the corpus.
    """

    examples: int
    short: int
    hit: int
    runs: int
    found: int

    @property
    def share(self) -> float:
        """Of the examples."""
        return self.hit / self.examples if self.examples else 0.0

    @property
    def runs_share(self) -> float:
        """Of the runs."""
        return self.found / self.runs if self.runs else 0.0


class Hit(NamedTuple):
    """An example with a run that stands in the corpus.

    Attributes:
      example: its number, from 0.
      text: its words, as they are compared.
      run: the first of its runs that was found.
    """

    example: int
    text: str
    run: str


def overlaps(
    examples: Mapping[str, Sequence[Example]], texts: Iterable[str | bytes], n: int = WORDS
) -> dict[str, Overlap]:
    """Task → its overlap with `texts`, each a document or a part of one: no run reaches over an end.

    An example's words are those of its gold context, its chain of thought, its gold continuation.
    """
    return {task: overlap for task, (overlap, _) in looked_up(examples, texts, n).items()}


def looked_up(
    examples: Mapping[str, Sequence[Example]], texts: Iterable[str | bytes], n: int = WORDS
) -> dict[str, tuple[Overlap, list[Hit]]]:
    """As `overlaps`, with the examples that were found."""
    sought = _Sought(n)
    runs_of = {task: [sought.add(_words(example)) for example in each] for task, each in examples.items()}
    sought.close()
    batch: list[str] = []
    for text in texts:
        batch += sought.known_words(text)
        if len(batch) > _BATCH:
            sought.look(batch)
            batch = []
    sought.look(batch)
    found = {}
    for task, each in runs_of.items():
        different = np.unique(np.concatenate([np.zeros(0, np.uint64), *each]))
        there = sought.found(different)
        first = {
            number: int(at[0]) for number, runs in enumerate(each) if len(at := np.flatnonzero(sought.found(runs)))
        }
        hits = [_hit(number, examples[task][number], start, n) for number, start in first.items()]
        short = sum(not len(runs) for runs in each)
        found[task] = Overlap(len(each), short, len(hits), len(different), int(there.sum())), hits
    return found


def _hit(number: int, example: Example, start: int, n: int) -> Hit:
    words = _words(example)
    return Hit(number, ' '.join(words), ' '.join(words[start : start + n]))


def _words(example: Example) -> list[str]:
    context, continuation = example.candidates[example.gold]
    return f'{context} {example.reasoning} {continuation}'.lower().split()


class _Sought:
    """Runs of words that are sought, and which of them were found."""

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f'{n=} is no number of words; give 1 or more')
        random = np.random.default_rng(n)
        self._n = n
        self._factors = random.integers(1 << 63, size=n, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._random = random
        self._of_word: dict[str, int] = {}
        self._values = np.zeros(0, np.uint64)  # a random number a word; word 0 is any that no example has
        self._runs: list[np.ndarray] = []
        self._sorted = np.zeros(0, np.uint64)
        self._seen = np.zeros(0, bool)

    def add(self, words: list[str]) -> np.ndarray:
        """The hashes of the runs of an example, which are sought from now on."""
        ids = np.array([self._of_word.setdefault(word, len(self._of_word) + 1) for word in words], np.int64)
        runs = self._hashes(ids)
        self._runs.append(runs)
        return runs

    def close(self) -> None:
        """No more are added."""
        self._sorted = np.unique(np.concatenate([np.zeros(0, np.uint64), *self._runs]))
        self._seen = np.zeros(len(self._sorted), bool)
        self._runs = []

    def known_words(self, text: str | bytes) -> list[str]:
        """The words of a text, and an end that no run reaches over."""
        plain = text.decode('utf-8', errors='replace') if isinstance(text, bytes) else text
        return [*plain.lower().split(), '']

    def look(self, words: list[str]) -> None:
        """Marks what is found."""
        ids = np.fromiter((self._of_word.get(word, 0) for word in words), np.int64, len(words))
        if len(ids) < self._n or not len(self._sorted):
            return
        unknown = np.concatenate([[0], np.cumsum(ids == 0)])
        starts = np.flatnonzero(unknown[self._n :] == unknown[: -self._n])
        hashes = self._hash_at(ids, starts)
        places = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        self._seen[places[self._sorted[places] == hashes]] = True

    def found(self, runs: np.ndarray) -> np.ndarray:
        """Whether each was."""
        return self._seen[np.searchsorted(self._sorted, runs)] if len(runs) else np.zeros(0, bool)

    def _hashes(self, ids: np.ndarray) -> np.ndarray:
        return self._hash_at(ids, np.arange(max(0, len(ids) - self._n + 1)))

    def _hash_at(self, ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
        if len(self._values) <= len(self._of_word):
            more = max(1 << 16, len(self._of_word))
            self._values = np.concatenate([self._values, self._random.integers(1 << 63, size=more, dtype=np.uint64)])
        hashes = np.zeros(len(starts), np.uint64)
        for place, factor in enumerate(self._factors):
            hashes += self._values[ids[starts + place]] * factor  # modulo 2^64
        return hashes
