"""Log-probabilities the slow and obvious way."""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from models import jit

from smelt_jax.model.config import ModelConfig
from smelt_jax.model.transformer import Transformer
from smelt_jax.tasks.request import Request, Scored


@functools.cache
def logits_function(model: ModelConfig, visits: int) -> Callable:
    """All logits of one document, by a matrix product over the whole vocabulary."""

    def logits(params: dict, tokens: jax.Array) -> jax.Array:
        ones, positions = np.ones((1, len(tokens)), np.int32), np.arange(len(tokens), dtype=np.int32)[None]
        output = Transformer(model).apply({'params': params}, tokens[None], ones, positions, visits=visits)
        return output.hidden_BTD[0].astype(np.float32) @ params['head']

    return jit(logits)


def log_probs(model: ModelConfig, params: dict, tokens: np.ndarray, visits: int) -> np.ndarray:
    """float64 [n, V]: of what follows each token."""
    logits = np.asarray(logits_function(model, visits)(params, tokens), np.float64)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def slow(model: ModelConfig, params: dict, requests: Sequence[Request], visits: int) -> list[Scored]:
    """One request at a time, token by token."""
    scored = []
    for request in requests:
        found = log_probs(model, params, request.tokens, visits)
        span = [(found[at - 1], request.tokens[at]) for at in range(request.start, len(request.tokens))]
        total = math.fsum(row[token] for row, token in span)
        scored.append(Scored(total, len(span), all(np.argmax(row) == token for row, token in span)))
    return scored
