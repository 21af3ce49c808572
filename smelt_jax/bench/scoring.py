"""Scoring of requests as tasks ask them: tokens/s as a ratio to a plain forward pass over full rows, in the same process."""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from smelt_jax.batch import Batch
from smelt_jax.config import RunConfig
from smelt_jax.evaluate.heldout import scorer
from smelt_jax.evaluate.questions import documents_of
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.parallel.devices import one_device
from smelt_jax.tasks.request import Request
from smelt_jax.train.state import init_params

BATCHES = 4  # of requests that are scored, about
CHOICES = 4  # of a question
SPAN_TOKENS = 8  # of a choice on average, from 2 on: requests that differ in one token alone would be run once
SPREAD = 0.7  # standard deviation of the logarithm of a question's length; its median is a quarter of the longest


def measure(run: RunConfig, repeats: int = 10) -> dict[str, Any]:
    """Times scoring and the plain pass in turns, on one device: a model as initialised, made-up requests.

    The plain pass is that of held-out loss: rows of `pack.row_tokens`, each one document, no padding, all of it scored.

    Returns:
      `tokens` that the requests' documents have (n − 1 of each request), `requests`, `asked_share` of the tokens that are
      scored, `padding_share` of the batches' tokens, `programs` compiled and the `compile_seconds`; `seconds`,
      `cpu_seconds`, `tokens_per_second` of scoring and `plain_tokens_per_second` (medians); `ratio`, the median of each
      repeat's, and `cpu_ratio`, that of CPU seconds a token, which other load changes less; `outside_share`, of
      scoring's time what its batches alone do not take, and `outside_cpu_share`, that of CPU seconds; `prepare_share`, CPU
      seconds that making the batches takes, of all; `load_average`.
    """
    params = jax.jit(lambda: init_params(run.model, run.seed))()
    scoring = Scorer(run.model, params, one_device())
    room, rng = run.pack.row_tokens, np.random.default_rng(run.seed)
    requests = made_up_requests(run.model.vocab, room, BATCHES * scoring.batch_tokens, rng)
    documents, _ = documents_of(requests, run.model.vocab)
    batches = list(scoring.fill(documents))
    tokens = sum(len(document.inputs) for document in documents)
    padded = sum(scoring.rows_of(batch.length) * batch.length for batch in batches)
    given = [scoring.given(batch, documents) for batch in batches]
    plain_pass = scorer(run.model, scoring.visits, run.loss.chunk_tokens, scoring.devices)
    full = full_batch(run.model.vocab, max(1, scoring.batch_tokens // room), room, rng)
    passes = -(-tokens // full.tokens_BT.size)

    def plain() -> None:
        for _ in range(passes):
            np.asarray(plain_pass(params, full))

    def device() -> None:
        for asked in given:
            jax.block_until_ready(scoring.ask(params, asked))

    def score() -> None:
        scoring.score(requests)

    def prepare() -> None:
        found, _ = documents_of(requests, run.model.vocab)
        for batch in scoring.fill(found):
            scoring.given(batch, found)

    before = time.perf_counter()
    device()
    compile_seconds = time.perf_counter() - before
    plain()
    turns = [[timed(call) for call in (plain, score, device, prepare)] for _ in range(repeats)]
    plain_tokens = passes * full.tokens_BT.size
    seconds, cpu_seconds = (statistics.median(turn[1][i] for turn in turns) for i in (0, 1))

    def ratio(i: int) -> float:
        return statistics.median(plain[i] / plain_tokens / (score[i] / tokens) for plain, score, *_ in turns)

    def outside(i: int) -> float:
        return 1 - statistics.median(device[i] / score[i] for _, score, device, _ in turns)

    return {
        'tokens': tokens,
        'requests': len(requests),
        'asked_share': sum(document.questions for document in documents) / tokens,
        'padding_share': 1 - tokens / padded,
        'programs': len({batch.length for batch in batches}),
        'compile_seconds': compile_seconds,
        'seconds': seconds,
        'cpu_seconds': cpu_seconds,
        'tokens_per_second': tokens / seconds,
        'plain_tokens_per_second': plain_tokens / statistics.median(plain[0] for plain, *_ in turns),
        'ratio': ratio(0),
        'cpu_ratio': ratio(1),
        'outside_share': outside(0),
        'outside_cpu_share': outside(1),
        'prepare_share': statistics.median(prepare[1] / score[1] for _, score, _, prepare in turns),
        'load_average': os.getloadavg()[0],
    }


def made_up_requests(vocab: int, room: int, tokens: int, rng: np.random.Generator) -> list[Request]:
    """Questions of `CHOICES` choices each, of random tokens, until they have so many. `room`: of the longest request.

    A question's length is log-normal, its median a quarter of the room; a choice's is 2 or more, geometric.
    """
    requests: list[Request] = []
    while sum(len(request.tokens) for request in requests[::CHOICES]) * CHOICES < tokens:
        context = rng.integers(0, vocab, max(1, int(room / 4 * rng.lognormal(0, SPREAD))), np.int32)
        for _ in range(CHOICES):
            span = rng.integers(0, vocab, 1 + rng.geometric(1 / (SPAN_TOKENS - 1)), np.int32)[: room - 1]
            start = min(len(context), room - len(span))
            requests.append(Request(np.concatenate([context[-start:], span]), start, ''))
    return requests


def full_batch(vocab: int, rows: int, length: int, rng: np.random.Generator) -> Batch:
    """Rows of one document each, of random tokens."""
    tokens, targets = rng.integers(0, vocab, (2, rows, length), np.int32)
    positions = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
    return Batch(tokens, targets, np.ones_like(tokens), positions, np.ones((rows, length), np.float32))


def timed(call: Callable[[], None]) -> tuple[float, float]:
    """(seconds, CPU seconds) of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu
