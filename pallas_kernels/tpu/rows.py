"""Rows from anywhere in a TPU's main memory, one asynchronous copy each, while the rows before them are worked on."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

UNROLL = 8


def index_specs(rows: int, axis: int, blocks: int) -> list[pl.BlockSpec]:
    """Of an index array [N, 1, rows] that is given twice: a block's own rows, and those of the next one."""

    def at(ahead: int):
        return lambda *ids: (jnp.minimum(ids[axis] + ahead, blocks - 1), 0, 0)

    return [pl.BlockSpec((1, 1, rows), at(ahead), memory_space=pltpu.SMEM) for ahead in (0, 1)]


def scratch(rows: int, words: int, dtype: jnp.dtype, sources: int = 1) -> list:
    """Two buffers of each source, of which one is filled while the other is read, and their semaphores."""
    return [pltpu.VMEM((sources, 2, rows, words), dtype), pltpu.SemaphoreType.DMA((sources, 2))]


def fetch(axis: int, here_ref, next_ref, sources, buffer_ref, semaphores) -> list[jax.Array]:
    """The rows `here_ref` of each source, as words. Those of `next_ref` are started.

    Args:
      axis: the grid's axis over blocks, the fastest one.
      here_ref, next_ref: [1, 1, rows], see `index_specs`.
      sources: references to arrays in main memory.
      buffer_ref, semaphores: see `scratch`.
    """
    block, blocks = pl.program_id(axis), pl.num_programs(axis)
    rows = buffer_ref.shape[2]

    def start(index_ref, half) -> None:
        def one(i: jax.Array, _: None) -> None:
            for number, source in enumerate(sources):
                row, room = source.at[pl.ds(index_ref[0, 0, i], 1)], buffer_ref.at[number, half, pl.ds(i, 1)]
                pltpu.make_async_copy(row, room, semaphores.at[number, half]).start()

        lax.fori_loop(0, rows, one, None, unroll=min(UNROLL, rows))

    half = lax.rem(block, 2)

    @pl.when(block == 0)
    def _() -> None:
        start(here_ref, half)

    @pl.when(block + 1 < blocks)
    def _() -> None:
        start(next_ref, 1 - half)

    found = []
    for number in range(len(sources)):
        whole = buffer_ref.at[number, half]
        # One wait for the bytes of all rows.
        pltpu.make_async_copy(whole, whole, semaphores.at[number, half]).wait()
        found.append(whole[...])
    return found
