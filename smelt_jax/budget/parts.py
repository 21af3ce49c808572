"""Parameters and FLOPs of a model by part: the sums that `smelt_jax.budget.accounting` is made of."""

import dataclasses

from smelt_jax.model.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Numbers of parameters by part. `attention` are the four projections, `norms` all gains, `head` is untied."""

    attention: int
    router: int
    experts: int
    norms: int
    embedding: int
    head: int

    @property
    def non_embedding(self) -> int:
        """As both studies count: attention, router and experts. Without embedding, head and norms."""
        return self.attention + self.router + self.experts

    @property
    def with_norms(self) -> int:
        """All but embedding and head."""
        return self.non_embedding + self.norms

    @property
    def total(self) -> int:
        """All that a checkpoint stores."""
        return self.with_norms + self.embedding + self.head


@dataclasses.dataclass(frozen=True)
class Flops:
    """FLOPs per token by part. `projections` are q, k, v and o; `attended` the scores and their mix of T̄ values."""

    projections: float
    attended: float
    router: float
    experts: float
    head: float

    @property
    def non_embedding(self) -> float:
        """Without the head: the F of the law."""
        return self.projections + self.attended + self.router + self.experts

    @property
    def total(self) -> float:
        """With the head's product D × V. The embedding is a look-up and costs none."""
        return self.non_embedding + self.head


def parameters_of(model: ModelConfig) -> tuple[Parameters, Parameters, Parameters, Parameters]:
    """Parameters of `model`: stored, active, looped, unrolled. See `Budget`."""
    ends = Parameters(
        attention=0,
        router=0,
        experts=0,
        norms=model.width,
        embedding=model.vocab * model.width,
        head=model.width * model.vocab,
    )
    active_layer = _layer(model, model.experts.per_token)
    active = _sum((model.layers, active_layer), (1, ends))
    looped = _sum((model.loop.length, active_layer))
    return (
        _sum((model.layers, _layer(model, model.experts.count)), (1, ends)),
        active,
        looped,
        _sum((1, active), (model.loop.visits - 1, looped)),
    )


def forward_flops(model: ModelConfig, unrolled: Parameters, mean_attended_keys: float) -> Flops:
    """FLOPs per token of a forward pass: 2 a weight, and 4 · T̄ · N · H an executed layer."""
    values = model.attention.heads * model.attention.head_dim
    return Flops(
        projections=2.0 * unrolled.attention,
        attended=4.0 * mean_attended_keys * values * model.executed_layers,
        router=2.0 * unrolled.router,
        experts=2.0 * unrolled.experts,
        head=2.0 * unrolled.head,
    )


def kv_values_of(model: ModelConfig) -> int:
    """Numbers a token keeps in the cache: every visit of a layer has slots of its own."""
    return 2 * model.attention.kv_heads * model.attention.head_dim * model.executed_layers


def _layer(model: ModelConfig, experts: int) -> Parameters:
    """One layer with `experts` of its experts, and its whole router."""
    attention, width = model.attention, model.width
    return Parameters(
        attention=2 * width * attention.head_dim * (attention.heads + attention.kv_heads),
        router=width * model.experts.count,
        experts=experts * 3 * width * model.experts.width,
        norms=2 * width + (2 * attention.head_dim if attention.qk_norm else 0),
        embedding=0,
        head=0,
    )


def _sum(*terms: tuple[int, Parameters]) -> Parameters:
    parts = [field.name for field in dataclasses.fields(Parameters)]
    return Parameters(**{part: sum(times * getattr(amount, part) for times, amount in terms) for part in parts})
