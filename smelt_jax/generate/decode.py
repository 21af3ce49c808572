"""Prompts in, new tokens out: batches of unequal prompts, read by pieces and continued with the KV cache."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from smelt_jax.data.tokenizer import Tokenizer
from smelt_jax.generate.programs import NOTHING, Programs, Rows, programs
from smelt_jax.generate.sampling import NOT_FINITE, Sampling
from smelt_jax.generate.text import Until
from smelt_jax.model.cache import Cache
from smelt_jax.model.config import ModelConfig
from smelt_jax.parallel.devices import Devices

# (index of the prompt, its newest tokens, why it has ended: '' | 'eos' | 'stop' | 'length')
OnToken = Callable[[int, np.ndarray, str], None]
# Positions of a cache, and tokens of a piece: below these another program costs more than the room.
SMALLEST, SHORTEST = 64, 32


def generate(
    params: dict,
    model: ModelConfig,
    devices: Devices,
    prompts: Sequence[np.ndarray],
    settings: Sampling,
    visits: int,
    eos: int,
    on_token: OnToken | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_rows: int = 64,
) -> list[np.ndarray]:
    """The new tokens of each prompt, int32, in the order of the prompts.

    A row ends with EOS or one of `settings.stop_tokens`, which are not given back; with the token that completes one of
    `settings.stops`, which is (`text.before` cuts the text); or after `settings.new_tokens`. Rows that have ended are not
    computed into others. What a row gets does not depend on the batch around it, up to the rounding of sums. Nothing is
    dropped between devices: `mesh.buffer` is taken as 0.

    Args:
      params: of `model`, where `devices` have them.
      prompts: int32, of at least one token each.
      visits: of the loop: any number, whatever the model was trained with.
      eos: the id that ends a document.
      on_token: called at least once for each prompt while it goes on, and once when it has ended.
      tokenizer: needed for `settings.stops`; with one, ids that it does not have are not picked.
      batch_rows: prompts that are continued at a time, at most.

    Raises:
      ValueError: a prompt is empty or has ids that the model lacks; stop texts without a tokenizer; the model cannot be run at
        these visits; its logits are not finite.
    """
    prompts = [np.asarray(prompt, np.int32) for prompt in prompts]
    vocab = model.vocab if tokenizer is None else min(model.vocab, tokenizer.vocab)
    _check(model, prompts, settings, visits, tokenizer, batch_rows)
    devices = dataclasses.replace(devices, config=dataclasses.replace(devices.config, buffer=0.0))
    devices.check(model)
    compiled = programs(model, visits, devices, vocab, settings.greedy, settings.narrow)
    params = compiled.ready(params)
    found: list[np.ndarray] = [np.zeros(0, np.int32)] * len(prompts)
    for indices in batches([len(prompt) for prompt in prompts], settings.chunk, batch_rows):
        rows = [Row(index, prompts[index], settings, eos, tokenizer) for index in indices]
        _continue(params, compiled, devices, rows, settings, eos, on_token or (lambda *_: None))
        for row in rows:
            found[row.index] = np.array(row.tokens, np.int32)
    return found


class Row:
    """A prompt and its continuation, on the host.

    Attributes:
      index: in the list of prompts.
      prompt, tokens: those that are given, and the new ones.
      end: why it has ended; '' while it has not.
    """

    def __init__(
        self, index: int, prompt: np.ndarray, settings: Sampling, eos: int, tokenizer: Tokenizer | None
    ) -> None:
        self.index, self.prompt = index, prompt
        self.tokens: list[int] = []
        self.end = ''
        self._settings, self._eos, self._tokenizer = settings, eos, tokenizer
        self._text = Until(settings.stops) if settings.stops else None

    def add(self, new_I: np.ndarray) -> np.ndarray:
        """Takes the tokens of a stretch. Those that are the row's."""
        before = len(self.tokens)
        for token in new_I.tolist():
            if self.end or token == NOTHING:
                break
            if token == NOT_FINITE:
                raise ValueError(
                    f'the logits of prompt {self.index + 1} are not finite after {len(self.tokens)} new tokens; '
                    f'try another checkpoint, or fewer visits'
                )
            if token == self._eos or token in self._settings.stop_tokens:
                self.end = 'eos' if token == self._eos else 'stop'
                break
            self.tokens.append(token)
            if self._text and self._tokenizer and self._text.add(self._tokenizer.decode([token])):
                self.end = 'stop'
            elif len(self.tokens) == self._settings.new_tokens:
                self.end = 'length'
        return np.array(self.tokens[before:], np.int32)

    @property
    def left(self) -> int:
        """New tokens that may still come."""
        return 0 if self.end else self._settings.new_tokens - len(self.tokens)


def batches(lengths: Sequence[int], chunk: int, batch_rows: int) -> Iterator[list[int]]:
    """Indices of the prompts that go together: those that take the same number of pieces come next to each other, and else
    in order."""
    order = sorted(range(len(lengths)), key=lambda index: -(-lengths[index] // chunk))
    for start in range(0, len(order), batch_rows):
        yield order[start : start + batch_rows]


def rounded(size: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, … : sizes of arrays, so that few programs are compiled. Less than half is more than
    asked for."""
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 else power


def _continue(
    params: dict,
    compiled: Programs,
    devices: Devices,
    rows: list[Row],
    settings: Sampling,
    eos: int,
    on_token: OnToken,
) -> None:
    """One batch."""
    count = -(-rounded(len(rows)) // devices.count) * devices.count
    mine = devices.local_rows(count)

    def placed(tree):
        return devices.batch(jax.tree.map(lambda array: array[mine], tree), count)

    cache = read_prompts(params, compiled, placed, [row.prompt[:-1] for row in rows], count, settings)
    enders, numbers = np.array([eos, *settings.stop_tokens], np.int32), settings.numbers()
    while any(row.left for row in rows):
        state = Rows(*np.zeros((4, count), np.int32))
        for i, row in enumerate(rows):
            state.token_B[i] = row.tokens[-1] if row.tokens else row.prompt[-1]
            state.position_B[i] = len(row.prompt) + len(row.tokens) - 1
            state.left_B[i], state.row_B[i] = row.left, row.index
        cache, new_BI = compiled.stretch(params, cache, placed(state), numbers, enders)
        for row, new_I in zip(rows, np.asarray(new_BI), strict=False):
            if row.left:
                on_token(row.index, row.add(new_I), row.end)


def read_prompts(
    params: dict,
    compiled: Programs,
    placed: Callable,
    prompts: Sequence[np.ndarray],
    count: int,
    settings: Sampling,
) -> Cache:
    """A cache of `count` rows with the prompts in it, and with room for new tokens. Scores of a piece against the whole
    capacity are there at a time, never of a prompt against itself."""
    longest = max(len(prompt) for prompt in prompts)
    # The last token is not read any more; a stretch has no step beyond the last one that any row takes.
    cache = compiled.empty(count, max(SMALLEST, rounded(longest + settings.new_tokens)))
    chunk = min(settings.chunk, max(SHORTEST, rounded(longest)))
    for start in range(0, longest, chunk):
        tokens_BT, counts_B = np.zeros((count, chunk), np.int32), np.zeros(count, np.int32)
        for i, prompt in enumerate(prompts):
            piece = prompt[start : start + chunk]
            tokens_BT[i, : len(piece)], counts_B[i] = piece, len(piece)
        cache = compiled.read(params, cache, *placed((tokens_BT, counts_B)), np.int32(start))
    return cache


def _check(
    model: ModelConfig,
    prompts: Sequence[np.ndarray],
    settings: Sampling,
    visits: int,
    tokenizer: Tokenizer | None,
    batch_rows: int,
) -> None:
    model.at_visits(visits).check()
    if batch_rows < 1:
        raise ValueError(f'{batch_rows=}: at least one prompt is continued at a time')
    if settings.stops and tokenizer is None:
        raise ValueError(f'stops={settings.stops} are texts: give the tokenizer too, or stop_tokens')
    for number, prompt in enumerate(prompts, start=1):
        if prompt.ndim != 1 or len(prompt) == 0:
            raise ValueError(f'prompt {number} has no token; begin it with EOS')
        if prompt.min() < 0 or prompt.max() >= model.vocab:
            raise ValueError(f'prompt {number} has ids from {prompt.min()} to {prompt.max()}; {model.vocab=}')
