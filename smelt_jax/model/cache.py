"""Keys and values of tokens already read, so that the next ones need not read them again.

Every executed layer keeps its own: a looped layer has one slot a visit, since each visit's keys come from other inputs.
A slot's index is the token's position in its document, so a row of the cache is one document.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from smelt_jax.model.attend_xla import MASKED
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.rotary import Context


class Slots(NamedTuple):
    """Keys and values of one executed layer; with leading axes, of a stack of them.

    Attributes:
      k_BSGH, v_BSGH: in the model's dtype, keys after their rotation; S positions a row.
    """

    k_BSGH: jax.Array
    v_BSGH: jax.Array


class Cache(NamedTuple):
    """The slots of a model, by stack; None for a stack that it lacks.

    Attributes:
      prelude, coda: leading axis L, layers.
      recur: leading axes R, L: visits, layers of the loop.
    """

    prelude: Slots | None
    recur: Slots | None
    coda: Slots | None

    @property
    def capacity(self) -> int:
        """S, positions that a row has room for."""
        return jax.tree.leaves(self)[0].shape[-3]

    @property
    def visits(self) -> int | None:
        """Visits that it has room for; None without a loop."""
        return self.recur.k_BSGH.shape[0] if self.recur else None


def empty_cache(config: ModelConfig, rows: int, capacity: int, visits: int | None = None) -> Cache:
    """A cache of zeros for `rows` documents of at most `capacity` tokens.

    It takes rows · capacity · `budget.accounting.Budget.kv_values` values in the model's dtype.
    """
    visits = config.loop.visits if visits is None else visits
    heads, head_dim = config.attention.kv_heads, config.attention.head_dim

    def slots(*leading: int) -> Slots | None:
        if 0 in leading:
            return None
        shape = (*leading, rows, capacity, heads, head_dim)
        return Slots(jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))

    return Cache(slots(config.loop.start), slots(visits, config.loop.length), slots(config.coda_layers))


def put(slots: Slots, k_BTGH: jax.Array, v_BTGH: jax.Array, context: Context) -> Slots:
    """Writes T new tokens of each row at their positions. Padding is not written, nor what lies beyond the capacity."""
    capacity = slots.k_BSGH.shape[1]
    at_BT = jnp.where(context.segment_ids_BT > 0, context.positions_BT, capacity)
    rows_B1 = jnp.arange(at_BT.shape[0])[:, None]
    new = Slots(k_BTGH, v_BTGH)
    return jax.tree.map(lambda old, new: old.at[rows_B1, at_BT].set(new.astype(old.dtype), mode='drop'), slots, new)


def attend_slots(q_BTNH: jax.Array, slots: Slots, positions_BT: jax.Array) -> jax.Array:
    """softmax(q kᵀ / √H) v over the slots up to and with the query's own position.

    Scores [B, N, T, S] exist at one time: T is one token when decoding, a chunk of the prompt before. float32 inside;
    out_BTNH in the dtype of v.
    """
    rows, length, heads, head_dim = q_BTNH.shape
    k_BSGH, v_BSGH = slots
    groups = k_BSGH.shape[2]
    q_BTGnH = (q_BTNH * (1 / math.sqrt(head_dim))).reshape(rows, length, groups, heads // groups, head_dim)
    scores_BGnTS = jnp.einsum('btgnh,bsgh->bgnts', q_BTGnH, k_BSGH, preferred_element_type=jnp.float32)
    seen_BTS = jnp.arange(k_BSGH.shape[1]) <= positions_BT[..., None]
    weights_BGnTS = jax.nn.softmax(jnp.where(seen_BTS[:, None, None], scores_BGnTS, MASKED), axis=-1)
    out_BTGnH = jnp.einsum(
        'bgnts,bsgh->btgnh', weights_BGnTS.astype(v_BSGH.dtype), v_BSGH, preferred_element_type=jnp.float32
    )
    return out_BTGnH.reshape(rows, length, heads, head_dim).astype(v_BSGH.dtype)
