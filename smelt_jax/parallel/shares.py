"""What each device of a mesh has of a model (`model.share.Share`), and which collectives bring it the rest."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh

import pallas_kernels
from smelt_jax.model.attend import attend, best_attention
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.share import ALL, WHOLE, ExpertFfn, Share, own_experts
from smelt_jax.parallel.chunks import in_chunks
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.exchange import by_gather, by_sending
from smelt_jax.parallel.mesh import AXES, RULES, rule_of
from smelt_jax.parallel.rows import emulated

# Kernel → platforms of jax that it runs on; others run anywhere.
MADE_FOR = {
    'pallas_tpu': ('tpu',),
    'splash': ('tpu',),
    'pallas_gpu': ('gpu', 'cuda'),
    'triton': ('gpu', 'cuda'),
}
# These are computed with in float32, whatever the model's dtype.
FLOAT32 = ('router',)


def check_kernels(mesh: Mesh, config: MeshConfig) -> None:
    """Raises ValueError if a kernel that was asked for does not run on these devices."""
    platform = mesh.devices.flat[0].platform
    for key in ('expert_kernel', 'attention_kernel'):
        kernel = getattr(config, key)
        if platform not in MADE_FOR.get(kernel, (platform,)):
            raise ValueError(
                f'mesh.{key}={kernel} is made for {MADE_FOR[kernel][0]}, not for {platform}; take auto or xla'
            )


@functools.cache
def share_of(mesh: Mesh, config: MeshConfig, model: ModelConfig) -> Share:
    """A device's share on this mesh: all of the model where there is one device."""
    gathers = mesh.shape['fsdp'] > 1
    return Share(
        shape=functools.partial(_part, mesh) if mesh.size > 1 else ALL.shape,
        whole=functools.partial(_whole, jnp.dtype(model.dtype)) if gathers else ALL.whole,
        expert_ffn=_expert_ffn(mesh, config),
        attend=functools.partial(attend, implementation=_chosen(config.attention_kernel, best_attention, mesh)),
    )


def _expert_ffn(mesh: Mesh, config: MeshConfig) -> ExpertFfn:
    on_cpu = mesh.devices.flat[0].platform == 'cpu'
    implementation = _chosen(config.expert_kernel, pallas_kernels.best, mesh)
    kernel = functools.partial(pallas_kernels.expert_ffn, implementation=implementation)
    kind = ('gather' if on_cpu else 'ragged') if config.exchange == 'auto' else config.exchange
    if mesh.shape['expert'] == 1:
        ffn: ExpertFfn = functools.partial(own_experts, kernel=kernel)
    elif kind == 'gather':
        ffn = by_gather(kernel)
    else:
        ffn = by_sending(emulated if on_cpu else lax.ragged_all_to_all, config.buffer, kernel)
    return in_chunks(ffn, config.chunk_tokens) if config.chunk_tokens else ffn


def _chosen(kernel: str, best: Callable[[str], str], mesh: Mesh) -> str:
    """By the mesh's devices, which need not be this machine's."""
    return best(mesh.devices.flat[0].platform) if kernel == 'auto' else kernel


def _part(mesh: Mesh, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size // (mesh.shape[axis] if axis else 1) for size, axis in zip(shape, RULES[name], strict=True))


def _whole(dtype: jnp.dtype, name: str, part: jax.Array, near: jax.Array | None = None) -> jax.Array:
    """Gathered over `fsdp`, in the dtype it is computed with."""
    if near is not None:
        # Only when the layer's input is there: else all visits' layers would be gathered before the first one runs.
        part, _ = lax.optimization_barrier((part, lax.stop_gradient(near.reshape(-1)[0])))
    wanted = jnp.float32 if name in FLOAT32 else dtype
    return checkpoint_name(_gathered(part, RULES[name].index('fsdp'), wanted), WHOLE)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _gathered(part: jax.Array, axis: int, dtype: jnp.dtype) -> jax.Array:
    """The whole of what the devices of `fsdp` have parts of. Gradients are added up in float32, whatever the dtype."""
    return lax.all_gather(part.astype(dtype), 'fsdp', axis=axis, tiled=True)


def _gathered_forward(part, axis, dtype):
    return _gathered(part, axis, dtype), None


def _gathered_backward(axis, dtype, _, gradient):
    return (lax.psum_scatter(gradient.astype(jnp.float32), 'fsdp', scatter_dimension=axis, tiled=True),)


_gathered.defvjp(_gathered_forward, _gathered_backward)


def add_up(path: tuple, gradient: jax.Array) -> jax.Array:
    """A parameter's gradient over the devices that have the same part of it: all axes but those that cut it, which have
    added up on the way."""
    cut = rule_of(path)
    axes = tuple(axis for axis in AXES if axis not in cut and lax.axis_size(axis) > 1)
    return lax.psum(gradient, axes) if axes else gradient
