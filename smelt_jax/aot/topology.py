"""Names of hardware that is not there → devices to compile for, and the memory that a program has on each."""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from typing import Any

from smelt_jax.aot.gpus import h100s
from smelt_jax.aot.units import GIB


@dataclasses.dataclass(frozen=True)
class Chip:
    """A kind of accelerator.

    Attributes:
      title: for people.
      platform: of jax, `tpu`, `cuda` or `cpu`.
      dims: numbers in a topology's name, of which there are as many.
      devices: that jax makes of one chip.
      memory: bytes a program has on a device; 0 is not known.
      source: where that is from.
    """

    title: str
    platform: str
    dims: int
    devices: int
    memory: float
    source: str


_LIBTPU = 'what libtpu 0.0.52 gives a program'
_JAX = 'of {} GiB, three quarters, which jax takes unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise'

CHIPS = {
    'v4': Chip('TPU v4', 'tpu', 3, 2, 15.25 * GIB, _LIBTPU),
    'v5e': Chip('TPU v5e', 'tpu', 2, 1, 15.75 * GIB, _LIBTPU),
    'v5p': Chip('TPU v5p', 'tpu', 3, 1, 95.73 * GIB, _LIBTPU),
    'v6e': Chip('TPU v6e', 'tpu', 2, 1, 31.24 * GIB, _LIBTPU),
    'tpu7x': Chip('TPU7x', 'tpu', 3, 2, 94.74 * GIB, _LIBTPU),
    'h100': Chip('H100 SXM', 'cuda', 1, 1, 0.75 * 79.6 * GIB, _JAX.format('79.6')),
    'cpu': Chip('CPU', 'cpu', 1, 1, 0.0, 'not known'),
}
EXAMPLES = 'v5e:16x16, v5p:4x4x4, v6e:8x8, h100:8, cpu:8'


@dataclasses.dataclass(frozen=True)
class Topology:
    """A number of chips of one kind, joined as `dims` says, `slices` times over.

    Attributes:
      name: as it was given, `v5p:4x4x4`.
      memory: bytes a program has on a device; 0 is not known.
    """

    name: str
    chip: Chip
    dims: tuple[int, ...]
    slices: int
    memory: float

    @classmethod
    def of(cls, name: str, slices: int = 1, memory: float = 0.0) -> 'Topology':
        """Reads a name.

        Args:
          slices: that a slower network joins; only TPUs have them.
          memory: bytes a program has on a device, where they are not the chip's.

        Raises:
          ValueError: it is none; the message says how it would be one.
        """
        kind, _, size = name.partition(':')
        chip = CHIPS.get(kind)
        if chip is None:
            raise ValueError(f'--topology={name}: no hardware {kind!r}; there are {", ".join(CHIPS)}, as in {EXAMPLES}')
        dims = tuple(map(int, size.split('x'))) if re.fullmatch(r'\d+(x\d+)*', size) else ()
        shape = 'x'.join('ABC'[: chip.dims]) if chip.dims > 1 else 'N'
        if len(dims) != chip.dims or 0 in dims:
            raise ValueError(f'--topology={name}: {chip.title} is {kind}:{shape}, as in {EXAMPLES}')
        if slices > 1 and chip.platform != 'tpu':
            raise ValueError(f'--topology={name}: mesh.slices={slices} is for TPUs; {chip.title} has none')
        return cls(name, chip, dims, slices, memory or chip.memory)

    @property
    def count(self) -> int:
        """Devices, as jax counts them."""
        return math.prod(self.dims) * self.chip.devices * self.slices

    @property
    def title(self) -> str:
        """What it is, for people."""
        slices = f'{self.slices} × ' if self.slices > 1 else ''
        cores = f', {self.chip.devices} devices a chip' if self.chip.devices > 1 else ''
        return f'{slices}{self.name} ({self.count} devices of {self.chip.title}{cores})'

    @property
    def memory_source(self) -> str:
        """Where `memory` is from."""
        return self.chip.source if self.memory == self.chip.memory else 'as given'

    def prepare(self) -> None:
        """Sets the environment that `devices` needs; call it before jax is used for anything.

        Raises ValueError if what compiles for this hardware is not installed.
        """
        package, extra = {'tpu': ('libtpu', 'tpu'), 'cuda': ('jax_plugins.xla_cuda13', 'cuda'), 'cpu': ('jax', '')}[
            self.chip.platform
        ]
        if not _installed(package):
            raise ValueError(
                f'--topology={self.name}: the compiler for {self.chip.title} is not installed; pip install -e .[{extra}]'
            )
        os.environ['JAX_PLATFORMS'] = 'cpu'  # nothing runs; and no other program is kept from an accelerator
        if self.chip.platform == 'tpu':
            # Else libtpu asks the network what machine this is, and refuses a second process.
            os.environ |= {'ALLOW_MULTIPLE_LIBTPU_LOAD': '1', 'TPU_SKIP_MDS_QUERY': '1'}
            for name, value in {'TPU_ACCELERATOR_TYPE': 'v5litepod-8', 'TPU_WORKER_HOSTNAMES': 'localhost'}.items():
                os.environ.setdefault(name, value)  # it complains without, and takes the topology all the same
        if self.chip.platform == 'cpu':
            flag = '--xla_force_host_platform_device_count'
            others = [word for word in os.environ.get('XLA_FLAGS', '').split() if not word.startswith(flag)]
            os.environ['XLA_FLAGS'] = ' '.join([*others, f'{flag}={self.count}'])

    def devices(self) -> Sequence[Any]:
        """The devices, to compile for. Raises ValueError if the compiler knows no such hardware."""
        import jax
        from jax.experimental import topologies

        if self.chip.platform == 'cpu':
            found = jax.devices('cpu')
            if len(found) < self.count:
                raise ValueError(f'--topology={self.name}: jax was started with {len(found)} CPU devices')
            return found[: self.count]
        try:
            if self.chip.platform == 'tpu':
                more = {'num_slices': self.slices} if self.slices > 1 else {}
                return topologies.get_topology_desc(platform='tpu', topology_name=self.name, **more).devices
            return h100s(self.count)
        except jax.errors.JaxRuntimeError as error:
            reason = str(error).splitlines()[0].partition(': ')[2]
            raise ValueError(f'--topology={self.name}: {reason}') from None


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package it is in
        return False
