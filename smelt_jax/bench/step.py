"""The training step of a config: tokens/s and MFU against the matmul rate of the same machine in the same process."""

import os
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from smelt_jax.batch import Batch
from smelt_jax.budget.accounting import budget_of
from smelt_jax.budget.attended import mean_attended_keys
from smelt_jax.config import RunConfig
from smelt_jax.data.records import Row
from smelt_jax.data.rows import to_batch
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.peak import matmul_flops
from smelt_jax.train.state import init_state
from smelt_jax.train.step import make_step

DOCUMENT_TOKENS = 200  # of the made-up rows, on average


def measure(run: RunConfig, repeats: int = 10) -> dict[str, Any]:
    """Times `repeats` updates on made-up rows of documents, a matmul before each.

    Returns:
      `seconds` and `cpu_seconds` a step (medians), `tokens_per_second`, `matmul_flops` (median FLOP/s), `mfu` (median of the
      ratio of each step to the matmul before it: model FLOPs with the head, without what is rematerialised),
      `mfu_without_head`, `compile_seconds`, `temporary_bytes` of the compiled step, `load_average`.
    """
    batch = made_up_batch(run)
    tokens = batch.tokens_BT.size
    state = jax.jit(lambda: init_state(run.model, optimizer(run.optim), run.seed))()
    lr = jnp.float32(run.optim.peak_lr)
    start = time.perf_counter()
    step = make_step(run.model, run.loss, run.optim).lower(state, batch, lr).compile()
    compile_seconds = time.perf_counter() - start
    state, metrics = step(state, batch, lr)
    flops = budget_of(run.model, attended(batch)).train_flops
    seconds, cpu_seconds, rates = [], [], []
    for _ in range(repeats):
        rates.append(matmul_flops(run.model.dtype, repeats=3))
        wall, cpu = time.perf_counter(), time.process_time()
        state, metrics = step(state, batch, lr)
        jax.block_until_ready(metrics)
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
    memory = step.memory_analysis()
    per_second = [tokens / value / rate for value, rate in zip(seconds, rates, strict=True)]
    return {
        'tokens': tokens,
        'flops_per_token': flops.total,
        'seconds': statistics.median(seconds),
        'cpu_seconds': statistics.median(cpu_seconds),
        'tokens_per_second': tokens / statistics.median(seconds),
        'matmul_flops': statistics.median(rates),
        'mfu': flops.total * statistics.median(per_second),
        'mfu_without_head': flops.non_embedding * statistics.median(per_second),
        'compile_seconds': compile_seconds,
        'temporary_bytes': memory.temp_size_in_bytes if memory else None,
        'load_average': os.getloadavg()[0],
    }


def made_up_batch(run: RunConfig) -> Batch:
    """A batch of random tokens in documents of random lengths: the shapes of training, no file."""
    shape = (run.data.batch_rows, run.pack.row_tokens + 1)
    random = np.random.default_rng(run.seed)
    borders = random.random(shape) < 1 / DOCUMENT_TOKENS
    borders[:, 0] = True
    at = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
    starts = np.maximum.accumulate(np.where(borders, at, 0), axis=1)
    tokens = random.integers(0, run.model.vocab, shape, dtype=np.int32)
    segments = np.cumsum(borders, axis=1, dtype=np.int32)
    unknown = np.zeros(shape, np.int32)
    return to_batch([Row(*columns) for columns in zip(tokens, segments, at - starts, unknown, unknown, strict=True)])


def attended(batch: Batch) -> float:
    """T̄ of a batch."""
    lengths = [np.unique(row, return_counts=True)[1] for row in batch.segment_ids_BT]
    return mean_attended_keys(np.concatenate(lengths))
