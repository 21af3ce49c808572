"""Which implementation and which blocks: what the caller says, what was measured, a rule of thumb, in this order."""

import jax
import jax.numpy as jnp
import pytest
from models import assert_close

from pallas_kernels import IMPLEMENTATIONS, Settings, best, settings
from pallas_kernels.settings import MEASURED
from tests.kernels.cases import D, F, distinct, inputs, measured

SHAPE = {'slots': 32768, 'experts': 32, 'width': 256, 'ffn_width': 96, 'dtype': jnp.float32}
LARGE = {'slots': 32768, 'experts': 12, 'width': 2304, 'ffn_width': 768, 'dtype': jnp.bfloat16}


def test_auto_is_the_best_of_this_backend():
    assert settings('expert_ffn', **SHAPE).implementation == best('cpu') == 'xla'
    assert best('tpu') == 'pallas_tpu'
    assert {best(platform) for platform in ('tpu', 'gpu', 'cuda', 'rocm', 'cpu')} <= set(IMPLEMENTATIONS)
    with pytest.raises(ValueError, match="platform='abacus': choose one of tpu"):
        best('abacus')


@pytest.mark.parametrize('implementation', ['xla', 'pallas_tpu'])
@pytest.mark.parametrize('kernel', ['expert_ffn', 'grouped_matmul'])
def test_explicit_before_measured_before_the_rule(kernel, implementation, monkeypatch):
    rule = settings(kernel, implementation=implementation, **SHAPE)
    assert rule.source in ('rule of thumb', 'measured')
    monkeypatch.setitem(MEASURED, (kernel, implementation, 256, 96, 1024), 48)
    assert settings(kernel, implementation=implementation, **SHAPE)[1:] == (48, 1, 'measured')
    explicit = settings(kernel, implementation=implementation, block_rows=80, **SHAPE)
    assert explicit[1:] == (80, 1, 'explicit')


def test_the_kernel_runs_with_what_is_shown(monkeypatch):
    """A measured block of 24 rows: another program, the same numbers."""
    experts_TK = distinct(40, 1, range(4))
    primals, dy = inputs('expert_ffn', experts_TK, 4)
    monkeypatch.setitem(MEASURED, ('expert_ffn', 'xla', D, F, 16), 24)
    fresh = jax.jit(lambda *arrays: measured.__wrapped__('expert_ffn', 'xla', 4, *arrays))
    assert f'24x{D}xf32' in fresh.lower(primals, experts_TK, dy).as_text()
    assert_close(fresh(primals, experts_TK, dy), measured('expert_ffn', 'plain', 4, primals, experts_TK, dy), 1e-5)


def test_parts_of_a_large_expert():
    assert settings('expert_ffn', implementation='pallas_tpu', **LARGE) == Settings(
        'pallas_tpu', 256, 3, 'rule of thumb'
    )
    assert settings('expert_ffn', implementation='reference', **LARGE).block_rows == 0


def test_blocks_of_very_wide_experts_have_fewer_rows():
    wide = {'slots': 8192, 'experts': 8, 'width': 5120, 'ffn_width': 2048, 'dtype': jnp.bfloat16}
    wide |= {'implementation': 'pallas_tpu'}
    assert settings('expert_ffn', **wide).block_rows == 128
    with pytest.raises(ValueError, match='use fewer rows a block'):
        settings('expert_ffn', **wide, block_rows=256)


@pytest.mark.parametrize(
    ('kernel', 'more', 'complaint'),
    [
        ('combine', {}, "kernel='combine' has no blocks: choose one of expert_ffn, grouped_matmul"),
        ('expert_ffn', {'block_rows': 0}, 'block_rows=0: a block has at least one row'),
        ('expert_ffn', {'implementation': 'pallas_tpu', 'block_rows': 17}, 'block_rows=17 are not divisible by 16'),
        ('grouped_matmul', {'implementation': 'pallas_gpu', 'block_rows': 48}, 'block_rows=48: .* a power of two'),
        ('grouped_matmul', {'implementation': 'pallas_tpu', 'width': 1, 'dtype': jnp.bfloat16}, 'from 2 on'),
        ('expert_ffn', {'implementation': 'fast'}, "implementation='fast'"),
        ('expert_ffn', {'implementation': 'pallas_tpu', 'width': 10**6}, 'use fewer rows a block'),
    ],
)
def test_what_is_not_there_is_refused(kernel, more, complaint):
    with pytest.raises(ValueError, match=complaint):
        settings(kernel, **(SHAPE | more))
