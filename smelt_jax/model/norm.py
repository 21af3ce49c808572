"""RMSNorm."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class RMSNorm(nn.Module):
    """x / rms(x) · scale over the last axis, in float32 (Zhang and Sennrich, 2019). Returns the dtype of x."""

    eps: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param('scale', nn.initializers.ones_init(), (x.shape[-1],), jnp.float32)
        x_float = x.astype(jnp.float32)
        inverse_rms = jax.lax.rsqrt(jnp.mean(jnp.square(x_float), axis=-1, keepdims=True) + self.eps)
        return (x_float * inverse_rms * scale).astype(x.dtype)
