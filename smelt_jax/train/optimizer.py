"""AdamW by optax: decay on matrices and expert weights, never on norms."""

import jax
import jax.numpy as jnp
import optax

from smelt_jax.train.config import OptimConfig


def decayed(params: dict) -> dict:
    """True for the leaves that weight decay acts on: all but the scales of norms, stacked over layers or not."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key != 'scale', params)


def optimizer(config: OptimConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    """Clipping by the global norm, then AdamW with decoupled decay: p ← p − lr · (adam(g) + weight_decay · p)."""
    adamw = optax.adamw(
        schedule,
        b1=config.b1,
        b2=config.b2,
        eps=config.eps,
        weight_decay=config.weight_decay,
        mask=decayed,
        mu_dtype=jnp.dtype(config.moment_dtype),
    )
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    return optax.chain(clip, adamw)
