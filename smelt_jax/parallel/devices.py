"""The devices of a run: their mesh, what each has of the model, and how a function runs on each of them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from smelt_jax.model.config import ModelConfig
from smelt_jax.model.share import Share
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.mesh import AXES, ROWS, check_fits, local_rows, make_mesh, shardings_of, spec_of, to_global
from smelt_jax.parallel.shares import add_up, check_kernels, share_of


@dataclasses.dataclass(frozen=True)
class Devices:
    """A mesh and how it is used. Equal ones give the same compiled programs. One device is a mesh of one."""

    mesh: Mesh
    config: MeshConfig = MeshConfig()

    @classmethod
    def of(cls, config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> 'Devices':
        """Over all devices there are, or those given. Raises ValueError if the mesh does not fit them."""
        return cls(make_mesh(config, devices), config)

    @property
    def count(self) -> int:
        """How many."""
        return self.mesh.size

    def __str__(self) -> str:
        """The mesh in words, with what it leaves idle."""
        sizes = ' × '.join(f'{axis}={size}' for axis, size in self.mesh.shape.items())
        count, there = self.count, max(jax.device_count(), self.count)
        processes = f' of {jax.process_count()} processes' if jax.process_count() > 1 else ''
        return f'{sizes} on {count} of {there} {self.mesh.devices.flat[0].platform} devices{processes}'

    def check(self, model: ModelConfig, **batches: int) -> None:
        """See `mesh.check_fits` and `shares.check_kernels`."""
        check_kernels(self.mesh, self.config)
        check_fits(self.mesh, model, **batches)

    def share(self, model: ModelConfig) -> Share:
        """A device's part of the model."""
        return share_of(self.mesh, self.config, model)

    def specs(self, tree: Any) -> Any:
        """Where the leaves of parameters or of a training state lie."""
        return jax.tree_util.tree_map_with_path(spec_of, tree)

    def placed(self, tree: Any) -> Any:
        """Abstract arrays with the shapes of `tree`, or of what it makes if it is a function, and their place on the mesh."""
        shapes = jax.eval_shape(tree if callable(tree) else lambda: tree)
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            shapes,
            shardings_of(self.mesh, shapes),
        )

    def keep(self, tree: Any) -> Any:
        """Inside a jitted function: the values of `tree`, each at its place."""
        return lax.with_sharding_constraint(tree, shardings_of(self.mesh, tree))

    def everywhere(self, tree: Any) -> Any:
        """Inside a jitted function: the values of `tree`, on every device."""
        return lax.with_sharding_constraint(tree, NamedSharding(self.mesh, P()))

    def each(self, function: Callable, in_specs: Any, out_specs: Any) -> Callable:
        """`function`, run by every device on its part of the arguments (`jax.shard_map`); itself on one device."""
        if self.count == 1:
            return function
        # check_vma=False: gradients are taken inside, and added up by `total` and `add_up` where they have to be.
        return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def total(self, array: jax.Array) -> jax.Array:
        """Inside `each`: the sum over all devices."""
        return array if self.count == 1 else lax.psum(array, AXES)

    def add_up(self, gradients: Any) -> Any:
        """Inside `each`: every parameter's gradient over all devices' tokens."""
        return gradients if self.count == 1 else jax.tree_util.tree_map_with_path(add_up, gradients)

    def local_rows(self, rows: int) -> np.ndarray:
        """Which rows of a batch this process reads."""
        return local_rows(self.mesh, rows)

    def batch(self, local: Any, rows: int) -> Any:
        """A global batch of `rows` rows, of which this process gives those of `local_rows`."""
        if self.count == 1:
            return local
        at = self.local_rows(rows)
        return jax.tree.map(lambda array: to_global(self.mesh, array, at, rows), local)


BATCH = ROWS
EVERYWHERE = P()


def one_device() -> Devices:
    """The first device alone."""
    return Devices.of(MeshConfig(fsdp=1), jax.devices()[:1])
