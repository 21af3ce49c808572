"""What one device has of a model, and how it comes by the rest. The model asks; it knows of no mesh."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

import pallas_kernels
from pallas_kernels.expert_ffn import ExpertWeights

WHOLE = 'whole'

# (x_TD, weights_TK, experts_TK, this device's expert weights) → (y_TD, choices that found no room, float32 scalar).
ExpertFfn = Callable[[jax.Array, jax.Array, jax.Array, ExpertWeights], tuple[jax.Array, jax.Array]]


def own_experts(
    x_TD: jax.Array, weights_TK: jax.Array, experts_TK: jax.Array, weights: ExpertWeights
) -> tuple[jax.Array, jax.Array]:
    """`pallas_kernels.expert_ffn` where every expert is at hand: nothing is dropped."""
    return pallas_kernels.expert_ffn(x_TD, weights_TK, experts_TK, weights), jnp.zeros((), jnp.float32)


@dataclasses.dataclass(frozen=True)
class Share:
    """The part of a model that one device has. The default is all of it.

    Attributes:
      expert_shards: the experts are cut into so many equal parts, of which the device has one.
      whole: a subtree of parameters, as the device has it → what is computed with, dicts of the same keys. None leaves
        them as they are. What it gathers it names WHOLE (`checkpoint_name`): the backward pass gathers it again.
      expert_ffn: the sparse FFN of this device's tokens, by whosever experts they chose.
    """

    expert_shards: int = 1
    whole: Callable[[dict], dict] | None = None
    expert_ffn: ExpertFfn = own_experts

    def outer(self, params: dict) -> dict:
        """`params` with what lies outside the stacks (embedding, head, final norm) made whole. Stacks do that themselves, a
        layer at a time."""
        if self.whole is None:
            return params
        outer = {name: params[name] for name in ('embed', 'head', 'final_norm')}
        return params | self.whole(outer)


ALL = Share()
