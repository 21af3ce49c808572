"""Which token comes next: the most probable one, or one drawn."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from smelt_jax.generate.text import encodable

HOTTEST = 1e30  # above, logits that differ no longer do
NOT_FINITE = -2  # what is picked of logits that are none


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How prompts are continued.

    Attributes:
      new_tokens: that a prompt gets, at most.
      temperature: logits are divided by it; 0 takes the most probable token, ties go to the lowest id.
      top_k: only so many of the most probable tokens are drawn from; 0 for all.
      top_p: of those, only the smallest set whose probability reaches it: one token at least; 1 for all.
      seed: a row's draws depend on the seed, the row's number and the position of the token, on nothing else.
      chunk: tokens of a prompt that are read at a time.
      stops: texts that end a row when they come up, across borders of tokens too.
      stop_tokens: ids that end a row as EOS does.
    """

    new_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    chunk: int = 256
    stops: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        least = {'new_tokens': 1, 'chunk': 1, 'top_k': 0, 'seed': 0}
        for name, bound in least.items():
            if not bound <= getattr(self, name) < 2**31:
                raise ValueError(f'{name}={getattr(self, name)}: must be at least {bound} and below 2**31')
        if not 0 <= self.temperature <= HOTTEST:
            raise ValueError(
                f'temperature={self.temperature}: must be a number of at least 0 and at most {HOTTEST}; 0 is greedy'
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f'top_p={self.top_p}: must be above 0 and at most 1; 1 draws from all tokens')
        for stop in self.stops:
            encodable(stop, 'a stop text')
        if '' in self.stops:
            raise ValueError("stops has '', which every text begins with; leave it out")

    @property
    def greedy(self) -> bool:
        """Nothing is drawn: the temperature is 0, or is so in float32 arithmetic."""
        return self.temperature < float(np.finfo(np.float32).tiny)

    @property
    def narrow(self) -> bool:
        """Some tokens are not drawn from."""
        return not self.greedy and (self.top_k > 0 or self.top_p < 1)

    def numbers(self) -> 'Numbers':
        """What a compiled program takes of it, so that other values need no other program."""
        return Numbers(
            np.float32(self.temperature),
            np.int32(self.top_k or 2**31 - 1),
            np.float32(self.top_p),
            np.uint32(self.seed),
        )


class Numbers(NamedTuple):
    """Scalars of a `Sampling`; top_k is never 0."""

    temperature: ArrayLike
    top_k: ArrayLike
    top_p: ArrayLike
    seed: ArrayLike


def pick(
    logits_BV: jax.Array, rows_B: jax.Array, positions_B: jax.Array, numbers: Numbers, *, greedy: bool, narrow: bool
) -> jax.Array:
    """The next token of each row, int32; NOT_FINITE where the largest logit is none.

    Draws are argmax(logits / temperature + Gumbel noise), whose noise is of (seed, row, position) and of the token's id: what
    else is in the batch, and how large it is, changes none.

    Args:
      rows_B: numbers of the rows, as in the whole list of prompts.
      positions_B: of the token that is picked.
      greedy, narrow: see `Sampling`.
    """
    top_B = jnp.max(logits_BV, axis=-1)
    if greedy:
        token_B = jnp.argmax(logits_BV, axis=-1)
    else:
        scaled_BV = (logits_BV - top_B[:, None]) / numbers.temperature
        noise_BV = _noise(rows_B, positions_B, numbers.seed, logits_BV.shape[1])
        if narrow:
            order_BV, kept_BV = nucleus(scaled_BV, numbers.top_k, numbers.top_p)
            noisy_BV = jnp.take_along_axis(scaled_BV + noise_BV, order_BV, axis=-1)
            best_B1 = jnp.argmax(jnp.where(kept_BV, noisy_BV, -jnp.inf), axis=-1, keepdims=True)
            token_B = jnp.take_along_axis(order_BV, best_B1, axis=-1)[:, 0]
        else:
            token_B = jnp.argmax(scaled_BV + noise_BV, axis=-1)
    return jnp.where(jnp.isfinite(top_B), token_B, NOT_FINITE).astype(jnp.int32)


def nucleus(scaled_BV: jax.Array, top_k: ArrayLike, top_p: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """(ids from the most probable to the least, ties by id; whether each is drawn from): the first k, and of those the
    smallest set whose probability, theirs together being 1, reaches p (Holtzman et al., 2020)."""
    order_BV = jnp.argsort(-scaled_BV, axis=-1, stable=True)
    sorted_BV = jnp.take_along_axis(scaled_BV, order_BV, axis=-1)
    first_BV = jnp.arange(sorted_BV.shape[-1]) < jnp.asarray(top_k)
    probs_BV = jax.nn.softmax(jnp.where(first_BV, sorted_BV, -jnp.inf), axis=-1)
    before_BV = jnp.cumsum(probs_BV, axis=-1) - probs_BV
    # top_p = 1 is asked for by itself: sums in float32 reach 1 before the last token.
    reached_BV = (before_BV >= top_p) & (jnp.asarray(top_p) < 1)
    return order_BV, first_BV & ~reached_BV.at[:, 0].set(False)


def _noise(rows_B: jax.Array, positions_B: jax.Array, seed: ArrayLike, vocab: int) -> jax.Array:
    def one(row: jax.Array, position: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), row), position)
        return jax.random.gumbel(key, (vocab,), jnp.float32)

    return jax.vmap(one)(rows_B, positions_B)
