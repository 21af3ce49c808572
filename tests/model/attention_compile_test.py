"""Attention kernels compile for hardware that is not there, forward and backward, and make no array of T × T."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from topologies import devices_of

from smelt_jax.model.attend import attend

ROWS, LENGTH = 2, 4096
HEADS = {'200m looped': (24, 4, 44), '1.6b': (36, 4, 64)}  # query heads, key heads, head dimension


def program(device, implementation, heads, groups, head_dim):
    """The text of attention and its gradients, compiled as in training, inside a shard_map."""
    shapes = [(ROWS, LENGTH, count, head_dim) for count in (heads, groups, groups, heads)]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    ids_BT = jax.ShapeDtypeStruct((ROWS, LENGTH), jnp.int32)

    def measured(q, k, v, dout, segment_ids_BT):
        out, pull = jax.vjp(lambda *qkv: attend(*qkv, segment_ids_BT, implementation=implementation), q, k, v)
        return out, pull(dout)

    mesh = Mesh(np.array([device]), ('device',))
    each = jax.shard_map(measured, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    return jax.jit(each).lower(*arrays, ids_BT).compile().as_text()


def has_square(text):
    return re.search(rf'\[(\d+,)*{LENGTH},{LENGTH}\]', text) is not None


@pytest.mark.parametrize(
    ('topology', 'model'), [('v5e:2x2', '200m looped'), ('v5p:2x2x1', '1.6b'), ('v6e:2x2', '200m looped')]
)
def test_for_tpus(topology, model):
    text = program(devices_of(topology)[0], 'splash', *HEADS[model])
    assert text.count('custom_call_target="tpu_custom_call"') == 3  # forward, dq, and dk with dv
    assert not has_square(text)


def test_the_blocks_of_xla_make_no_square_either():
    """Four thousand positions, on this CPU."""
    assert not has_square(program(jax.devices('cpu')[0], 'xla', *HEADS['200m looped']))


@pytest.mark.parametrize('model', HEADS)
def test_for_gpus(model):
    text = program(devices_of('h100:1')[0], 'triton', *HEADS[model])
    assert text.count('custom_call_target="__gpu$xla.gpu.triton"') >= 2
    assert not has_square(text)
