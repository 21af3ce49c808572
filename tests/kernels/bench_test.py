"""The measurement of kernels: peers compute the same, and a wrong kernel is named."""

import jax.numpy as jnp
import pytest
from models import assert_close, jit

import pallas_kernels
from pallas_kernels import bench, moves_xla
from pallas_kernels.peers import PEERS


def test_a_peer_computes_the_same():
    case = bench.made_up(50, (5, 3, 24, 16), jnp.float32)

    @jit
    def both(experts_TK, x_TD, weights_TK, weights):
        plain = pallas_kernels.expert_ffn(x_TD, weights_TK, experts_TK, weights, implementation='reference')
        return PEERS['ragged_dot'](5)(experts_TK, x_TD, weights_TK, weights), plain

    assert_close(*both(case.experts_TK, case.x_TD, case.weights_TK, case.weights), 1e-5)


@pytest.mark.parametrize('factor', [1, 1.02, jnp.nan])
def test_a_wrong_kernel_is_named(factor, monkeypatch, capsys):
    monkeypatch.setattr(bench, 'ODD', (3, 2, 16, 8))
    right = moves_xla.weighted_rows
    monkeypatch.setattr(moves_xla, 'weighted_rows', lambda *arrays: (factor * right(*arrays)).astype(arrays[0].dtype))
    assert bench.check(bench.Setup('xla', False, {}, 8)) == (factor == 1)
    words = {line.split()[1]: line.split()[0] for line in capsys.readouterr().out.splitlines()}
    moved = 'ok' if factor == 1 else 'WRONG'
    assert words == {'expert_ffn': 'ok', 'dispatch': moved, 'combine': moved, 'grouped_matmul': 'ok'}
