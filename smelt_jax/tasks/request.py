"""What a model is asked: tokens, of which the last ones are scored."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np


class Request(NamedTuple):
    """Attributes:
    tokens: int32 [n], n ≥ 2: context and continuation, one document from its beginning.
    start: first scored token, from 1 to n − 1.
    text: the continuation, whose characters and bytes a score may be divided by.
    """

    tokens: np.ndarray
    start: int
    text: str


class Scored(NamedTuple):
    """Attributes:
    log_prob: of tokens[start:], nats, summed.
    tokens: how many those are.
    greedy: whether each of them is the most probable one at its place.
    """

    log_prob: float
    tokens: int
    greedy: bool


class Scores(Protocol):
    """Whatever can say how probable a continuation is."""

    def score(self, requests: Sequence[Request]) -> list[Scored]:
        """In the order of the requests."""
