"""The mesh: sizes that fit, and numbers in the line about those that do not."""

import jax
import numpy as np
import pytest
from models import TINY, edit
from topologies import devices_of

import pallas_kernels
from smelt_jax.model import attend
from smelt_jax.parallel.config import ATTENTION_KERNELS, EXPERT_KERNELS, MeshConfig
from smelt_jax.parallel.devices import Devices
from smelt_jax.parallel.mesh import AXES, make_mesh, mesh_sizes
from smelt_jax.train.config import OptimConfig
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import init_state


@pytest.mark.parametrize(
    ('config', 'devices', 'sizes'),
    [
        (MeshConfig(), 8, (1, 8, 1)),
        (MeshConfig(), 1, (1, 1, 1)),
        (MeshConfig(replica=-1, fsdp=2, expert=2), 8, (2, 2, 2)),
        (MeshConfig(replica=2, fsdp=1, expert=-1), 6, (2, 1, 3)),
        (MeshConfig(fsdp=1), 8, (1, 1, 1)),
    ],
)
def test_one_size_is_what_the_others_leave(config, devices, sizes):
    assert mesh_sizes(config, devices) == sizes


@pytest.mark.parametrize(
    ('config', 'devices', 'words'),
    [
        (MeshConfig(replica=3), 8, r'replica=3 × fsdp=-1 × expert=1 on 8 devices'),
        (MeshConfig(replica=2, fsdp=2, expert=4), 8, r'on 8 devices: sizes must multiply'),
        (MeshConfig(replica=-1), 8, r'one of them can be -1'),
        (MeshConfig(expert=0), 8, r'mesh\.expert=0: must be at least 1'),
        (MeshConfig(exchange='post'), 8, r"mesh\.exchange='post': choose one of auto, ragged, gather"),
        (MeshConfig(buffer=0.5), 8, r'mesh\.buffer=0\.5: must be 0 for the worst case, or at least 1'),
        (MeshConfig(replica=4, slices=3), 8, r'mesh\.slices=3 does not divide mesh\.replica=4'),
    ],
)
def test_sizes_that_do_not_fit_are_named(config, devices, words):
    with pytest.raises(ValueError, match=words):
        mesh_sizes(config, devices)


@pytest.mark.parametrize(
    ('mesh', 'change', 'words'),
    [
        (
            MeshConfig(expert=4, fsdp=2),
            {'experts__count': 6},
            r'model\.experts\.count=6 is not divisible by mesh\.expert=4',
        ),
        (MeshConfig(), {'width': 28}, r'model\.width=28 is not divisible by mesh\.fsdp=8'),
        (MeshConfig(expert_kernel='pallas_tpu'), {}, r'mesh\.expert_kernel=pallas_tpu is made for tpu, not for cpu'),
        (MeshConfig(attention_kernel='triton'), {}, r'mesh\.attention_kernel=triton is made for gpu, not for cpu'),
        (MeshConfig(), {'experts__count': 8}, r'data\.batch_rows=12 rows are not divisible by 8 devices'),
    ],
)
def test_what_the_mesh_does_not_divide_is_named(mesh, change, words):
    with pytest.raises(ValueError, match=words):
        Devices.of(mesh).check(edit(TINY, **change), data__batch_rows=12)


def test_every_large_leaf_is_cut_and_lies_where_its_gradient_and_moments_do():
    model = edit(TINY, experts__count=8)
    devices = Devices.of(MeshConfig(replica=2, fsdp=2, expert=2))
    state = devices.placed(lambda: init_state(model, optimizer(OptimConfig()), 0))
    for path, leaf in jax.tree.leaves_with_path(state.params):
        parts = leaf.size // np.prod(leaf.sharding.shard_shape(leaf.shape))
        name = path[-1].key
        assert parts == {'scale': 1, 'gate': 4, 'up': 4, 'down': 4}.get(name, 2), name
    for moments in (state.opt_state[1].mu, state.opt_state[1].nu):
        assert jax.tree.map(lambda leaf: leaf.sharding, moments) == jax.tree.map(
            lambda leaf: leaf.sharding, state.params
        )


def test_fresh_parameters_are_the_same_on_any_mesh():
    model = edit(TINY, experts__count=8)
    devices = Devices.of(MeshConfig(replica=2, fsdp=2, expert=2))
    made = jax.jit(lambda: devices.keep(init_state(model, optimizer(OptimConfig()), 3)))()
    single = jax.jit(lambda: init_state(model, optimizer(OptimConfig()), 3))()
    for one, other in zip(jax.tree.leaves(made), jax.tree.leaves(single), strict=True):
        np.testing.assert_array_equal(one, other)
    assert made.params['embed'].sharding.shard_shape((61, 24)) == (61, 12)


def test_every_process_reads_the_rows_of_its_devices():
    devices = Devices.of(MeshConfig(replica=2, fsdp=2, expert=2))
    np.testing.assert_array_equal(devices.local_rows(16), np.arange(16))
    tokens = np.arange(32).reshape(16, 2)
    batch = devices.batch({'tokens': tokens}, 16)['tokens']
    np.testing.assert_array_equal(batch, tokens)
    assert {shard.data.shape for shard in batch.addressable_shards} == {(2, 2)}


def test_slices_are_cut_by_replica_alone():
    """Parameters, and tokens on their way to experts, stay within a slice: the network between slices is the slower one."""
    found = make_mesh(MeshConfig(replica=4, fsdp=2, expert=-1, slices=2), devices_of('v5e:2x4', slices=2))
    assert dict(found.shape) == {'replica': 4, 'fsdp': 2, 'expert': 2}
    slices = np.vectorize(lambda device: device.slice_index)(found.devices)
    for replica, expected in enumerate([0, 0, 1, 1]):
        assert set(slices[replica].flat) == {expected}


def test_slices_that_the_devices_do_not_have_are_named():
    with pytest.raises(ValueError, match=r'mesh\.slices=2: the 8 devices are in 1 slice\(s\)'):
        make_mesh(MeshConfig(replica=2, fsdp=-1, slices=2))


def test_a_mesh_takes_every_kernel_there_is():
    """Their names are written twice, since the config is read where jax is not yet."""
    assert (EXPERT_KERNELS, ATTENTION_KERNELS) == (pallas_kernels.IMPLEMENTATIONS, attend.IMPLEMENTATIONS)


def test_the_axes_are_in_order_of_the_networks_speed():
    mesh = make_mesh(MeshConfig(replica=2, fsdp=2, expert=2))
    assert mesh.axis_names == AXES == ('replica', 'fsdp', 'expert')
