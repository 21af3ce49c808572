"""The rate of matrix products on this machine: what MFU is measured against."""

import time

import jax
import jax.numpy as jnp


def matmul_flops(dtype: str, size: int = 2048, repeats: int = 15) -> float:
    """FLOP/s of a square product of `size` in `dtype` on one device of the default backend; the best of `repeats`,
    since what else runs on a shared machine only slows a product down.

    On a CPU all devices share the cores: there it is the rate of the machine.
    """
    product = jax.jit(jnp.matmul)
    matrix = jnp.ones((size, size), dtype)
    product(matrix, matrix).block_until_ready()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def peak_flops(given: float, dtype: str) -> float:
    """FLOP/s of all devices: `given` if it is not 0, else measured."""
    if given:
        return given
    devices = 1 if jax.default_backend() == 'cpu' else jax.device_count()
    return matmul_flops(dtype) * devices
