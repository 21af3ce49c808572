"""The TPU kernels compile for v5e, v5p and v6e at the widths of real models, forward and backward, without a TPU.

Interpreted kernels do not show tiles, layouts and the size of the fast memory. This does; it shows no numbers.
"""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding
from topologies import devices_of

from tests.kernels.cases import COMPILED, MODELS, shapes, with_gradients

T, K = COMPILED

TOPOLOGIES = {'v5e': 'v5e:2x4', 'v5p': 'v5p:2x2x1', 'v6e': 'v6e:2x4'}
# Every width and every hardware is seen by the FFN, and every kernel by each hardware.
CASES = [
    ('expert_ffn', 'v5e', '200m looped'),
    ('expert_ffn', 'v5e', '200m'),
    ('expert_ffn', 'v6e', '1.6b looped'),
    ('expert_ffn', 'v5p', '1.6b'),
    *(('grouped_matmul', *pair) for pair in (('v5e', '1.6b'), ('v5p', '200m looped'), ('v6e', '200m'))),
    *(('combine', *pair) for pair in (('v5e', '200m'), ('v5p', '1.6b looped'), ('v6e', '1.6b'))),
    ('dispatch', 'v5p', '200m looped'),
]


def lowered(kernel, hardware, model, dtype=jnp.bfloat16):
    sharding = SingleDeviceSharding(devices_of(TOPOLOGIES[hardware])[0])
    experts, width, ffn_width = MODELS[model]
    arguments = shapes(kernel, T, K, experts, width, ffn_width, dtype)
    arguments = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), arguments)
    return jax.jit(with_gradients(kernel, 'pallas_tpu', experts)).lower(*arguments)


@pytest.mark.parametrize(('kernel', 'hardware', 'model'), CASES)
def test_compiles_as_its_own_kernels(kernel, hardware, model):
    program = lowered(kernel, hardware, model)
    # Of the FFN: a kernel and a combine in either pass. Of combine: itself, and dispatch for its gradient.
    kernels = {'expert_ffn': 4, 'grouped_matmul': 3, 'combine': 2, 'dispatch': 2}[kernel]
    assert program.as_text().count('@tpu_custom_call') == kernels
    program.compile()
