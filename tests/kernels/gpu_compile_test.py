"""The GPU kernels compile for an H100 at the widths of real models, forward and backward, without a GPU.

Needs jax's CUDA plugin, which launch/gpu_compile.sh installs; skipped without.
"""

import jax
import jax.numpy as jnp
import pytest
from topologies import devices_of

from tests.kernels.cases import COMPILED, KERNELS, MODELS, shapes, with_gradients

T, K = COMPILED

CASES = [
    *((kernel, model, jnp.bfloat16) for kernel in KERNELS for model in MODELS),
    *((kernel, '1.6b', jnp.float32) for kernel in KERNELS),
]


@pytest.fixture(scope='module')
def h100():
    return jax.sharding.Mesh(devices_of('h100:1'), ('device',))


def compiled(mesh, kernel, model, dtype, tokens=T):
    """The program of a kernel and its gradient, in a shard_map as in training: so Triton is told of the device."""
    arguments = shapes(kernel, tokens, K, *MODELS[model], dtype)
    everywhere = jax.sharding.PartitionSpec()
    function = jax.shard_map(
        with_gradients(kernel, 'pallas_gpu', MODELS[model][0]),
        mesh=mesh,
        in_specs=everywhere,
        out_specs=everywhere,
        check_vma=False,
    )
    return jax.jit(function).lower(*arguments).compile()


@pytest.mark.parametrize(('kernel', 'model', 'dtype'), CASES)
def test_compiles_as_its_own_kernels(h100, kernel, model, dtype):
    """A custom call for every kernel, forward and backward."""
    calls = {'expert_ffn': 9, 'grouped_matmul': 3, 'combine': 2, 'dispatch': 2}[kernel]
    text = compiled(h100, kernel, model, dtype).as_text()
    assert text.count('custom_call_target="__gpu$xla.gpu.triton"') == calls


def test_the_ffn_keeps_no_rows_for_the_backward_pass(h100):
    """At no time are there two arrays of T · K rows of width D, as there would be with a gathered copy."""
    memory = compiled(h100, 'expert_ffn', '1.6b looped', jnp.bfloat16, tokens=8 * T).memory_analysis()
    rows = 8 * T * K * MODELS['1.6b looped'][1] * 2
    assert rows < memory.temp_size_in_bytes < 2 * rows
