"""The GPU kernels compile for an H100 at the widths of real models, forward and backward, without a GPU.

Needs jax's CUDA plugin, which launch/gpu_compile.sh installs; skipped without.
"""

import importlib.util
import os

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from smelt_jax.aot.gpus import h100s
from tests.kernels.cases import KERNELS, shapes, with_gradients

# (experts, D, F) of the 200M and 1.6B models, baseline and looped, with as many experts as one of several devices has.
MODELS = {
    '200m': (16, 1056, 352),
    '200m looped': (8, 1280, 432),
    '1.6b': (18, 1848, 640),
    '1.6b looped': (12, 2304, 768),
}
T, K = 8192, 4


@pytest.fixture(scope='module')
def h100():
    if importlib.util.find_spec('jax_plugins') is None or importlib.util.find_spec('jax_plugins.xla_cuda13') is None:
        pytest.skip("needs jax's CUDA plugin (launch/gpu_compile.sh)")
    os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'  # nothing runs: cuDNN and the like need not be there
    return SingleDeviceSharding(h100s(1)[0])


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float32], ids=['bfloat16', 'float32'])
@pytest.mark.parametrize('model', MODELS)
@pytest.mark.parametrize('kernel', KERNELS)
def test_compiles_as_its_own_kernels(h100, kernel, model, dtype):
    """A custom call for every kernel, forward and backward."""
    arguments = shapes(kernel, T, K, *MODELS[model], dtype)
    arguments = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=h100), arguments)
    program = jax.jit(with_gradients(kernel, 'pallas_gpu', MODELS[model][0])).lower(*arguments).compile()
    calls = {'expert_ffn': 9, 'grouped_matmul': 3, 'combine': 2, 'dispatch': 2}[kernel]
    assert program.as_text().count('custom_call_target="__gpu$xla.gpu.triton"') == calls


def test_the_ffn_keeps_no_rows_for_the_backward_pass(h100):
    """Beside its results it needs at most two arrays of T · K rows of width D at a time, and four of width F."""
    experts, width, ffn_width = MODELS['1.6b']
    arguments = shapes('expert_ffn', T, K, experts, width, ffn_width, jnp.bfloat16)
    arguments = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=h100), arguments)
    program = jax.jit(with_gradients('expert_ffn', 'pallas_gpu', experts)).lower(*arguments).compile()
    rows, weight_gradients = T * K * 2 * (2 * width + 4 * ffn_width), 3 * experts * width * ffn_width * 4
    assert program.memory_analysis().temp_size_in_bytes < rows + weight_gradients
