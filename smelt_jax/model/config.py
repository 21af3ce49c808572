"""Settings of the model room. Every default that the papers do not publish is ours, and says so."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class LoopConfig:
    """Which layers are run several times.

    Attributes:
      start: physical layers before the loop (the prelude).
      length: physical layers in the loop; 0 for a model without one.
      visits: R, how often the loop is executed. 1 is the Baseline.
      residual_exponent: inside the loop residual updates are scaled by visits ** -residual_exponent (SMELT: 1).
    """

    start: int = 0
    length: int = 0
    visits: int = 1
    residual_exponent: float = 1.0


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """Grouped-query attention with rotary positions.

    Attributes:
      heads: N, query heads.
      kv_heads: G, key and value heads; divides `heads`.
      head_dim: H, even.
      qk_norm: RMSNorm over H of queries and keys, before the rotation. Ours (not published); Qwen3's.
      rope_theta: base of the rotary frequencies. Ours (not published).
    """

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    qk_norm: bool = True
    rope_theta: float = 10_000.0


@dataclasses.dataclass(frozen=True)
class ExpertsConfig:
    """Sparse SwiGLU experts behind a linear router, dropless.

    Attributes:
      count: E, experts in a layer.
      per_token: K, experts that a token uses.
      width: F, hidden width of an expert.
      normalize: divide a token's K router weights by their sum. Ours (not published); Qwen3-MoE's.
    """

    count: int = 32
    per_token: int = 8
    width: int = 96
    normalize: bool = True


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A decoder-only Transformer: embedding, prelude, loop, coda, norm, head.

    Attributes:
      vocab: V, rows of the embedding and of the (untied) head.
      width: D.
      layers: physical layers: prelude + loop + coda.
      loop, attention, experts: see there.
      norm_eps: epsilon of every RMSNorm.
      init_std: standard deviation of the normal initialisation of every matrix. Ours (not published).
      dtype: of the computation, `float32` | `bfloat16`; parameters, router, softmax and loss stay float32.
      remat: what the backward pass computes again: `none` | `layer` (keep only a layer's input) | `dots` (keep matrix
        products without batch dimensions).
    """

    vocab: int = 512
    width: int = 256
    layers: int = 4
    loop: LoopConfig = LoopConfig()
    attention: AttentionConfig = AttentionConfig()
    experts: ExpertsConfig = ExpertsConfig()
    norm_eps: float = 1e-6
    init_std: float = 0.02
    dtype: str = 'float32'
    remat: str = 'none'

    @property
    def coda_layers(self) -> int:
        """Physical layers behind the loop."""
        return self.layers - self.loop.start - self.loop.length

    @property
    def executed_layers(self) -> int:
        """Layers that a token passes: looped layers count once a visit."""
        return self.layers + self.loop.length * (self.loop.visits - 1)

    def at_visits(self, visits: int) -> 'ModelConfig':
        """The model with its loop executed `visits` times. It may be one that cannot be built: `check` says so."""
        return dataclasses.replace(self, loop=dataclasses.replace(self.loop, visits=visits))

    def check(self) -> None:
        """Raises ValueError, naming the values and the remedy, if this model cannot be built."""
        attention, experts, loop = self.attention, self.experts, self.loop
        sizes = {
            'vocab': self.vocab,
            'width': self.width,
            'layers': self.layers,
            'attention.heads': attention.heads,
            'attention.kv_heads': attention.kv_heads,
            'attention.head_dim': attention.head_dim,
            'experts.count': experts.count,
            'experts.per_token': experts.per_token,
            'experts.width': experts.width,
            'loop.visits': loop.visits,
        }
        for name, size in sizes.items():
            if not 1 <= size < 2**31:
                raise ValueError(f'model.{name}={size}: must be at least 1 and below 2**31')
        scales = {
            'norm_eps': self.norm_eps,
            'init_std': self.init_std,
            'attention.rope_theta': attention.rope_theta,
        }
        for name, scale in scales.items():
            if not scale > 0:
                raise ValueError(f'model.{name}={scale}: must be more than 0')
        if attention.heads % attention.kv_heads:
            raise ValueError(
                f'model.attention.heads={attention.heads} is not divisible by kv_heads={attention.kv_heads}; '
                f'choose kv_heads that divide the heads'
            )
        if attention.head_dim % 2:
            raise ValueError(f'model.attention.head_dim={attention.head_dim} is odd; rotary positions need an even one')
        if experts.per_token > experts.count:
            raise ValueError(
                f'model.experts.count={experts.count} is less than per_token={experts.per_token}; '
                f'add experts or use fewer of them per token'
            )
        if loop.start < 0 or loop.length < 0 or loop.start + loop.length > self.layers:
            raise ValueError(
                f'model.loop.start={loop.start} and length={loop.length} do not fit into layers={self.layers}; '
                f'keep 0 <= start and start + length <= layers'
            )
        if loop.visits > 1 and loop.length == 0:
            raise ValueError(f'model.loop.visits={loop.visits} with length=0: set loop.length, or visits=1')
        _check_choice('model.dtype', self.dtype, ('float32', 'bfloat16'))
        _check_choice('model.remat', self.remat, ('none', 'layer', 'dots'))


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f'{name}={value!r}: choose one of {", ".join(choices)}')
