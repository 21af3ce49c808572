"""The GPU kernels compile for an H100 at the widths of real models, forward and backward, without a GPU.

Needs jax's CUDA plugin, which launch/gpu_compile.sh installs; skipped without.
"""

import importlib.util
import os

import jax
import jax.numpy as jnp
import pytest

from smelt_jax.aot.gpus import h100s
from tests.kernels.cases import KERNELS, shapes, with_gradients

# (experts, D, F) of the 200M and 1.6B models, baseline and looped, with as many experts as one of several devices has.
MODELS = {
    '200m': (8, 1280, 432),
    '200m looped': (16, 1056, 352),
    '1.6b': (12, 2304, 768),
    '1.6b looped': (18, 1848, 640),
}
T, K = 1024, 4
CASES = [
    *((kernel, model, jnp.bfloat16) for kernel in KERNELS for model in MODELS),
    *((kernel, '1.6b', jnp.float32) for kernel in KERNELS),
]


@pytest.fixture(scope='module')
def h100():
    if importlib.util.find_spec('jax_plugins') is None or importlib.util.find_spec('jax_plugins.xla_cuda13') is None:
        pytest.skip("needs jax's CUDA plugin (launch/gpu_compile.sh)")
    os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'  # nothing runs: cuDNN and the like need not be there
    return jax.sharding.Mesh(h100s(1), ('device',))


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
