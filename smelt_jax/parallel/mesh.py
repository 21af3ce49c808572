"""The device mesh, and where every array lies on it.

Three axes: `replica` (copies; across slices), `fsdp` (parameters by width), `expert` (experts by groups). A batch is cut by
rows over all of them.
"""

import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from smelt_jax.model.config import ModelConfig
from smelt_jax.parallel.config import MeshConfig

AXES = ('replica', 'fsdp', 'expert')
ROWS = P(AXES)

# Last key of a parameter's path → the axes of its last dimensions; dimensions before them (layers) are whole everywhere.
# Everything is cut by the model's width D. Moments have their parameter's keys; what is not in here is on every device.
RULES: dict[str, tuple[str | None, ...]] = {
    'embed': (None, 'fsdp'),
    'head': ('fsdp', None),
    'q': ('fsdp', None),
    'k': ('fsdp', None),
    'v': ('fsdp', None),
    'o': (None, 'fsdp'),
    'router': ('fsdp', None),
    'gate': ('expert', 'fsdp', None),
    'up': ('expert', 'fsdp', None),
    'down': ('expert', None, 'fsdp'),
}


def mesh_sizes(config: MeshConfig, devices: int) -> tuple[int, int, int]:
    """Sizes of AXES on so many devices. Raises ValueError, naming sizes and devices, if they do not fit."""
    config.check()
    sizes = [config.replica, config.fsdp, config.expert]
    given = math.prod(size for size in sizes if size > 0)
    if -1 in sizes and devices % given == 0:
        sizes[sizes.index(-1)] = devices // given
    if -1 in sizes or math.prod(sizes) > devices:
        raise ValueError(
            f'mesh of replica={config.replica} × fsdp={config.fsdp} × expert={config.expert} on {devices} devices: '
            f'sizes must multiply to no more than the devices, and divide them where one is -1; '
            f'give others by --config.mesh.KEY to smelt train, by --mesh=KEY=VALUE,… to branch, evaluate and generate'
        )
    return sizes[0], sizes[1], sizes[2]


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh of AXES, in an order that JAX takes for the machine's network; slices are cut by replica.

    Sizes without a -1 may take fewer devices than one process has: the first ones. Many processes use all of theirs.
    """
    devices = jax.devices() if devices is None else list(devices)
    replica, fsdp, expert = mesh_sizes(config, len(devices))
    used = replica * fsdp * expert
    if used < len(devices) and len({device.process_index for device in devices}) > 1:
        raise ValueError(f'mesh of {used} devices: the processes have {len(devices)}, and all have to take part')
    devices = devices[:used]
    if config.slices > 1:
        there = len({getattr(device, 'slice_index', 0) for device in devices})
        if there != config.slices:
            raise ValueError(f'mesh.slices={config.slices}: the {used} devices are in {there} slice(s)')
        inner, outer = (replica // config.slices, fsdp, expert), (config.slices, 1, 1)
        grid = mesh_utils.create_hybrid_device_mesh(inner, outer, devices, allow_split_physical_axes=True)
    else:
        grid = mesh_utils.create_device_mesh((replica, fsdp, expert), devices, allow_split_physical_axes=True)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * 3)


def check_fits(mesh: Mesh, model: ModelConfig, **batches: int) -> None:
    """Raises ValueError, before anything is compiled, naming both numbers, if the mesh does not divide the model or a batch.

    `batches`: name of a setting → rows.
    """
    fsdp, expert = mesh.shape['fsdp'], mesh.shape['expert']
    if model.experts.count % expert:
        raise ValueError(f'model.experts.count={model.experts.count} is not divisible by mesh.expert={expert}')
    if model.width % fsdp:
        raise ValueError(
            f'model.width={model.width} is not divisible by mesh.fsdp={fsdp}; use fewer, and more replicas or expert groups'
        )
    for name, rows in batches.items():
        if rows % mesh.size:
            raise ValueError(
                f'{name.replace("__", ".")}={rows} rows are not divisible by {mesh.size} devices; choose a multiple of that'
            )


def rule_of(path: tuple) -> tuple[str | None, ...]:
    """The entry of RULES for a path in a tree; () if there is none."""
    return RULES.get(getattr(path[-1], 'key', ''), ()) if path else ()


def spec_of(path: tuple, leaf: jax.ShapeDtypeStruct | jax.Array) -> P:
    """Where a leaf of parameters or of a whole training state lies, by RULES."""
    rule = rule_of(path)
    return P(*(None,) * (leaf.ndim - len(rule)), *rule) if rule else P()


def shardings_of(mesh: Mesh, tree: object) -> object:
    """The same tree of `NamedSharding`s."""

    def one(path: tuple, leaf: jax.ShapeDtypeStruct | jax.Array) -> NamedSharding:
        # As compiled programs give them back: jit takes another spelling of the same place for another place.
        axes = [axis if axis and mesh.shape[axis] > 1 else None for axis in spec_of(path, leaf)]
        while axes and axes[-1] is None:
            axes.pop()
        return NamedSharding(mesh, P(*axes))

    return jax.tree_util.tree_map_with_path(one, tree)


def local_rows(mesh: Mesh, rows: int) -> np.ndarray:
    """Which rows of a global batch this process's devices have, ascending."""
    sharding = NamedSharding(mesh, ROWS)
    parts = sharding.addressable_devices_indices_map((rows,)).values()
    return np.unique(np.concatenate([np.arange(rows)[part] for part in parts]))


def to_global(mesh: Mesh, local: np.ndarray, at: np.ndarray, rows: int) -> jax.Array:
    """A global batch array of which this process gives its own rows: `at` is `local_rows(mesh, rows)`."""

    def part(index: tuple | None) -> np.ndarray:
        wanted = np.arange(rows)[index[0] if index else slice(None)]
        return local[np.searchsorted(at, wanted)]

    return jax.make_array_from_callback((rows, *local.shape[1:]), NamedSharding(mesh, ROWS), part)
