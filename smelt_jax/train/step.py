"""One update: gradients of a batch in microbatches, the optimizer, the metrics."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from smelt_jax.batch import Batch
from smelt_jax.model.config import LoopConfig, ModelConfig
from smelt_jax.model.transformer import Transformer
from smelt_jax.train.config import LossConfig, OptimConfig
from smelt_jax.train.loss import LossSums, objective
from smelt_jax.train.optimizer import apply, optimizer
from smelt_jax.train.state import TrainState

Metrics = dict[str, jax.Array]


@functools.cache
def make_step(model: ModelConfig, loss: LossConfig, optim: OptimConfig) -> jax.stages.Wrapped:
    """Builds `step(state, batch, lr) -> (state, metrics)`, jitted with the state donated. The same settings get the same
    function, compiled once, whatever the learning rate: a trunk's branches use the trunk's.

    A batch is cut into `optim.accumulate` microbatches of consecutive rows; the gradient is that of the mean over all real
    targets of the batch, however they are spread over the microbatches.

    Metrics: `loss` (cross-entropy alone, nats per target), `balance`, `router_z`, `grad_norm` (before clipping), `lr`,
    `targets`, `tokens`, and by visit v = 1, 2, …: `load_max_v` (the fullest expert over the mean, worst layer) and
    `unused_v` (share of experts nobody chose).
    """

    transformer, transformation = Transformer(model), optimizer(optim)

    def step(state: TrainState, batch: Batch, lr: jax.Array) -> tuple[TrainState, Metrics]:
        grads, sums, counts_XE = gradients(state.params, transformer, batch, loss, optim.accumulate)
        direction, opt_state = transformation.update(grads, state.opt_state, state.params)
        tokens, targets = jnp.maximum(sums.tokens, 1), jnp.maximum(sums.targets, 1)
        metrics = {
            'loss': sums.cross_entropy / targets,
            'balance': sums.balance / tokens,
            'router_z': sums.router_z / tokens,
            'grad_norm': optax.tree.norm(grads),
            'lr': lr,
            'targets': sums.targets,
            'tokens': sums.tokens,
            **_load(counts_XE, model.loop),
        }
        return TrainState(state.step + 1, apply(state.params, direction, lr), opt_state), metrics

    return jax.jit(step, donate_argnums=0)


def gradients(
    params: dict, model: Transformer, batch: Batch, loss: LossConfig, accumulate: int
) -> tuple[dict, LossSums, jax.Array]:
    """Gradients of `objective` over a batch, its sums, and counts_XE; one microbatch in memory at a time."""
    rows = batch.tokens_BT.shape[0]
    if rows % accumulate:
        raise ValueError(f'data.batch_rows={rows} is not divisible by optim.accumulate={accumulate}')
    targets = jnp.sum(batch.loss_mask_BT)
    tokens = jnp.sum(batch.segment_ids_BT > 0, dtype=jnp.float32)

    def part(microbatch: Batch) -> Any:
        grads, (sums, counts_XE) = jax.grad(objective, has_aux=True)(params, model, microbatch, loss, targets, tokens)
        return grads, sums, counts_XE

    if accumulate == 1:
        return part(batch)
    microbatches = jax.tree.map(lambda array: array.reshape(accumulate, rows // accumulate, *array.shape[1:]), batch)
    first = jax.tree.map(lambda array: array[0], microbatches)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(part, first))
    total, _ = jax.lax.scan(lambda total, micro: (jax.tree.map(jnp.add, total, part(micro)), None), zeros, microbatches)
    return total


def _load(counts_XE: jax.Array, loop: LoopConfig) -> Metrics:
    """Router load by visit: prelude and coda count as visit 1."""
    metrics = {}
    for visit in range(loop.visits):
        start = loop.start + visit * loop.length
        layers = counts_XE[start : start + loop.length]
        if visit == 0:
            layers = jnp.concatenate(
                [counts_XE[: loop.start], layers, counts_XE[loop.start + loop.visits * loop.length :]]
            )
        mean = jnp.maximum(jnp.mean(layers, axis=-1), 1e-9)
        metrics[f'load_max_{visit + 1}'] = jnp.max(jnp.max(layers, axis=-1) / mean)
        metrics[f'unused_{visit + 1}'] = jnp.mean(layers == 0)
    return metrics
