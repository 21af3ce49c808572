"""Devices that are not there, to compile for."""

import functools
import os
from collections.abc import Sequence

import jax
import pytest

from smelt_jax.aot.topology import Topology


@functools.cache
def devices_of(name: str, slices: int = 1) -> Sequence[jax.Device]:
    """Those of a topology of `smelt compile`, as v5e:2x4 or h100:1; skips the test where their compiler is not installed."""
    topology = Topology.of(name, slices)
    try:
        topology.prepare()
    except ValueError as missing:
        pytest.skip(str(missing))
    os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'  # nothing runs: cuDNN and the like need not be there
    return topology.devices()
