"""Block sizes: what the caller says, or else what was measured best, or else a rule of thumb."""

from typing import NamedTuple

import jax.numpy as jnp

from pallas_kernels import expert_ffn_xla, grouped_matmul_xla
from pallas_kernels.choice import choose
from pallas_kernels.gpu import expert_ffn as expert_ffn_gpu
from pallas_kernels.gpu import grouped_matmul as grouped_matmul_gpu
from pallas_kernels.tpu import expert_ffn as expert_ffn_tpu
from pallas_kernels.tpu import grouped_matmul as grouped_matmul_tpu

# (kernel, implementation, D, F, rows an expert rounded up to a power of two) → rows of a block.
MEASURED: dict[tuple[str, str, int, int, int], int] = {
    ('expert_ffn', 'xla', 256, 96, 1024): 384,  # two cores of an AMD EPYC
}

_RULES = {
    ('expert_ffn', 'xla'): expert_ffn_xla.block_rows,
    ('expert_ffn', 'pallas_tpu'): expert_ffn_tpu.block_rows,
    ('expert_ffn', 'pallas_gpu'): expert_ffn_gpu.block_rows,
    ('grouped_matmul', 'xla'): grouped_matmul_xla.block_rows,
    ('grouped_matmul', 'pallas_tpu'): grouped_matmul_tpu.block_rows,
    ('grouped_matmul', 'pallas_gpu'): grouped_matmul_gpu.block_rows,
}


_CHECKS = {'pallas_tpu': expert_ffn_tpu.check_rows, 'pallas_gpu': grouped_matmul_gpu.check_rows}


class Settings(NamedTuple):
    """How a kernel runs.

    Attributes:
      implementation: with `auto` resolved.
      block_rows: rows that are worked on at a time, all of one expert; 0 for the reference, which has no blocks.
      parts: how many parts of the expert width F are worked through one after the other; more than 1 where an expert's
        weights do not fit into a TPU's fast memory.
      source: where `block_rows` is from, `explicit`, `measured` or `rule of thumb`.
    """

    implementation: str
    block_rows: int
    parts: int
    source: str


def settings(
    kernel: str,
    *,
    slots: int,
    experts: int,
    width: int,
    ffn_width: int,
    dtype: jnp.dtype,
    implementation: str = 'auto',
    block_rows: int | None = None,
    interpret: bool = False,
) -> Settings:
    """What `expert_ffn` or `grouped_matmul` would do with these arguments.

    Args:
      kernel: `expert_ffn` or `grouped_matmul`.
      slots: T · K, or the rows of `grouped_matmul`.
      experts, width, ffn_width: E, D and F.
      dtype: of tokens and weights.
      implementation, block_rows, interpret: as given to the kernel.

    Raises:
      ValueError: for a kernel without blocks, an implementation that is not there, or experts that do not fit.
    """
    kernels = sorted({name for name, _ in _RULES})
    if kernel not in kernels:
        raise ValueError(f'{kernel=} has no blocks: choose one of {", ".join(kernels)}')
    if block_rows is not None and block_rows < 1:
        raise ValueError(f'{kernel} {block_rows=}: a block has at least one row; None takes the best known')
    implementation = choose(kernel, implementation, interpret)
    if block_rows is not None and implementation in _CHECKS:
        _CHECKS[implementation](block_rows)
    if implementation == 'reference':
        return Settings(implementation, 0, 1, 'rule of thumb')
    group = 1 << (max(1, slots // experts) - 1).bit_length()
    measured = MEASURED.get((kernel, implementation, width, ffn_width, group))
    if block_rows is not None:
        rows, source = block_rows, 'explicit'
    elif measured is not None:
        rows, source = measured, 'measured'
    else:
        rows, source = _RULES[kernel, implementation](slots, experts), 'rule of thumb'
    parts = 1
    if implementation == 'pallas_tpu' and jnp.dtype(dtype).itemsize == 2 and min(width, ffn_width) == 1:
        raise ValueError(f'{kernel} {width=}, {ffn_width=}: TPU kernels take widths of 16-bit numbers from 2 on')
    if (kernel, implementation) == ('expert_ffn', 'pallas_tpu'):
        if source == 'rule of thumb':
            rows = expert_ffn_tpu.rows_that_fit(rows, width, ffn_width, dtype)
        parts = expert_ffn_tpu.parts_of(rows, width, ffn_width, dtype)
    return Settings(implementation, rows, parts, source)
