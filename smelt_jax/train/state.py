"""What a checkpoint holds."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from smelt_jax.model.config import ModelConfig
from smelt_jax.model.transformer import Transformer


class TrainState(NamedTuple):
    """Attributes:
    step: int32 scalar, updates done.
    params: of the Transformer, float32.
    opt_state: of the optimizer; its count equals `step`.
    """

    step: jax.Array
    params: dict
    opt_state: optax.OptState


def init_params(config: ModelConfig, seed: int) -> dict:
    """Fresh parameters. They depend on the seed and the model alone, not on the shape of a batch."""
    row = np.zeros((1, 2), np.int32)
    return Transformer(config).init(jax.random.key(seed), row, row + 1, row)['params']


def init_state(config: ModelConfig, transformation: optax.GradientTransformation, seed: int) -> TrainState:
    """The state before the first update. Traceable, so that `jax.eval_shape` gives its shapes without memory."""
    params = init_params(config, seed)
    return TrainState(jnp.zeros((), jnp.int32), params, transformation.init(params))
