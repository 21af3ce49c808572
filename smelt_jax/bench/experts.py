"""The experts of a config alone: time forward and backward against that of as many FLOPs in plain matrix products."""

import functools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels import ExpertWeights, expert_ffn, settings
from smelt_jax.config import RunConfig

SIZE = 2048  # of the product that passes are compared to


def measure(run: RunConfig, repeats: int = 10) -> dict[str, Any]:
    """Times `repeats` passes of one layer's experts over a batch of tokens with random choices, a matmul before each.

    Returns:
      `tokens`; `flops` of a pass forward and backward, nothing that is computed again; `forward_seconds`, `seconds` and
      `cpu_seconds` of a pass (medians); `matmul_flops` (median FLOP/s); `matmul_seconds`, what the FLOPs would take at that
      rate; `ratio`, the median of each pass to the matmul before it, and `cpu_ratio`, that of their CPU seconds, which other
      load changes less; `implementation`, `block_rows` and their source;
      `temporary_bytes` of the compiled pass; `load_average`.
    """
    model, tokens = run.model, run.data.batch_rows * run.pack.row_tokens
    experts, dtype = model.experts, jnp.dtype(model.dtype)
    x_TD, weights_TK, experts_TK, weights, dy_TD = made_up(
        tokens, model.width, experts.count, experts.per_token, experts.width, dtype, run.seed
    )

    def forward(experts_TK: jax.Array, *primals: Any) -> jax.Array:
        return expert_ffn(primals[0], primals[1], experts_TK, primals[2])

    def both(dy_TD: jax.Array, experts_TK: jax.Array, *primals: Any) -> Any:
        y_TD, pull = jax.vjp(functools.partial(forward, experts_TK), *primals)
        return y_TD, pull(dy_TD)

    # Choices are an argument: as a constant, the compiler would sort them.
    arguments = experts_TK, x_TD, weights_TK, weights
    passes = [jax.jit(forward).lower(*arguments).compile(), jax.jit(both).lower(dy_TD, *arguments).compile()]
    product, matrix = jax.jit(jnp.matmul), jnp.ones((SIZE, SIZE), dtype)
    shown = settings(
        'expert_ffn',
        slots=experts_TK.size,
        experts=experts.count,
        width=model.width,
        ffn_width=experts.width,
        dtype=dtype,
    )
    flops = 3 * 3 * 2 * experts_TK.size * model.width * experts.width
    forward_seconds, seconds, cpu_seconds, rates, cpu_rates = [], [], [], [], []
    for call in ((passes[0], *arguments), (passes[1], dy_TD, *arguments), (product, matrix, matrix)):
        timed(*call)
    for _ in range(repeats):
        # The best of three: what else runs on a shared machine only slows a product down.
        wall, cpu = min(timed(product, matrix, matrix) for _ in range(3))
        rates.append(2 * SIZE**3 / wall)
        cpu_rates.append(2 * SIZE**3 / cpu)
        forward_seconds.append(timed(passes[0], *arguments)[0])
        wall, cpu = timed(passes[1], dy_TD, *arguments)
        seconds.append(wall)
        cpu_seconds.append(cpu)
    memory = passes[1].memory_analysis()
    return {
        'tokens': tokens,
        'flops': flops,
        'forward_seconds': statistics.median(forward_seconds),
        'seconds': statistics.median(seconds),
        'cpu_seconds': statistics.median(cpu_seconds),
        'matmul_flops': statistics.median(rates),
        'matmul_seconds': flops / statistics.median(rates),
        'ratio': statistics.median(value * rate / flops for value, rate in zip(seconds, rates, strict=True)),
        'cpu_ratio': statistics.median(
            value * rate / flops for value, rate in zip(cpu_seconds, cpu_rates, strict=True)
        ),
        **shown._asdict(),
        'temporary_bytes': memory.temp_size_in_bytes if memory else None,
        'load_average': os.getloadavg()[0],
    }


def made_up(
    tokens: int, width: int, experts: int, choices: int, ffn_width: int, dtype: jnp.dtype, seed: int
) -> tuple[jax.Array, jax.Array, jax.Array, ExpertWeights, jax.Array]:
    """x_TD, weights_TK, experts_TK, expert weights and the cotangent of y. A token's choices are distinct."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32) / shape[-2] ** 0.5, dtype)

    scores_TE = rng.random((tokens, experts), np.float32)
    experts_TK = jnp.asarray(np.argsort(-scores_TE, axis=1)[:, :choices], jnp.int32)
    weights_TK = jnp.full((tokens, choices), 1 / choices, jnp.float32)
    weights = ExpertWeights(
        normal(experts, width, ffn_width), normal(experts, width, ffn_width), normal(experts, ffn_width, width)
    )
    return normal(tokens, width), weights_TK, experts_TK, weights, normal(tokens, width)


def timed(function: Callable, *arguments: Any) -> tuple[float, float]:
    """Seconds of one call, and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - wall, time.process_time() - cpu
