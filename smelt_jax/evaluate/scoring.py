"""How probable a model finds continuations: requests in, log-probabilities out, over a mesh and any number of processes."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from smelt_jax.evaluate.filling import Filled, fill
from smelt_jax.evaluate.questions import Asked, Document, asked_of, documents_of
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.transformer import Transformer
from smelt_jax.parallel.devices import BATCH, Devices
from smelt_jax.tasks.request import Request, Scored
from smelt_jax.train.loss import answers

AHEAD = 2  # batches that devices have been given when the oldest one's answers are read


class Scorer:
    """Scores requests. What is said of one depends on no other, up to the order of float32 sums: no choice of an expert is
    dropped, and documents that share a row do not see each other.

    One program is compiled a shape of batch, at most one a rung (`filling.rung`) that requests are long; checkpoints and
    scorers of one model share them. Requests that are the same but for their last token are run once, as the choices of a
    question are that have one token each. A longer beginning that requests share is run for each.
    """

    def __init__(
        self,
        model: ModelConfig,
        params: dict,
        devices: Devices,
        visits: int | None = None,
        batch_tokens: int = 8192,
        row_tokens: int = 1024,
        chunk_tokens: int = 256,
    ) -> None:
        """
        Args:
          model, params: as loaded for `devices`.
          devices: that share each batch. `mesh.buffer` is taken as 0.
          visits: of the loop; None for the config's.
          batch_tokens: of a batch on each device; a longer request has a batch with a row for each device.
          row_tokens: of a row, but for longer requests (`filling.fill`).
          chunk_tokens: scored tokens whose logits exist at one time on each device.
        """
        self.model, self.params = model, params
        self.visits = model.loop.visits if visits is None else visits
        self.devices = dataclasses.replace(devices, config=dataclasses.replace(devices.config, buffer=0.0))
        self.devices.check(model)
        self.batch_tokens, self.row_tokens = batch_tokens, row_tokens
        self.ask = asker(model, self.visits, chunk_tokens, self.devices)

    def score(self, requests: Sequence[Request], progress: Callable[[int, int], None] | None = None) -> list[Scored]:
        """In the order of the requests. Every process gives the same ones, and gets all of them.

        Args:
          progress: is told after every batch how many requests are scored, of how many.

        Raises:
          ValueError: a span that is empty or has nothing before it, a token that the model does not have, a log-probability
            that is not finite. The line names the request.
        """
        documents, where = documents_of(requests, self.model.vocab)
        askers: list[list[int]] = [[] for _ in documents]
        for index, (document, _) in enumerate(where):
            askers[document].append(index)
        scored: dict[int, Scored] = {}
        for answers_of_batch in self._answers(documents):
            for document, nats, best in answers_of_batch:
                shared = documents[document].shared
                before, all_best = nats[:shared].sum(), bool(best[:shared].all())
                for index in askers[document]:
                    last = shared + where[index][1]
                    log_prob = -float(before + nats[last])
                    if not np.isfinite(log_prob):
                        raise ValueError(
                            f'request {index}: its log-probability at visits={self.visits} is {log_prob}; '
                            f'the checkpoint may be damaged'
                        )
                    scored[index] = Scored(log_prob, shared + 1, all_best and bool(best[last]))
            if progress:
                progress(len(scored), len(requests))
        return [scored[index] for index in range(len(requests))]

    def rows_of(self, length: int) -> int:
        """Rows of a batch, for all devices."""
        return max(1, self.batch_tokens // length) * self.devices.count

    def fill(self, documents: Sequence[Document]) -> Iterator[Filled]:
        """The batches that documents make."""
        return fill([len(document.inputs) for document in documents], self.row_tokens, self.rows_of)

    def given(self, filled: Filled, documents: Sequence[Document]) -> Asked:
        """A batch as `ask` takes it."""
        rows = self.rows_of(filled.length)
        mine = self.devices.local_rows(rows)
        asked = asked_of(filled, documents, rows)
        return self.devices.batch(Asked(*(array[mine] for array in asked)), rows)

    def _answers(self, documents: Sequence[Document]) -> Iterator[list['Told']]:
        """What is found out about the documents, batch by batch."""
        under_way: collections.deque[tuple[Filled, Any]] = collections.deque()
        for filled in self.fill(documents):
            under_way.append((filled, self.ask(self.params, self.given(filled, documents))))
            if len(under_way) == AHEAD:
                yield _told(documents, *under_way.popleft())
        for filled, answer in under_way:
            yield _told(documents, filled, answer)


class Told(NamedTuple):
    """Attributes:
    document: its index.
    nats: float64, of its questions.
    best: whether each target is the most probable token.
    """

    document: int
    nats: np.ndarray
    best: np.ndarray


def _told(documents: Sequence[Document], filled: Filled, answer: tuple[jax.Array, jax.Array]) -> list[Told]:
    """Waits for a batch's answers, and parts them by document."""
    nats_BT, best_BT = np.asarray(answer[0], np.float64), np.asarray(answer[1])
    told = []
    for row, members in enumerate(filled.rows):
        begin = 0
        for index in members:
            end = begin + documents[index].questions
            told.append(Told(index, nats_BT[row, begin:end], best_BT[row, begin:end]))
            begin = end
    return told


@functools.cache
def asker(model: ModelConfig, visits: int, chunk: int, devices: Devices) -> Callable:
    """The compiled function (params, Asked) → (nats_BT float32, best_BT bool) of every question, on every device."""
    transformer = Transformer(model, devices.share(model))

    def answer(params: dict, asked: Asked) -> tuple[jax.Array, jax.Array]:
        params = transformer.share.outer(params)
        output = transformer.apply(
            {'params': params}, asked.tokens_BT, asked.segment_ids_BT, asked.positions_BT, visits=visits
        )
        (rows, length), width = asked.at_BT.shape, output.hidden_BTD.shape[-1]
        at_BT = jnp.where(jnp.less(asked.at_BT, 0), -1, asked.at_BT + length * jnp.arange(rows)[:, None])
        found = answers(
            output.hidden_BTD.reshape(-1, width), params['head'], at_BT.reshape(-1), jnp.ravel(asked.targets_BT), chunk
        )
        nats_BT, best_BT = (array.reshape(rows, length) for array in found)
        return nats_BT, best_BT

    def answered(params: dict, asked: Asked) -> tuple[jax.Array, jax.Array]:
        each = devices.each(answer, (devices.specs(params), BATCH), BATCH)
        return devices.everywhere(each(params, asked))

    return jax.jit(answered)
