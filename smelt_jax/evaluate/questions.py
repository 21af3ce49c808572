"""Requests as rows of documents and questions about them: what differs in its last token alone is read once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from smelt_jax.evaluate.filling import Filled
from smelt_jax.tasks.request import Request


class Asked(NamedTuple):
    """Rows of documents, and questions about them; no row has more questions than tokens.

    Attributes:
      tokens_BT, segment_ids_BT, positions_BT: int32, see `Batch`.
      at_BT: int32, of each question the place in its row after which a token is asked for; −1 for none.
      targets_BT: int32, that token.
    """

    tokens_BT: np.ndarray
    segment_ids_BT: np.ndarray
    positions_BT: np.ndarray
    at_BT: np.ndarray
    targets_BT: np.ndarray


class Document(NamedTuple):
    """Tokens that are read once for all requests that differ in their last token alone.

    Attributes:
      inputs: int32 [m], a request's tokens without the last.
      start: the first scored token.
      lasts: the last tokens asked for → their order; at most `start`, so that there are no more questions than inputs.
    """

    inputs: np.ndarray
    start: int
    lasts: dict[int, int]

    @property
    def shared(self) -> int:
        """Questions that all its requests ask: those of tokens before the last."""
        return len(self.inputs) - self.start

    @property
    def questions(self) -> int:
        """How many in all."""
        return self.shared + len(self.lasts)

    @property
    def at(self) -> np.ndarray:
        """Places of the questions."""
        end = len(self.inputs) - 1
        return np.concatenate([np.arange(self.start - 1, end), np.full(len(self.lasts), end)])

    @property
    def targets(self) -> np.ndarray:
        """What is asked for there."""
        return np.concatenate([self.inputs[self.start :], np.fromiter(self.lasts, np.int32)])


def documents_of(requests: Sequence[Request], vocab: int) -> tuple[list[Document], list[tuple[int, int]]]:
    """The documents to be read, and of each request: which one, and which of its last tokens."""
    documents: list[Document] = []
    where: list[tuple[int, int]] = []
    found: dict[tuple[int, bytes], int] = {}
    for index, request in enumerate(requests):
        tokens, start = np.asarray(request.tokens, np.int32), int(request.start)
        if not 1 <= start < len(tokens):
            raise ValueError(
                f'request {index}: {start=} of {len(tokens)} tokens; a span has a token, and one before it: '
                f'1 <= start < {len(tokens)}'
            )
        if tokens.min() < 0 or tokens.max() >= vocab:
            raise ValueError(
                f'request {index} has tokens from {tokens.min()} to {tokens.max()}; the model has {vocab}: '
                f'take the tokenizer of its pack'
            )
        last, key = int(tokens[-1]), (start, tokens[:-1].tobytes())
        at = found.get(key)
        if at is None or (last not in documents[at].lasts and len(documents[at].lasts) == start):
            at = found[key] = len(documents)
            documents.append(Document(tokens[:-1], start, {}))
        lasts = documents[at].lasts
        where.append((at, lasts.setdefault(last, len(lasts))))
    return documents, where


def asked_of(filled: Filled, documents: Sequence[Document], rows: int) -> Asked:
    """A batch of `rows` rows; those that are not filled are padding."""
    asked = Asked(*(np.full((rows, filled.length), value, np.int32) for value in (0, 0, 0, -1, 0)))
    for row, members in enumerate(filled.rows):
        begin = question = 0
        for number, index in enumerate(members, 1):
            document = documents[index]
            end, places = begin + len(document.inputs), document.at
            asked.tokens_BT[row, begin:end] = document.inputs
            asked.segment_ids_BT[row, begin:end] = number
            asked.positions_BT[row, begin:end] = np.arange(end - begin)
            asked.at_BT[row, question : question + len(places)] = begin + places
            asked.targets_BT[row, question : question + len(places)] = document.targets
            begin, question = end, question + len(places)
    return asked
