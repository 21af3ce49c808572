"""ConfigDict → `RunConfig`. The one file that knows ml_collections.

An experiment file holds `get_config(arg)`, which starts from `default_config()` and sets what differs. Flags override it,
key by key and type by type; `resolve` freezes and checks the result. There is no other place where a default hides.
"""

import dataclasses
import math
import types
import typing
from typing import Any

from ml_collections import ConfigDict

from smelt_jax.data.config import PackConfig, RowsConfig
from smelt_jax.evaluate.config import HeldoutConfig
from smelt_jax.model.config import ModelConfig
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.train.config import LossConfig, OptimConfig, TrainConfig


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on, one member a room. `name` labels records and figures, `seed` starts all randomness."""

    name: str = 'run'
    seed: int = 0
    pack: PackConfig = PackConfig()
    data: RowsConfig = RowsConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()
    heldout: HeldoutConfig = HeldoutConfig()
    mesh: MeshConfig = MeshConfig()

    def check(self) -> None:
        """Raises ValueError, naming key, value and remedy, on a value that no run could have."""
        if not self.name:
            raise ValueError("name='': records and figures need one, config.name")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f'seed={self.seed}: must be at least 0 and below 2**32')
        for room in (self.pack, self.data, self.model, self.loss, self.optim, self.train, self.heldout, self.mesh):
            room.check()


def default_config() -> ConfigDict:
    """All keys of a run with their defaults, as experiment files and flags edit them."""
    return ConfigDict(to_dict(RunConfig()))


def to_dict(config: Any) -> dict[str, Any]:
    """A frozen config as plain nested dicts, for config.json and for diffs. Inverse of `from_dict`."""
    return dataclasses.asdict(config)


def resolve(config: ConfigDict) -> RunConfig:
    """ConfigDict → RunConfig. Raises ValueError, naming the key, on an unknown key, a wrong type or an impossible value."""
    run = from_dict(RunConfig, config.to_dict())
    run.check()
    return run


def from_dict(cls: type, values: dict[str, Any], where: str = '') -> Any:
    """Builds the dataclass `cls` from nested dicts, with every key known, present and of its field's type."""
    if not isinstance(values, dict):
        raise ValueError(f'{where.rstrip(".")}={values!r}: has keys of its own, set one of them')
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in names:
            raise ValueError(f'unknown key {where}{key}; known here: {", ".join(names)}')
    for name in names:
        if name not in values:
            raise ValueError(f'{where}{name} is missing; a config.json of this version has it')
    return cls(**{name: _cast(hints[name], values[name], where + name) for name in names})


def diff(old: Any, new: Any, where: str = '') -> list[str]:
    """Lines `key: old -> new`, one for every leaf in which two nested dicts differ; empty if they are the same."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if _plain(old) == _plain(new) else [f'{where}: {old!r} -> {new!r}']
    absent = '(absent)'
    lines = []
    for key in sorted(old.keys() | new.keys()):
        lines += diff(old.get(key, absent), new.get(key, absent), f'{where}.{key}' if where else key)
    return lines


def _cast(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return from_dict(typing.cast(type, kind), value, where + '.')
    if typing.get_origin(kind) is tuple:
        item, _ = typing.get_args(kind)
        if not isinstance(value, list | tuple):
            raise ValueError(f'{where}={value!r}: expected a sequence of {item.__name__}')
        return tuple(_cast(item, entry, f'{where}[{i}]') for i, entry in enumerate(value))
    if typing.get_origin(kind) is types.UnionType:
        return None if value is None else _cast(typing.get_args(kind)[0], value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if type(value) is not kind:
        raise ValueError(f'{where}={value!r}: expected {kind.__name__}, got {type(value).__name__}')
    if kind is float and not math.isfinite(value):
        raise ValueError(f'{where}={value!r}: expected a finite number')
    if kind is int and not -(2**63) <= value < 2**63:
        raise ValueError(f'{where}={value!r}: too large; a whole number of 64 bits is the most')
    return value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
