"""A step on a mesh of eight devices is the step on one: loss, balance, every gradient, the norm that clips."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import TINY, assert_close, edit, packed, params_of

from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices
from smelt_jax.train.config import LossConfig, OptimConfig
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import TrainState
from smelt_jax.train.step import make_step

pytestmark = pytest.mark.usefixtures('quick')

MODEL = edit(TINY, experts__count=8)
LOSS, OPTIM = LossConfig(balance=0.3, router_z=0.2, chunk_tokens=8), OptimConfig(clip_norm=0.05, weight_decay=0.0)
ROWS = 16
DOCUMENTS = [
    (17,),
    (3, 9),
    (),
    (8, 8),
    (1, 1, 1),
    (5,),
    (16,),
    (2, 15),
] * 2  # padding at every row's end, one row all padding
BATCH = packed(*DOCUMENTS)
MESHES = [(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]


@functools.cache
def setting(routing):
    """Model and parameters. `skewed`: the first experts' logits are the largest, the more so the earlier they come. `one
    expert`: all logits are 0, and ties go to the lowest."""
    model = edit(MODEL, experts__per_token=1) if routing == 'one expert' else MODEL
    factor = {'even': 1.0, 'skewed': 8 * 0.4 ** np.arange(8), 'one expert': 0.0}[routing]

    def change(path, leaf):
        return leaf * factor if path[-1].key == 'router' else leaf

    return model, jax.tree_util.tree_map_with_path(change, params_of(model))


@functools.cache
def updated(routing, sizes=None, exchange='auto', accumulate=1, remat='none', chunk=0):
    """(metrics, clipped gradient) of one update."""
    model, params = setting(routing)
    model, optim = edit(model, remat=remat), dataclasses.replace(OPTIM, accumulate=accumulate)
    state = TrainState(jnp.int32(0), params, optimizer(optim).init(params))
    state, batch, devices = jax.tree.map(jnp.array, state), BATCH, None  # a copy: the step donates it
    if sizes is not None:
        devices = Devices.of(MeshConfig(*sizes, exchange=exchange, chunk_tokens=chunk))
        devices.check(model, batch_rows=ROWS)
        state = jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), state, devices.placed(state))
        batch = devices.batch(BATCH, ROWS)
    state, metrics = make_step(model, LOSS, optim, devices)(state, batch, jnp.float32(0.1))
    return jax.device_get((metrics, jax.tree.map(lambda leaf: leaf / (1 - OPTIM.b1), state.opt_state[1].mu)))


def assert_equal(actual, expected):
    assert actual[0]['dropped'] == 0
    assert_close(actual[0], expected[0], 1e-5)
    # Times a thousand: all gradients are small after clipping, and smaller ones than 1e-3 would be held to less.
    assert_close(*(jax.tree.map(lambda leaf: 1e3 * leaf, grads) for _, grads in (actual, expected)), 1e-5)


CASES = [
    (sizes, exchange) for sizes in MESHES for exchange in ('gather', 'ragged') if exchange == 'gather' or sizes[2] > 1
]


@pytest.mark.parametrize('routing', ['even', 'skewed', 'one expert'])
@pytest.mark.parametrize(('sizes', 'exchange'), CASES, ids=str)
def test_eight_devices_equal_one(routing, sizes, exchange):
    expected = updated(routing)
    assert expected[0]['grad_norm'] > 2 * OPTIM.clip_norm  # it clips
    if routing == 'one expert':
        assert expected[0]['load_max_1'] == 8
    if routing == 'skewed':
        assert expected[0]['load_max_1'] > 2 > updated('even')[0]['load_max_1']
    assert_equal(updated(routing, sizes, exchange), expected)


@pytest.mark.parametrize('remat', ['layer', 'dots'])
def test_what_is_computed_again_changes_nothing(remat):
    assert_equal(updated('even', (2, 2, 2), 'ragged', remat=remat), updated('even'))


@pytest.mark.parametrize(
    ('sizes', 'exchange', 'remat'),
    [((8, 1, 1), 'gather', 'none'), ((1, 1, 8), 'gather', 'layer'), ((2, 2, 2), 'ragged', 'layer')],
)
def test_a_few_tokens_at_a_time_are_the_same(sizes, exchange, remat):
    """The tokens of a device are no multiple of a chunk."""
    assert_equal(updated('skewed', sizes, exchange, remat=remat, chunk=13), updated('skewed'))


@pytest.mark.parametrize('sizes', [None, (2, 2, 2)], ids=str)
def test_microbatches_are_the_same_on_any_mesh(sizes):
    """The balance loss, too, which is that of each microbatch."""
    one = updated('even', accumulate=2)
    assert one[0]['balance'] != updated('even')[0]['balance']
    np.testing.assert_allclose(one[0]['loss'], updated('even')[0]['loss'], rtol=1e-5)
    assert_equal(updated('even', sizes, 'gather', accumulate=2), one)
