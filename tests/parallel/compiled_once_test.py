"""A state that was just made, that a step gave back, or that was restored: the same compiled step takes them all."""

import jax
import jax.numpy as jnp
import pytest
from models import TINY, edit, packed

from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices
from smelt_jax.train.config import LossConfig, OptimConfig
from smelt_jax.train.loop import _fresh
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import init_state
from smelt_jax.train.step import make_step

pytestmark = pytest.mark.usefixtures('quick')
MODEL = edit(TINY, experts__count=8)


@pytest.mark.parametrize('mesh', [MeshConfig(fsdp=1), MeshConfig(replica=2, fsdp=2, expert=2)])
def test_fresh_given_back_and_restored_are_alike(mesh):
    devices, optim = Devices.of(mesh), OptimConfig()
    step, rate = make_step(MODEL, LossConfig(), optim, devices), jnp.float32(0.1)
    batch = devices.batch(packed(*[(5,)] * 8), 8)
    state = _fresh(MODEL, optim, 0, devices)
    for _ in range(2):
        state, _ = step(state, batch, rate)
    like = devices.placed(lambda: init_state(MODEL, optimizer(optim), 0))
    step(jax.tree.map(lambda leaf, place: jax.device_put(leaf, place.sharding), state, like), batch, rate)
    assert step._cache_size() == 1
