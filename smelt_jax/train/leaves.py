"""The arrays of a checkpoint, leaf by leaf: are they those that the model wants, and where shall they lie."""

from typing import Any

import jax


def check_leaves(found: Any, wanted: Any, where: str) -> None:
    """Raises ValueError for the first leaf that is missing, superfluous, of another shape or dtype: Orbax would pad, cut and
    cast."""
    found_kinds, wanted_kinds = _kinds(found), _kinds(wanted)
    for name in sorted(found_kinds | wanted_kinds):
        have, want = found_kinds.get(name, 'nothing'), wanted_kinds.get(name, 'nothing')
        if have != want:
            raise ValueError(f'{where} is of another model: at {name} it has {have}, the config says {want}')


def placed(tree: Any) -> Any:
    """Abstract arrays with the shapes, dtypes and shardings of `tree`; those without a sharding come to the first device."""

    def of(leaf: Any) -> jax.ShapeDtypeStruct:
        sharding = leaf.sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(of, tree)


def _kinds(tree: Any) -> dict[str, str]:
    """Dtype and shape by path, in one spelling: Orbax reads named tuples back as dicts."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator='/'): f'{leaf.dtype} {tuple(leaf.shape)}'
        for path, leaf in leaves
    }
