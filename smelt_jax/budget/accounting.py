"""What a model costs: parameters, FLOPs per token, KV cache. Pure arithmetic on a `ModelConfig`, no jax.

Two studies count in two ways, and both are here.

- Compute-matched looped MoE (SMELT): training FLOPs per token
  F = 6 · (attention + router + K experts of a layer) · (executed layers) + 12 · T̄ · (N · H) · (executed layers),
  stored parameters without embeddings and norms, KV values per token 2 · G · H · (executed layers).
- Looped mixture of experts: N_unroll = N_act + (R − 1) · N_loop, m = N_act / N_total, bytes of weights at b bits.

T̄ is the mean number of keys a query attends to, itself included: `smelt_jax.budget.attended`. A product of matrices
counts 2 FLOPs a multiply-add, a backward pass twice its forward pass. Not counted: norms, softmax, rotations,
activations, the choice of experts, the embedding's look-up, and whatever rematerialisation computes again.
"""

import dataclasses
from typing import NamedTuple

from smelt_jax.budget.parts import Flops, Parameters, forward_flops, kv_values_of, parameters_of
from smelt_jax.model.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class Budget:
    """Everything that `budget_of` counts.

    Attributes:
      stored: parameters of the checkpoint, each once.
      active: those a token uses: K experts of a layer. Embedding and head count whole.
      looped: the active ones inside the loop: N_loop.
      unrolled: active, with the loop's counted at every visit: N_unroll = N_act + (R − 1) · N_loop.
      train_flops: forward and backward, per token.
      inference_flops: forward alone: a third of that.
      kv_values: numbers a token keeps in the cache: a key and a value for each KV head of each executed layer.
      dense_equivalent: N_eq_act = (F / F0) · N0, where F0 and N0 are the Baseline's that activates all its experts.
      sparsity: S = 1 − N_eq_act / N.
      mean_attended_keys: T̄.
      layers, executed_layers, loop_start, loop_length, visits, experts, experts_per_token: of the model.
    """

    stored: Parameters
    active: Parameters
    looped: Parameters
    unrolled: Parameters
    train_flops: Flops
    inference_flops: Flops
    kv_values: int
    dense_equivalent: float
    sparsity: float
    mean_attended_keys: float
    layers: int
    executed_layers: int
    loop_start: int
    loop_length: int
    visits: int
    experts: int
    experts_per_token: int

    @property
    def active_share(self) -> float:
        """m = N_act / N_total, embeddings left out."""
        return self.active.non_embedding / self.stored.non_embedding

    @property
    def loop_span(self) -> float:
        """Share of the physical layers that is looped."""
        return self.loop_length / self.layers

    def kv_bytes(self, bits: float = 16) -> float:
        """Bytes of KV cache per token at `bits` a value."""
        return self.kv_values * bits / 8

    def weight_bytes(self, bits: float) -> float:
        """M = bits · N_total / 8: bytes of the stored weights, embeddings and norms left out."""
        return self.stored.non_embedding * bits / 8

    def compute(self, tokens: float) -> float:
        """C = F · D: training FLOPs over `tokens` tokens, head left out."""
        return self.train_flops.non_embedding * tokens

    def tokens_per_parameter(self, tokens: float) -> float:
        """TPP: `tokens` per dense-equivalent parameter."""
        return tokens / self.dense_equivalent

    def as_dict(self) -> dict[str, float]:
        """The numbers every record carries, flat. Plain `parameters` and `flops` are the studies': see there."""
        return {
            'flops_per_token': self.train_flops.non_embedding,
            'flops_per_token_with_head': self.train_flops.total,
            'parameters': self.stored.non_embedding,
            'parameters_with_norms': self.stored.with_norms,
            'parameters_with_embeddings': self.stored.total,
            'active_parameters': self.active.non_embedding,
            'active_parameters_with_embeddings': self.active.total,
            'looped_parameters': self.looped.non_embedding,
            'unrolled_parameters': self.unrolled.non_embedding,
            'dense_equivalent_parameters': self.dense_equivalent,
            'sparsity': self.sparsity,
            'active_share': self.active_share,
            'kv_values_per_token': self.kv_values,
            'mean_attended_keys': self.mean_attended_keys,
            'layers': self.layers,
            'executed_layers': self.executed_layers,
            'loop_start': self.loop_start,
            'loop_length': self.loop_length,
            'loop_span': self.loop_span,
            'visits': self.visits,
            'experts': self.experts,
            'experts_per_token': self.experts_per_token,
        }


class Ratios(NamedTuple):
    """A model's three budgets over another's. 1 is a perfect match."""

    flops: float
    parameters: float
    kv: float


def budget_of(model: ModelConfig, mean_attended_keys: float, baseline: ModelConfig | None = None) -> Budget:
    """Counts `model` at T̄ = `mean_attended_keys`.

    Args:
      model: what is counted. Raises ValueError if it cannot be built.
      mean_attended_keys: T̄, at least 1.
      baseline: the scale's Baseline, whose fully active form is the reference of S (at any number of experts: only
        its widths matter). None takes this model's own widths at one visit, which for a Baseline is the same; for a
        looped model of matched FLOPs it differs from its Baseline's by about 0.001 in S.
    """
    model.check()
    if not mean_attended_keys >= 1:
        raise ValueError(f'{mean_attended_keys=}: a query attends at least to itself; give a mean of 1 or more')
    stored, active, looped, unrolled = parameters_of(model)
    forward = forward_flops(model, unrolled, mean_attended_keys)
    train = Flops(**{part: 3 * amount for part, amount in dataclasses.asdict(forward).items()})

    dense = reference_of(model if baseline is None else baseline)
    dense_stored, _, _, dense_unrolled = parameters_of(dense)
    dense_flops = 3 * forward_flops(dense, dense_unrolled, mean_attended_keys).non_embedding
    dense_equivalent = train.non_embedding / dense_flops * dense_stored.non_embedding
    return Budget(
        stored=stored,
        active=active,
        looped=looped,
        unrolled=unrolled,
        train_flops=train,
        inference_flops=forward,
        kv_values=kv_values_of(model),
        dense_equivalent=dense_equivalent,
        sparsity=1 - dense_equivalent / stored.non_embedding,
        mean_attended_keys=float(mean_attended_keys),
        layers=model.layers,
        executed_layers=model.executed_layers,
        loop_start=model.loop.start,
        loop_length=model.loop.length,
        visits=model.loop.visits,
        experts=model.experts.count,
        experts_per_token=model.experts.per_token,
    )


def ratios_of(model: ModelConfig, target: Budget) -> Ratios:
    """`compare(budget_of(model), target)` at the target's T̄, without counting the rest."""
    stored, _, _, unrolled = parameters_of(model)
    flops = 3 * forward_flops(model, unrolled, target.mean_attended_keys).non_embedding
    return Ratios(
        flops=flops / target.train_flops.non_embedding,
        parameters=stored.non_embedding / target.stored.non_embedding,
        kv=kv_values_of(model) / target.kv_values,
    )


def compare(model: Budget, baseline: Budget) -> Ratios:
    """Training FLOPs per token, stored parameters and KV values of `model`, each over `baseline`'s."""
    return Ratios(
        flops=model.train_flops.non_embedding / baseline.train_flops.non_embedding,
        parameters=model.stored.non_embedding / baseline.stored.non_embedding,
        kv=model.kv_values / baseline.kv_values,
    )


def reference_of(baseline: ModelConfig) -> ModelConfig:
    """The model S is measured against: the same widths, all experts active, every layer executed once."""
    experts = dataclasses.replace(baseline.experts, count=baseline.experts.per_token)
    return dataclasses.replace(baseline, experts=experts, loop=dataclasses.replace(baseline.loop, visits=1))
