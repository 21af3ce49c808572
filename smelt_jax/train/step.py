"""One update: gradients of a batch in microbatches, the optimizer, the metrics."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from smelt_jax.batch import Batch
from smelt_jax.model.config import LoopConfig, ModelConfig
from smelt_jax.model.experts import RouterSums
from smelt_jax.model.share import ALL
from smelt_jax.model.transformer import Transformer
from smelt_jax.parallel.devices import BATCH, EVERYWHERE, Devices
from smelt_jax.train.config import LossConfig, OptimConfig
from smelt_jax.train.loss import LossSums, Total, itself, objective
from smelt_jax.train.optimizer import apply, optimizer
from smelt_jax.train.state import TrainState

Metrics = dict[str, jax.Array]


@functools.cache
def make_step(
    model: ModelConfig, loss: LossConfig, optim: OptimConfig, devices: Devices | None = None
) -> jax.stages.Wrapped:
    """Builds `step(state, batch, lr, wishes_DX=None) -> (state, metrics)`, jitted with the state donated. The same settings get
    the same function, compiled once, whatever the learning rate: a trunk's branches use the trunk's.

    A batch is cut into `optim.accumulate` microbatches, of which microbatch i takes the rows i, i + accumulate, …; the
    gradient is that of the mean over all real targets of the batch, however they are spread over microbatches and devices.

    Metrics: `loss` (cross-entropy alone, nats per target), `balance`, `router_z`, `grad_norm` (before clipping), `lr`,
    `targets`, `tokens`, `dropped` (choices that found no room in an exchange whose buffer is bounded), and by visit v = 1, 2,
    …: `load_max_v` (the fullest expert over the mean, worst layer) and `unused_v` (share of experts nobody chose).
    `wishes_DX`, int32 of each device's process, comes back as `wishes_X`, added up: what one process wants all hear of.

    Args:
      optim: with `skip_nonfinite`, an update whose loss or gradient is not finite leaves parameters, moments and their count as
        they were; `step` goes on.
      devices: that share the work; None is one, wherever the arguments are.
    """
    transformer = Transformer(model, ALL if devices is None else devices.share(model))
    transformation = optimizer(optim)

    def measured(params: dict, batch: Batch) -> tuple[dict, LossSums, jax.Array, jax.Array]:
        total = itself if devices is None else devices.total
        grads, sums, router = gradients(params, transformer, batch, loss, optim.accumulate, total)
        grads = grads if devices is None else devices.add_up(grads)
        return grads, *jax.tree.map(total, (sums, router.counts_E, jnp.sum(router.dropped)))

    def step(
        state: TrainState, batch: Batch, lr: jax.Array, wishes_DX: jax.Array | None = None
    ) -> tuple[TrainState, Metrics]:
        measure = measured
        if devices is not None:
            specs = devices.specs(state.params)
            measure = devices.each(measured, (specs, BATCH), (specs, EVERYWHERE, EVERYWHERE, EVERYWHERE))
        grads, sums, counts_XE, dropped = measure(state.params, batch)
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
            'dropped': dropped,
            **_load(counts_XE, model.loop),
        }
        if wishes_DX is not None:
            metrics['wishes_X'] = jnp.sum(wishes_DX, axis=0)
        new = TrainState(state.step + 1, apply(state.params, direction, lr), opt_state)
        if optim.skip_nonfinite:
            fine = jnp.isfinite(metrics['loss']) & jnp.isfinite(metrics['grad_norm'])
            kept = state._replace(step=new.step)
            new = jax.tree.map(lambda after, before: jnp.where(fine, after, before), new, kept)
        state = new
        return (state, metrics) if devices is None else (devices.keep(state), devices.everywhere(metrics))

    return jax.jit(step, donate_argnums=0)


def gradients(
    params: dict, model: Transformer, batch: Batch, loss: LossConfig, accumulate: int, total: Total = itself
) -> tuple[dict, LossSums, RouterSums]:
    """Gradients of `objective` over this device's rows, their sums, and `RouterSums` of every executed layer; one microbatch
    in memory at a time. `total` adds up over the devices that share the batch."""
    rows = batch.tokens_BT.shape[0]
    if rows % accumulate:
        raise ValueError(f'{rows} rows of a batch on a device are not divisible by optim.accumulate={accumulate}')
    targets = total(jnp.sum(batch.loss_mask_BT))
    tokens = total(jnp.sum(batch.segment_ids_BT > 0, dtype=jnp.float32))

    def part(microbatch: Batch) -> Any:
        grads, (sums, router) = jax.grad(objective, has_aux=True)(
            params, model, microbatch, loss, targets, tokens, total
        )
        return grads, sums, router

    if accumulate == 1:
        return part(batch)
    # Every accumulate-th row: the same microbatches on any number of devices, of which each has consecutive rows.
    microbatches = jax.tree.map(
        lambda array: array.reshape(rows // accumulate, accumulate, *array.shape[1:]).swapaxes(0, 1), batch
    )
    first = jax.tree.map(lambda array: array[0], microbatches)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(part, first))
    sums, _ = jax.lax.scan(lambda sums, micro: (jax.tree.map(jnp.add, sums, part(micro)), None), zeros, microbatches)
    return sums


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
