"""What the backward pass computes again changes neither gradients nor what is reported."""

import functools

import jax
import numpy as np
import pytest
from models import QUICK, assert_close, edit, looped, packed, params_of

from smelt_jax.model.transformer import Transformer
from smelt_jax.train.config import LossConfig
from smelt_jax.train.loss import objective

MODEL = looped(0, 2, 1, visits=2)
BATCH = packed((6, 8, 3), (9, 4))


@functools.cache
def trained(remat):
    model = Transformer(edit(MODEL, remat=remat))
    targets, tokens = np.sum(BATCH.loss_mask_BT), np.float32(np.sum(BATCH.segment_ids_BT > 0))

    def value_and_grads(params):
        loss = LossConfig(balance=0.1, router_z=0.1, chunk_tokens=8)
        return jax.value_and_grad(objective, has_aux=True)(params, model, BATCH, loss, targets, tokens)

    return jax.jit(value_and_grads).trace(params_of(MODEL))


@functools.cache
def results(remat):
    return trained(remat).lower().compile(QUICK)(params_of(MODEL))


@pytest.mark.parametrize('remat', ['layer', 'dots'])
def test_gradients_and_reported_losses_are_the_same(remat):
    """Balance and z losses are counted once, in the loss and in what is reported."""
    assert np.isfinite(results('none')[0][0])
    assert_close(results(remat), results('none'), 1e-6)


def test_layer_computes_most_again_and_none_nothing():
    """In products of matrices in the whole program."""
    products = {remat: str(trained(remat).jaxpr).count('dot_general[') for remat in ('none', 'dots', 'layer')}
    assert products['none'] < products['dots'] < products['layer']
