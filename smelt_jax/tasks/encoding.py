"""Where a continuation begins among the tokens of a prompt, and prompts encoded no slower than what is new in them.

The split rule. The context's trailing white space goes to the continuation; the tokens are those of the whole text; the span
that is scored begins at the first token at which they and the tokens of the context alone differ. So no token straddles in
silence: one that begins in the context and ends in the continuation is scored. A request whose first token is in the span
begins with EOS, for there is nothing to predict it from; so does one without context. Any other has no special token, as
packed documents have none in front.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from smelt_jax.data.tokenizer import Tokenizer, may_cut

# Places where a tokenizer that `may_cut` can be asked for one side and then the other, both among CUTS.
_LINE = re.compile('\n(?<=[!-~]\n)(?=[!-~])')
_LAST_WORD = re.compile('.*[A-Za-z](?= [A-Za-z])', re.DOTALL)
_KEPT = 100_000


class Split(NamedTuple):
    """Attributes:
    tokens: int32 [n], n ≥ 2.
    start: first token of the span, from 1 to n − 1.
    """

    tokens: np.ndarray
    start: int


def shortened(splits: Sequence[Split], room: int) -> tuple[list[Split], int]:
    """Splits of which none is longer than `room`, and how many tokens too long the longest was: so many are cut from the left
    of each, but for the last one before its span. ValueError if a span, with one token before it, has no room."""
    cut = max(0, max(len(split.tokens) for split in splits) - room)
    found = []
    for tokens, start in splits:
        less = min(cut, start - 1)
        if len(tokens) - less > room:
            raise ValueError(
                f'a continuation of {len(tokens) - start} tokens, with one before it, has no room in {room}; '
                f'give more room, or leave the task out'
            )
        found.append(Split(tokens[less:], start - less))
    return found, cut


class Encoder:
    """A tokenizer that remembers lines, or whole texts where it `may_cut` none. The tokens are those of `tokenizer.encode`."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._cuts = may_cut(tokenizer)
        self._kept: dict[str, np.ndarray] = {}
        self._head: tuple[str, np.ndarray, str] = ('', _none(), '')

    def encode(self, text: str) -> np.ndarray:
        """Tokens, int32. Not to be written to."""
        pieces = self._pieces(text)
        return self._piece(pieces[0]) if len(pieces) == 1 else np.concatenate([self._piece(piece) for piece in pieces])

    def split(self, context: str, continuation: str) -> Split:
        """The tokens of both, and where those of the continuation begin. ValueError if the two hold nothing to score."""
        bare = context.rstrip()
        if bare != self._head[0]:
            *before, last = self._pieces(bare)
            if self._cuts and (words := _LAST_WORD.match(last)):
                before, last = [*before, words.group()], last[words.end() :]
            self._head = (bare, np.concatenate([_none(), *map(self._piece, before)]), last)
        _, head, last = self._head
        # Whatever follows `bare`, it is cut there.
        tail = self.encode(last + context[len(bare) :] + continuation)
        start = len(head) + _differ(self._piece(last), tail)
        tokens = np.concatenate([head, tail])
        if not len(tokens):
            raise ValueError(f'{continuation!r} has no tokens; leave it out')
        start = min(start, len(tokens) - 1)  # a tokenizer that drops white space may see nothing new
        if start:
            return Split(tokens, start)
        return Split(np.concatenate([[np.int32(self._tokenizer.eos)], tokens]).astype(np.int32), 1)

    def opening(self, context: str) -> np.ndarray:
        """Tokens to go on from: those of the context without its trailing white space; EOS if there are none."""
        tokens = self.encode(context.rstrip())
        return tokens if len(tokens) else np.array([self._tokenizer.eos], np.int32)

    def _pieces(self, text: str) -> list[str]:
        if not self._cuts:
            return [text]
        ends = [0, *(found.end() for found in _LINE.finditer(text)), len(text)]
        return [text[a:b] for a, b in itertools.pairwise(ends)]

    def _piece(self, text: str) -> np.ndarray:
        found = self._kept.get(text)
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            found = self._kept[text] = self._tokenizer.encode(text) if text else _none()
        return found


def _none() -> np.ndarray:
    return np.zeros(0, np.int32)


def _differ(a: np.ndarray, b: np.ndarray) -> int:
    """The first place at which they differ, or one ends."""
    count = min(len(a), len(b))
    unequal = np.flatnonzero(a[:count] != b[:count])
    return int(unequal[0]) if len(unequal) else count
