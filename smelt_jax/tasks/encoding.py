"""Where a continuation begins among the tokens of a prompt, and prompts encoded no slower than what is new in them.

The split rule. The context's trailing white space goes to the continuation; the tokens are those of the whole text; the span
that is scored begins at the first token at which they and the tokens of the context alone differ. So no token straddles in
silence: one that begins in the context and ends in the continuation is scored. A request whose first token is in the span
begins with EOS, for there is nothing to predict it from; so does one without context. Any other has no special token, as
packed documents have none in front.
"""

import re
from typing import NamedTuple

import numpy as np

from smelt_jax.data.tokenizer import Tokenizer, cuts_at_lines

# Where `cuts_at_lines` says that texts may be cut.
_LINES = re.compile('(?<=[!-~]\n)(?=[!-~])')
_KEPT = 100_000


class Split(NamedTuple):
    """Attributes:
    tokens: int32 [n], n ≥ 2.
    start: first token of the span, from 1 to n − 1.
    """

    tokens: np.ndarray
    start: int


class Encoder:
    """A tokenizer that remembers lines, or whole texts where a tokenizer may not be asked line by line. Its tokens are those of
    `tokenizer.encode`, always."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._lines = cuts_at_lines(tokenizer)
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
            self._head = (bare, self.encode(''.join(before)) if before else _none(), last)
        _, head, last = self._head
        # What is added to the last line makes no cut before it: the two parts of `bare` stay what they are.
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
        return _LINES.split(text) if self._lines else [text]

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
