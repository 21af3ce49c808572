"""Which implementation of a kernel runs."""

from collections.abc import Callable
from typing import Any

import jax

IMPLEMENTATIONS = ('auto', 'reference', 'xla', 'pallas_tpu', 'pallas_gpu')
PALLAS = ('pallas_tpu', 'pallas_gpu')
_BEST = {'tpu': 'pallas_tpu', 'cuda': 'pallas_gpu', 'gpu': 'pallas_gpu', 'rocm': 'xla', 'cpu': 'xla'}


def best(platform: str) -> str:
    """The implementation that `auto` takes on a platform, `tpu`, `gpu`, `cuda`, `rocm` or `cpu`.

    `auto` asks for the backend of this process. Who compiles for hardware elsewhere passes `best` of its platform on.
    """
    if platform not in _BEST:
        raise ValueError(f'{platform=}: choose one of {", ".join(_BEST)}')
    return _BEST[platform]


def choose(kernel: str, implementation: str, interpret: bool) -> str:
    """`implementation`, with `auto` resolved. ValueError for an unknown one, and for one that is not interpreted."""
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f'{kernel} {implementation=}: choose one of {", ".join(IMPLEMENTATIONS)}')
    if implementation == 'auto':
        # A GPU's backend is called `gpu` whoever made it; the Pallas kernels are for NVIDIA's.
        platform = jax.default_backend()
        amd = platform == 'gpu' and 'rocm' in jax.local_devices()[0].client.platform_version.lower()
        implementation = best('rocm' if amd else platform)
    if interpret and implementation not in PALLAS:
        raise ValueError(f'{kernel} {implementation=} is never interpreted: choose one of {", ".join(PALLAS)}')
    return implementation


def one_by_one(function: Callable, *arrays: jax.Array) -> Any:
    """`function(*arrays)`; under `vmap` it runs once for each entry. Grids whose size is data have no batch axis."""
    return jax.custom_batching.sequential_vmap(function)(*arrays)
