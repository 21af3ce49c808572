"""Sown intermediates: one entry for every visit of every layer, in order; none kept from the call before; free if unasked."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import assert_same, edit, jit, looped, packed, params_of, rows_of

from smelt_jax.model.transformer import Transformer

MODEL = looped(1, 2, 1, visits=3)
BATCH = packed((6, 8, 3), (9, 4))
TOKENS = BATCH.tokens_BT.size


@jit
def probed(variables):
    return Transformer(MODEL).apply(variables, *rows_of(BATCH), mutable='intermediates')


@functools.cache
def first():
    return probed({'params': params_of(MODEL)})


def test_there_is_one_entry_for_every_visit_of_every_layer_in_order():
    """[visits, layers, …] in the loop; each entry has the choices that the router sums of that execution count."""
    output, state = first()
    stacks = [state['intermediates'][name]['blocks']['experts']['experts'] for name in ('prelude', 'recur', 'coda')]
    per_token = MODEL.experts.per_token
    assert [stack.shape[:-2] for stack in stacks] == [(1,), (3, 2), (1,)]
    in_order = np.concatenate([stack.reshape(-1, TOKENS * per_token) for stack in stacks])
    counts_XE = [np.bincount(layer, minlength=MODEL.experts.count + 1)[:-1] for layer in in_order]
    np.testing.assert_array_equal(counts_XE, output.router.counts_E)
    assert len(np.unique(counts_XE, axis=0)) == MODEL.executed_layers  # else another order would do


def test_a_second_apply_does_not_add_to_the_first():
    """Not even if it is handed the first one's intermediates with the parameters."""
    _, state = first()
    _, again = probed({'params': params_of(MODEL), **state})
    assert_same(again, state)


@pytest.mark.parametrize('remat', ['none', 'layer'])
def test_nobody_who_does_not_ask_pays(monkeypatch, remat):
    """The program is the same, instruction for instruction, as that of a model that sows nothing."""
    model, params = edit(MODEL, remat=remat), params_of(MODEL)

    def program():
        def scalar(params):
            return jnp.sum(Transformer(model).apply({'params': params}, *rows_of(BATCH)).hidden_BTD)

        return str(jax.make_jaxpr(jax.grad(scalar))(params))

    silent = program()
    monkeypatch.setattr(nn.Module, 'sow', lambda *_, **__: None)
    assert program() == silent
