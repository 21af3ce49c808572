"""Cross-entropy in chunks, and the balance losses. Sums leave; the step divides once."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from smelt_jax.batch import Batch
from smelt_jax.model.experts import RouterSums
from smelt_jax.model.transformer import Transformer
from smelt_jax.train.config import LossConfig

Total = Callable[[jax.Array], jax.Array]


def itself(array: jax.Array) -> jax.Array:
    """The total over one device."""
    return array


class LossSums(NamedTuple):
    """Sums over a batch (or a part of it), so that parts add up.

    Attributes:
      cross_entropy: nats, over the targets that carry loss.
      targets: how many those are.
      balance, router_z: mean over executed layers, times `tokens`.
      tokens: real (not padding) inputs.
    """

    cross_entropy: jax.Array
    targets: jax.Array
    balance: jax.Array
    router_z: jax.Array
    tokens: jax.Array


def objective(
    params: dict,
    model: Transformer,
    batch: Batch,
    config: LossConfig,
    targets: jax.Array,
    tokens: jax.Array,
    total: Total = itself,
) -> tuple[jax.Array, tuple[LossSums, RouterSums]]:
    """What is minimised, for a part of a batch: its share of the mean over the whole batch.

    Args:
      params: as `model.share` has them.
      targets, tokens: counts of the whole batch (`LossSums`), of which this is a part. The shares of all parts add up to
        cross-entropy / targets + weighted balance losses / tokens.
      total: adds up over the devices that share the batch; balance is that of all their tokens.

    Returns:
      The share, and (the sums, `RouterSums` of every executed layer), of this device's rows.
    """
    params = model.share.outer(params)
    output = model.apply({'params': params}, batch.tokens_BT, batch.segment_ids_BT, batch.positions_BT)
    width = output.hidden_BTD.shape[-1]
    cross_entropy = cross_entropy_sum(
        output.hidden_BTD.reshape(-1, width),
        params['head'],
        batch.targets_BT.reshape(-1),
        batch.loss_mask_BT.reshape(-1),
        config.chunk_tokens,
    )
    real = jnp.sum(batch.segment_ids_BT > 0, dtype=jnp.float32)
    sums = LossSums(
        cross_entropy,
        jnp.sum(batch.loss_mask_BT),
        balance_sum(output.router, total(output.router.counts_E)),
        jnp.mean(output.router.z),
        real,
    )
    auxiliary = config.balance * sums.balance + config.router_z * sums.router_z
    share = sums.cross_entropy / jnp.maximum(targets, 1) + auxiliary / jnp.maximum(tokens, 1)
    return share, (sums, output.router)


def balance_sum(router: RouterSums, counts_XE: jax.Array) -> jax.Array:
    """E · Σ_e f_e · p_e, averaged over executed layers: f the share of choices, p the sum of probabilities (Switch, eq. 4).

    Over the number of tokens it is 1 when both are uniform, E when one expert gets everything; 0 without tokens.

    Args:
      router: of some of the tokens whose choices are counted; the sums of all parts add up.
      counts_XE: choices of all those tokens.
    """
    experts = counts_XE.shape[-1]
    choices_X1 = jnp.maximum(jnp.sum(counts_XE, axis=-1, keepdims=True), 1)
    return jnp.mean(experts * jnp.sum(counts_XE / choices_X1 * router.probs_E, axis=-1))


def token_losses(hidden_ND: jax.Array, head_DV: jax.Array, targets_N: jax.Array, chunk: int) -> jax.Array:
    """float32 [N], cross-entropy in nats of each position, `chunk` positions at a time. For evaluation."""

    def one(arrays):
        hidden_CD, targets_C = arrays
        logits_CV = _logits(hidden_CD, head_DV)
        return jax.nn.logsumexp(logits_CV, axis=-1) - _at(logits_CV, targets_C)

    chunks = jax.tree.map(lambda array: _chunked(array, chunk), (hidden_ND, targets_N))
    return jax.lax.map(one, chunks).reshape(-1)[: targets_N.shape[0]]


def answers(
    hidden_ND: jax.Array, head_DV: jax.Array, at_Q: jax.Array, targets_Q: jax.Array, chunk: int
) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy in nats, float32 [Q], of targets at some positions, and whether each is the most probable token there.

    Logits of `chunk` questions exist at a time, and none but of what is asked are computed: the head's work is that of the
    questions there are, not of N.

    Args:
      at_Q: int32, which of the N positions; −1 asks nothing, and its answer is 0 and False.
      targets_Q: a token for each. Of equally probable tokens the lowest counts as the most probable.
    """
    size = at_Q.shape[0]
    head_DV = head_DV.astype(hidden_ND.dtype)
    asked_Q = jnp.flatnonzero(at_Q >= 0, size=size + (-size) % chunk, fill_value=size)

    def step(n, carry):
        nats_Q, best_Q = carry
        question_C = jax.lax.dynamic_slice(asked_Q, (n * chunk,), (chunk,))
        at_C, targets_C = (array.at[question_C].get(mode='fill', fill_value=0) for array in (at_Q, targets_Q))
        logits_CV = _logits(hidden_ND[at_C], head_DV)
        nats_C = jax.nn.logsumexp(logits_CV, axis=-1) - _at(logits_CV, targets_C)
        best_C = jnp.argmax(logits_CV, axis=-1) == targets_C
        return nats_Q.at[question_C].set(nats_C, mode='drop'), best_Q.at[question_C].set(best_C, mode='drop')

    chunks = -(-jnp.sum(at_Q >= 0) // chunk)
    return jax.lax.fori_loop(0, chunks, step, (jnp.zeros(size, jnp.float32), jnp.zeros(size, bool)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def cross_entropy_sum(
    hidden_ND: jax.Array, head_DV: jax.Array, targets_N: jax.Array, mask_N: jax.Array, chunk: int
) -> jax.Array:
    """Σ mask · cross-entropy, in nats. Logits of `chunk` positions exist at a time.

    The gradient is made in the same pass as the value, when a chunk's logits are there: they are not computed twice.
    Where the mask is 0 the target may be anything; a target outside the vocabulary that counts makes the sum NaN.
    """
    return _masked_sum(token_losses(hidden_ND, head_DV, targets_N, chunk), mask_N)


def _forward(hidden_ND, head_DV, targets_N, mask_N, chunk):
    vocab = head_DV.shape[1]

    def one(carry, arrays):
        total, dhead_DV = carry
        hidden_CD, targets_C, mask_C = arrays
        logits_CV = _logits(hidden_CD, head_DV)
        log_partition_C = jax.nn.logsumexp(logits_CV, axis=-1)
        total += _masked_sum(log_partition_C - _at(logits_CV, targets_C), mask_C)
        hit_CV = targets_C[:, None] == jnp.arange(vocab)
        dlogits_CV = (jnp.exp(logits_CV - log_partition_C[:, None]) - hit_CV) * mask_C[:, None]
        dlogits_CV = dlogits_CV.astype(hidden_CD.dtype)
        dhidden_CD = dlogits_CV @ head_DV.astype(hidden_CD.dtype).T
        dhead_DV += jnp.dot(hidden_CD.T, dlogits_CV, preferred_element_type=jnp.float32)
        return (total, dhead_DV), dhidden_CD

    chunks = jax.tree.map(lambda array: _chunked(array, chunk), (hidden_ND, targets_N, mask_N))
    start = (jnp.zeros((), jnp.float32), jnp.zeros(head_DV.shape, jnp.float32))
    (total, dhead_DV), dhidden = jax.lax.scan(one, start, chunks)
    dhidden_ND = dhidden.reshape(-1, hidden_ND.shape[1])[: hidden_ND.shape[0]]
    return total, (dhidden_ND, dhead_DV)


def _backward(chunk, residuals, dtotal):
    dhidden_ND, dhead_DV = residuals
    return (dtotal * dhidden_ND).astype(dhidden_ND.dtype), dtotal * dhead_DV, None, None


cross_entropy_sum.defvjp(_forward, _backward)


def _logits(hidden_CD: jax.Array, head_DV: jax.Array) -> jax.Array:
    return jnp.dot(hidden_CD, head_DV.astype(hidden_CD.dtype), preferred_element_type=jnp.float32)


def _at(logits_CV: jax.Array, targets_C: jax.Array) -> jax.Array:
    return jnp.take_along_axis(logits_CV, targets_C[:, None], axis=-1)[:, 0]


def _masked_sum(losses_C: jax.Array, mask_C: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(mask_C == 0, 0, losses_C * mask_C))


def _chunked(array: jax.Array, chunk: int) -> jax.Array:
    """[N, …] → [N / chunk rounded up, chunk, …], padded with zeros."""
    padding = -array.shape[0] % chunk
    array = jnp.pad(array, [(0, padding)] + [(0, 0)] * (array.ndim - 1))
    return array.reshape(-1, chunk, *array.shape[1:])
