"""What one device has of a model, and how it comes by the rest. The model asks; it knows of no mesh."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

import pallas_kernels
from pallas_kernels.expert_ffn import ExpertWeights
from smelt_jax.model.attend import Attend, attend

WHOLE = 'whole'  # `checkpoint_name` of a parameter that was gathered
GATHERED_OVER = 'fsdp'  # the mesh axis

# (x_TD, weights_TK, experts_TK, this device's expert weights) → (y_TD, choices that found no room, float32 scalar).
ExpertFfn = Callable[[jax.Array, jax.Array, jax.Array, ExpertWeights], tuple[jax.Array, jax.Array]]


def own_experts(
    x_TD: jax.Array,
    weights_TK: jax.Array,
    experts_TK: jax.Array,
    weights: ExpertWeights,
    *,
    kernel: Callable[..., jax.Array] = pallas_kernels.expert_ffn,
) -> tuple[jax.Array, jax.Array]:
    """`pallas_kernels.expert_ffn` where every expert is at hand: nothing is dropped."""
    return kernel(x_TD, weights_TK, experts_TK, weights), jnp.zeros((), jnp.float32)


def _as_it_is(name: str, part: jax.Array, near: jax.Array | None = None) -> jax.Array:
    return part


def _full(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


@dataclasses.dataclass(frozen=True)
class Share:
    """The part of a model that one device has. The default is all of it.

    Attributes:
      shape: (name of a parameter, its shape in the model) → the shape that the device has.
      whole: (name, what the device has, an activation) → the parameter as it is computed with: all of it, but of experts
        the device's own. It is fetched when the activation is there, and again for the backward pass (`GATHERED_OVER`).
      expert_ffn: the sparse FFN of this device's tokens, by whosever experts they chose.
      attend: attention of this device's rows.
    """

    shape: Callable[[str, tuple[int, ...]], tuple[int, ...]] = _full
    whole: Callable[..., jax.Array] = _as_it_is
    expert_ffn: ExpertFfn = own_experts
    attend: Attend = attend

    def weight(
        self, module: nn.Module, name: str, init: Callable, shape: tuple[int, ...], near: jax.Array
    ) -> jax.Array:
        """Declares a parameter of `module`, and makes it whole."""
        return self.whole(name, module.param(name, init, self.shape(name, shape), jnp.float32), near)

    def outer(self, params: dict) -> dict:
        """`params` with embedding and head made whole; layers do that themselves, one at a time."""
        return params | {name: self.whole(name, params[name]) for name in ('embed', 'head')}


ALL = Share()


def kept(primitive: Any, *_: Any, **params: Any) -> bool:
    """A checkpoint policy: all but parameters that were gathered, which would be the whole model on every device."""
    inner = params.get('call_jaxpr')  # of a function with a gradient of its own
    gathers = [params] if primitive.name == 'all_gather' else []
    gathers += [eqn.params for eqn in inner.eqns if eqn.primitive.name == 'all_gather'] if inner is not None else []
    return params.get('name') != WHOLE and not any(GATHERED_OVER in eqn['axis_name'] for eqn in gathers)
