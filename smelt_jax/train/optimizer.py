"""AdamW by optax: decay on matrices and expert weights, never on norms."""

import jax
import jax.numpy as jnp
import optax

from smelt_jax.train.config import OptimConfig


def decayed(params: dict) -> dict:
    """True for the leaves that weight decay acts on: all but the scales of norms, stacked over layers or not."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key != 'scale', params)


def optimizer(config: OptimConfig) -> optax.GradientTransformation:
    """Clipping by the global norm, then AdamW's direction: adam(g) + weight_decay · p, the decay decoupled.

    The learning rate is not in here: `apply` takes it, so that one compiled step serves a trunk and all its branches.
    """
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    return optax.chain(
        clip,
        optax.scale_by_adam(config.b1, config.b2, config.eps, mu_dtype=jnp.dtype(config.moment_dtype)),
        optax.add_decayed_weights(config.weight_decay, mask=decayed),
    )


def apply(params: dict, direction: dict, lr: jax.Array) -> dict:
    """p − lr · direction, leaf by leaf."""
    return jax.tree.map(lambda p, d: p - lr * d, params, direction)
