"""Causal attention within documents: one function over its implementations. None makes an array of T × T."""

from typing import Protocol

import jax

from smelt_jax.model import attend_gpu, attend_tpu, attend_xla

IMPLEMENTATIONS = ('auto', 'xla', 'splash', 'triton')
_BEST = {'tpu': 'splash', 'cuda': 'triton', 'gpu': 'triton'}


class Attend(Protocol):
    """`attend`, of which the implementation is chosen."""

    def __call__(
        self, q_BTNH: jax.Array, k_BTGH: jax.Array, v_BTGH: jax.Array, segment_ids_BT: jax.Array
    ) -> jax.Array: ...


def attend(
    q_BTNH: jax.Array,
    k_BTGH: jax.Array,
    v_BTGH: jax.Array,
    segment_ids_BT: jax.Array,
    *,
    implementation: str = 'auto',
) -> jax.Array:
    """softmax(q kᵀ / √H) v over the keys of the query's own document that are not after it.

    Args:
      q_BTNH, k_BTGH, v_BTGH: N is a multiple of G; query heads n·N/G … share key-value head n.
      segment_ids_BT: int32, not falling along a row but for padding at its end, which is 0 and whose output is 0.
      implementation: `xla` goes by pairs of blocks, in any program XLA compiles, and leaves out those of which no query
        sees a key; `splash` is JAX's Pallas kernel for TPUs, `triton` that for NVIDIA's GPUs; `auto` takes the fastest
        that the default backend has.

    Returns:
      out_BTNH in the dtype of v. Scores, softmax and sums are float32.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f'attend {implementation=}: choose one of {", ".join(IMPLEMENTATIONS)}')
    if implementation == 'auto':
        implementation = best_attention(jax.default_backend())
    function = {'xla': attend_xla.attend, 'splash': attend_tpu.attend, 'triton': attend_gpu.attend}[implementation]
    return function(q_BTNH, k_BTGH, v_BTGH, segment_ids_BT)


def best_attention(platform: str) -> str:
    """What `auto` means on `cpu`, `gpu`, `cuda` or `tpu`."""
    return _BEST.get(platform, 'xla')
