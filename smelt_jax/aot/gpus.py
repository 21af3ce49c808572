"""GPUs that are not there: what XLA has to know of one to compile for it."""

from collections.abc import Sequence
from typing import Any

# Compute capability 9.0 (CUDA programming guide, technical specifications) and NVIDIA's data sheet of the H100 SXM.
_DEVICE: dict[str, Any] = {
    'threads_per_block_limit': 1024,
    'threads_per_warp': 32,
    'threads_per_core_limit': 2048,
    'core_count': 132,
    'fpus_per_core': 128,
    'shared_memory_per_block': 48 * 1024,
    'shared_memory_per_block_optin': 227 * 1024,
    'shared_memory_per_core': 228 * 1024,
    'registers_per_core_limit': 65536,
    'registers_per_block_limit': 65536,
    'block_dim_limit_x': 2**31 - 1,
    'block_dim_limit_y': 65535,
    'block_dim_limit_z': 65535,
    'l2_cache_size': 50 * 2**20,
    'memory_bandwidth': 3_352_000_000_000,
    'clock_rate_ghz': 1.98,
    'device_memory_size': 81_559 * 2**20,
}
_TARGET = """\
gpu_device_info {{
{device}
  cuda_compute_capability {{ major: 9 minor: 0 }}
}}
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def h100s(count: int) -> Sequence[Any]:
    """So many H100 of one host, to compile for. Needs jax's CUDA plugin, and no GPU."""
    from jax.experimental import topologies

    device = '\n'.join(f'  {name}: {value}' for name, value in _DEVICE.items())
    target = _TARGET.format(device=device)
    # slices × hosts × devices of a host; the name says nothing.
    return topologies.get_topology_desc(
        platform='cuda', topology_name='h100', topology=f'1x1x{count}', target_config=target
    ).devices
