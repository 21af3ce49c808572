"""Tokenizing over processes. This file alone is what a worker imports, so that it starts fast."""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from smelt_jax.data import records, tokenizer
from smelt_jax.data.spill import Part

_state: tuple[tokenizer.Tokenizer, Mapping[int, int]] | None = None  # of a worker process


class Tokens(NamedTuple):
    """The documents of a part, in order.

    Attributes:
      tokens: of all documents, each with its EOS, one after the other.
      lengths, sources, heldout, text_bytes: [documents]; lengths count the EOS.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    sources: np.ndarray
    heldout: np.ndarray
    text_bytes: np.ndarray


def tokenize(part: Part, using: tokenizer.Tokenizer, limits: Mapping[int, int]) -> Tokens:
    """Encodes the documents of `part` that are within `limits` (Part.load)."""
    columns: list[tuple[int, int, bool, int]] = []
    pieces: list[np.ndarray] = []
    dtype = records.token_dtype(using.vocab)
    for item in part.load(limits):
        pieces += [using.encode(item.text.decode('utf-8')).astype(dtype), np.array([using.eos], dtype)]
        columns.append((len(pieces[-2]) + 1, item.source, item.heldout, len(item.text)))
    lengths, sources, heldout, text_bytes = np.array(columns, np.int64).reshape(-1, 4).T
    return Tokens(np.concatenate(pieces or [np.array([], dtype)]), lengths, sources, heldout.astype(bool), text_bytes)


def tokenize_all(
    parts: Sequence[Part], spec: str, folder: epath.Path, limits: Mapping[int, int], workers: int
) -> Generator[Tokens, None, None]:
    """`tokenize` for each part, in order, over `workers` processes; at most 2 · workers parts are held.

    Args:
      parts: of a spill.
      spec, folder: what tokenizer.load needs.
      limits: as for `tokenize`.
      workers: processes; with 1, or one part, everything happens in this one.

    Raises:
      ValueError: a worker died, as they do when memory runs out.
    """
    workers = min(workers, len(parts))
    if workers <= 1:
        using = tokenizer.load(spec, folder)
        yield from (tokenize(part, using, limits) for part in parts)
        return
    # spawn: a fork would copy locks that other threads (JAX's, the tokenizer's) hold.
    context = multiprocessing.get_context('spawn')
    pool = concurrent.futures.ProcessPoolExecutor(workers, context, _start, (spec, str(folder), limits))
    waiting: deque[concurrent.futures.Future[Tokens]] = deque()
    remaining = iter(parts)
    try:
        while True:
            while len(waiting) < 2 * workers and (part := next(remaining, None)) is not None:
                waiting.append(pool.submit(_work, part))
            if not waiting:
                return
            yield waiting.popleft().result()
    except concurrent.futures.BrokenExecutor as error:
        raise ValueError(
            f'a tokenizing process died, perhaps for lack of memory; try workers={workers // 2}'
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(spec: str, folder: str, limits: Mapping[int, int]) -> None:
    global _state
    os.environ['TOKENIZERS_PARALLELISM'] = 'false'  # processes are the parallelism here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends the pool
    # Killed, the parent cannot stop its workers, and they would wait for it for ever.
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _state = (tokenizer.load(spec, epath.Path(folder)), limits)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(part: Part) -> Tokens:
    assert _state is not None, 'the pool runs _start first'
    return tokenize(part, *_state)
