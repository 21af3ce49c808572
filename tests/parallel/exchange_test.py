"""Rows reach their experts and come back, whatever the routing: with experts that change nothing, the input is the output."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from pallas_kernels import ExpertWeights
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices
from smelt_jax.parallel.exchange import by_sending
from smelt_jax.parallel.rows import emulated

EXPERTS, TOKENS, CHOICES, WIDTH = 8, 6, 4, 3
POISON = np.nan


def unchanged(x_RD, weights_RK, experts_RK, weights):
    """Experts that give back what they get; places without a row may hold anything."""
    return jnp.where(experts_RK < weights.gate_EDF.shape[0], x_RD, POISON)


@functools.cache
def exchange(shards, buffer=0.0):
    """(x_TD, weights_TK, experts_TK), each of all devices → (y_TD, what each device dropped)."""
    devices = Devices.of(MeshConfig(expert=shards, fsdp=1), jax.devices()[:shards])
    ffn = by_sending(emulated, buffer, unchanged)
    own = np.zeros((EXPERTS // shards, 1, 1), np.float32)

    def one(x_TD, weights_TK, experts_TK):
        y_TD, dropped = ffn(x_TD, weights_TK, experts_TK, ExpertWeights(own, own, own))
        return y_TD, dropped[None]

    rows = P('expert')
    return jax.jit(devices.each(one, (rows, rows, rows), (rows, rows)))


def routed(experts_TK):
    """Integer tokens and weights of a token that sum to 1, so that sums are exact; NaN where there is no expert at all."""
    tokens = experts_TK.shape[0]
    x_TD = np.arange(1.0, tokens * WIDTH + 1, dtype=np.float32).reshape(tokens, WIDTH)
    used_TK = experts_TK < EXPERTS
    weights_TK = np.where(used_TK, 0.25, 0).astype(np.float32)
    weights_TK[np.arange(tokens), np.argmax(used_TK, axis=1)] += np.where(
        used_TK.any(axis=1), 1 - weights_TK.sum(axis=1), 0
    )
    return np.where(used_TK.any(axis=1)[:, None], x_TD, np.nan), weights_TK, used_TK.any(axis=1)[:, None]


def choices(shards, draw):
    """Distinct experts of each token of all devices, some of them none (EXPERTS)."""
    one = st.permutations([*range(EXPERTS), *[EXPERTS] * CHOICES]).map(lambda order: order[:CHOICES])
    return np.array(draw(st.lists(one, min_size=shards * TOKENS, max_size=shards * TOKENS)), np.int32)


ADVERSARIAL = {
    'all on the first': lambda tokens: np.tile([0, 1, 2, 3], (tokens, 1)),
    'all on the last': lambda tokens: np.tile([7, 6, 5, 4], (tokens, 1)),
    'one choice each': lambda tokens: np.tile([5, 8, 8, 8], (tokens, 1)),
    'none': lambda tokens: np.full((tokens, CHOICES), EXPERTS),
    'the first half alone': lambda tokens: np.where(np.arange(tokens)[:, None] < tokens // 2, [3, 0, 7, 4], 8),
}


def assert_unchanged(shards, experts_TK):
    x_TD, weights_TK, used_T1 = routed(experts_TK)
    y_TD, dropped = exchange(shards)(x_TD, weights_TK, experts_TK)
    np.testing.assert_array_equal(y_TD, np.where(used_T1, x_TD, 0))
    assert not np.any(dropped)


@pytest.mark.parametrize('shards', [2, 4, 8])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_the_input_is_the_output(shards, data):
    assert_unchanged(shards, choices(shards, data.draw))


@pytest.mark.parametrize('shards', [2, 4, 8])
@pytest.mark.parametrize('name', ADVERSARIAL)
def test_for_routings_of_an_adversary_too(shards, name):
    assert_unchanged(shards, ADVERSARIAL[name](shards * TOKENS).astype(np.int32))


@pytest.mark.parametrize('shards', [2, 4])
@pytest.mark.parametrize('buffer', [1.0, 1.3])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_bounded_buffer_counts_exactly_what_it_drops(shards, buffer, data):
    experts_TK = choices(shards, data.draw) % (EXPERTS // 2 + 1)  # the upper half is chosen by nobody
    experts_TK = np.where(experts_TK == EXPERTS // 2, EXPERTS, experts_TK).astype(np.int32)
    x_TD, weights_TK, _ = routed(experts_TK)
    y_TD, dropped = exchange(shards, buffer)(x_TD, weights_TK, experts_TK)
    room = int(np.ceil(TOKENS * CHOICES * buffer))
    wanted = np.bincount(experts_TK.reshape(-1) // (EXPERTS // shards), minlength=shards + 1)[:shards]
    assert np.sum(dropped) == np.sum(np.maximum(wanted - room, 0))
    assert np.isfinite(y_TD).all()
    if not np.any(dropped):
        np.testing.assert_array_equal(y_TD, np.where(np.isnan(x_TD), 0, x_TD))
