"""Learning rates: warmup and stable for the trunk, cosine decay for a branch. Functions of the global step."""

import jax
import jax.numpy as jnp
import optax


def trunk_schedule(peak_lr: float, warmup_steps: int) -> optax.Schedule:
    """Linear from 0 over `warmup_steps`, then `peak_lr` for ever: the W and S of WSD. 0 warmup steps start at the peak.

    schedule(s) is the rate of the update that leads from step s to s + 1.
    """
    if warmup_steps == 0:
        return optax.constant_schedule(peak_lr)
    warmup = optax.linear_schedule(peak_lr / warmup_steps, peak_lr, warmup_steps - 1)
    return optax.join_schedules([warmup, optax.constant_schedule(peak_lr)], [warmup_steps])


def branch_schedule(trunk: optax.Schedule, start: int, steps: int, final_fraction: float) -> optax.Schedule:
    """The trunk's rate up to step `start`; then its cosine decay: schedule(start) is the trunk's rate, and the rate
    reaches `final_fraction` of that where the branch ends, at start + steps."""
    cosine = optax.cosine_decay_schedule(1.0, steps, alpha=final_fraction)

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        return trunk(jnp.minimum(step, start)) * cosine(jnp.maximum(jnp.asarray(step) - start, 0))

    return schedule
