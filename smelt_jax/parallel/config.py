"""Settings of the parallel room."""

import dataclasses

EXCHANGES = ('auto', 'ragged', 'gather')
EXPERT_KERNELS = ('auto', 'reference', 'xla', 'pallas_tpu', 'pallas_gpu')
ATTENTION_KERNELS = ('auto', 'xla', 'splash', 'triton')


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How devices share the work. None of it but `buffer` changes a number of the run, up to the order of sums.

    Attributes:
      replica: copies of the parameters; the axis across slices. At most one of the three sizes is -1: what is left.
      fsdp: shards of parameters, moments and gradients, by the model's width.
      expert: groups of experts.
      exchange: how tokens come to experts: `ragged` sends each to where its experts are, `gather` shows all to all;
        `auto` is `gather` on CPU, else `ragged`.
      buffer: rows a device can receive by `ragged`, as a multiple of those it sends; what finds no room is dropped and
        counted. 0 has room for the worst case, in which nothing is.
      chunk_tokens: tokens of a device that are exchanged at a time, at most; 0 is all. Fewer need smaller buffers; they are
        exchanged once more for the backward pass, as with remat=layer.
      expert_kernel: `pallas_kernels.expert_ffn`'s implementation; `auto` is the best for the devices.
      attention_kernel: `smelt_jax.model.attend.attend`'s, likewise.
      slices: slices of a pod that are joined by a slower network; divides replica.
    """

    replica: int = 1
    fsdp: int = -1
    expert: int = 1
    exchange: str = 'auto'
    buffer: float = 0.0
    chunk_tokens: int = 0
    expert_kernel: str = 'auto'
    attention_kernel: str = 'auto'
    slices: int = 1

    def check(self) -> None:
        """Raises ValueError on a value that makes no sense."""
        sizes = {'replica': self.replica, 'fsdp': self.fsdp, 'expert': self.expert}
        for name, size in sizes.items():
            if size < 1 and size != -1:
                raise ValueError(f'mesh.{name}={size}: must be at least 1, or -1 for what is left')
        if list(sizes.values()).count(-1) > 1:
            raise ValueError(f'mesh {sizes}: one of them can be -1, what the others leave')
        choices = {'exchange': EXCHANGES, 'expert_kernel': EXPERT_KERNELS, 'attention_kernel': ATTENTION_KERNELS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f'mesh.{name}={getattr(self, name)!r}: choose one of {", ".join(known)}')
        if self.chunk_tokens < 0:
            raise ValueError(f'mesh.chunk_tokens={self.chunk_tokens}: must be at least 0')
        if self.buffer and self.buffer < 1:
            raise ValueError(f'mesh.buffer={self.buffer}: must be 0 for the worst case, or at least 1')
        if self.buffer and self.exchange == 'gather':
            raise ValueError(
                f'mesh.buffer={self.buffer}: mesh.exchange=gather sends no rows, and has no buffer; leave it at 0'
            )
        if self.slices < 1 or (self.replica > 0 and self.replica % self.slices):
            raise ValueError(f'mesh.slices={self.slices} does not divide mesh.replica={self.replica}')
