"""Memory of the expert FFN: it does not grow with the number of experts, but for the weights and their own gradient."""

import jax
import jax.numpy as jnp
import pytest
from models import QUICK

from pallas_kernels import ExpertWeights, expert_ffn

T, K, D, F = 256, 4, 64, 24
# The reference runs every expert on every token, and says so; Pallas kernels are measured where they are compiled.
SPARSE = ('auto', 'xla')


def shapes(experts):
    """x, router weights, expert weights, choices and the cotangent of y, as shapes alone."""
    float32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    weights = ExpertWeights(float32(experts, D, F), float32(experts, D, F), float32(experts, F, D))
    return float32(T, D), float32(T, K), weights, jax.ShapeDtypeStruct((T, K), jnp.int32), float32(T, D)


def temporaries(function, experts):
    """Bytes that the compiled program needs beside its arguments and results."""
    compiled = jax.jit(function).lower(*shapes(experts)).compile(QUICK)
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize('implementation', SPARSE)
def test_forward_memory_does_not_grow_with_the_experts(implementation):
    def forward(x_TD, weights_TK, expert_weights, experts_TK, dy_TD):
        return expert_ffn(x_TD, weights_TK, experts_TK, expert_weights, implementation=implementation)

    few, many = temporaries(forward, 16), temporaries(forward, 256)
    # The group ends are there, one or two integers an expert: far from T integers, let alone D floats.
    assert many - few < 32 * (256 - 16)


@pytest.mark.parametrize('implementation', SPARSE)
def test_backward_memory_grows_with_the_gradient_of_the_weights_alone(implementation):
    def backward(x_TD, weights_TK, expert_weights, experts_TK, dy_TD):
        def forward(*primals):
            return expert_ffn(primals[0], primals[1], experts_TK, primals[2], implementation=implementation)

        return jax.vjp(forward, x_TD, weights_TK, expert_weights)[1](dy_TD)

    few, many = temporaries(backward, 16), temporaries(backward, 256)
    assert many - few < (3 * D * F * 4 + 32) * (256 - 16)
