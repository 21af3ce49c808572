"""Devices that are not there, to compile for."""

import functools
import importlib.util
import os
from collections.abc import Sequence

import jax
import pytest
from jax.experimental import topologies


@functools.cache
def tpu_devices(name: str, **more: int) -> Sequence[jax.Device]:
    """TPUs of the topology `name`, as v5e:2x4; skips the test where libtpu is not installed."""
    if importlib.util.find_spec('libtpu') is None:
        pytest.skip('needs libtpu (pip install -e .[tpu])')
    os.environ |= {'ALLOW_MULTIPLE_LIBTPU_LOAD': '1', 'TPU_SKIP_MDS_QUERY': '1'}
    return topologies.get_topology_desc(platform='tpu', topology_name=name, **more).devices
