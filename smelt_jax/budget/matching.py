"""Finds the looped partner of a Baseline: same FLOPs per token, same stored parameters, same KV cache.

Looping costs FLOPs and cache. A narrower model pays the FLOPs back, more experts win the parameters back, and a smaller
head dimension or fewer KV heads win the cache back. Three budgets leave one freedom, the width: for every width that
the rules allow, the sizes that meet the budgets are computed, rounded to the rules in each direction, and ranked.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator

from smelt_jax.budget.accounting import Budget, Ratios, budget_of, ratios_of
from smelt_jax.model.config import AttentionConfig, ExpertsConfig, LoopConfig, ModelConfig

# How far around the width that pays for the loop alone, D·√(layers / executed layers), widths are tried.
WIDTHS = (0.6, 1.6)
MOST_WIDTHS = 5000
NEAR = 4  # sizes tried on either side of the exact one: the nearest may not round well with the sizes that follow
SHAPES = (
    1.0  # candidates whose shape is further off are another architecture; ln 2 is a factor of two in one proportion
)


@dataclasses.dataclass(frozen=True)
class Rules:
    """What a partner may be.

    Attributes:
      tolerance: largest relative mismatch of FLOPs, parameters and KV; the study stays below 4%, 1% and 4%. A
        budget whose tolerance is infinite is free: its size is kept as the Baseline has it.
      multiple_of: divides the width and the experts' width; 128 fills a TPU's lanes.
      head_dim_multiple: divides the head dimension.
      experts_multiple: divides the number of experts: the mesh axis they are spread over.
      per_token: K; 0 takes the Baseline's. More of them lets a dense Baseline have a sparse partner.
      layers: physical layers; 0 takes the Baseline's.
    """

    tolerance: Ratios = Ratios(0.04, 0.01, 0.04)
    multiple_of: int = 8
    head_dim_multiple: int = 2
    experts_multiple: int = 8
    per_token: int = 0
    layers: int = 0

    def check(self) -> None:
        """Raises ValueError, naming the value and the remedy."""
        for name, bound in self.tolerance._asdict().items():
            if not bound > 0:
                raise ValueError(f'tolerance of {name} is {bound}: sizes are whole numbers; give more than 0, as 0.01')
            if 1 <= bound < math.inf:
                raise ValueError(f'tolerance of {name} is {bound}: it is a fraction; give less than 1, as 0.04 for 4%')
        for name in ('multiple_of', 'head_dim_multiple', 'experts_multiple'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name}={getattr(self, name)}: a multiple is 1 or more')
        if self.head_dim_multiple % 2:
            raise ValueError(f'head_dim_multiple={self.head_dim_multiple}: rotary positions need an even one')


@dataclasses.dataclass(frozen=True)
class Partner:
    """A candidate. `within` says that every |ratio − 1| is at most its tolerance, and `mismatch` how far off the three
    are together. `shape` adds up how far expert shape K·F/D, attention width N·H/D and KV heads are from the
    Baseline's, in logarithms. `reason` is one line for people."""

    model: ModelConfig
    budget: Budget
    ratios: Ratios
    within: bool
    mismatch: float
    shape: float
    reason: str


def match(
    baseline: ModelConfig, loop: LoopConfig, mean_attended_keys: float, rules: Rules = Rules(), count: int = 5
) -> list[Partner]:
    """The best partners of `baseline` with `loop`, at most one of each width, best first.

    Those within tolerance come first, behind them, or alone if there are none, the nearest of the others; among each,
    mismatch + shape decides. The same arguments give the same list.

    Raises:
      ValueError: rules or models that cannot be, or rules under which no model at all exists.
    """
    rules.check()
    frame = dataclasses.replace(baseline, layers=rules.layers or baseline.layers, loop=loop)
    frame.check()
    target = budget_of(baseline, mean_attended_keys)
    best: dict[int, tuple[tuple[bool, float, float], ModelConfig]] = {}
    for model in _candidates(frame, baseline, target, rules):
        ratios, shape = ratios_of(model, target), shape_distance(model, baseline)
        key = (not within(ratios, rules.tolerance), mismatch(ratios, rules.tolerance) + shape, shape)
        if model.width not in best or key < best[model.width][0]:
            best[model.width] = (key, model)
    if not best:
        raise ValueError(
            f'no model of similar shape meets multiple_of={rules.multiple_of}, head_dim_multiple={rules.head_dim_multiple}, '
            f'experts_multiple={rules.experts_multiple} with {frame.layers} layers, {loop.visits} visits and '
            f'{rules.per_token or baseline.experts.per_token} experts a token: choose smaller multiples, or sizes nearer the '
            f"Baseline's {baseline.layers} layers and {baseline.experts.per_token} experts a token"
        )
    ranked = sorted(best.values(), key=lambda entry: (entry[0], entry[1].width))
    return [partner(model, baseline, mean_attended_keys, rules.tolerance) for _, model in ranked[:count]]


def partner(model: ModelConfig, baseline: ModelConfig, mean_attended_keys: float, tolerance: Ratios) -> Partner:
    """Judges any `model` as a partner of `baseline`."""
    budget = budget_of(model, mean_attended_keys, baseline)
    ratios = ratios_of(model, budget_of(baseline, mean_attended_keys))
    worst = max(ratios._fields, key=lambda name: abs(getattr(ratios, name) - 1) / getattr(tolerance, name))
    (experts, heads, _), (old_experts, old_heads, _) = _shape(model), _shape(baseline)
    reason = (
        f'furthest off: {worst} {getattr(ratios, worst) - 1:+.1%}; width {model.width / baseline.width - 1:+.0%}, '
        f'experts ×{model.experts.count / baseline.experts.count:.2f}, K·F/D {experts:.2f} ({old_experts:.2f}), '
        f'N·H/D {heads:.2f} ({old_heads:.2f})'
    )
    return Partner(
        model=model,
        budget=budget,
        ratios=ratios,
        within=within(ratios, tolerance),
        mismatch=mismatch(ratios, tolerance),
        shape=shape_distance(model, baseline),
        reason=reason,
    )


def mismatch(ratios: Ratios, tolerance: Ratios) -> float:
    """√Σ((ratio − 1) / tolerance)²: 0 is a perfect match; a budget with infinite tolerance does not count."""
    return math.hypot(*((ratio - 1) / bound for ratio, bound in zip(ratios, tolerance, strict=True)))


def within(ratios: Ratios, tolerance: Ratios) -> bool:
    """Whether every |ratio − 1| is at most its tolerance."""
    return all(abs(ratio - 1) <= bound for ratio, bound in zip(ratios, tolerance, strict=True))


def shape_distance(model: ModelConfig, baseline: ModelConfig) -> float:
    """Sum of |ln| of the changes of K·F/D, N·H/D and G. 0 for a model of the same proportions."""
    pairs = zip(_shape(model), _shape(baseline), strict=True)
    return sum(abs(math.log(mine / theirs)) for mine, theirs in pairs)


def _shape(model: ModelConfig) -> tuple[float, float, float]:
    attention, experts = model.attention, model.experts
    expert_shape = experts.per_token * experts.width / model.width
    return expert_shape, attention.heads * attention.head_dim / model.width, attention.kv_heads


def _candidates(frame: ModelConfig, baseline: ModelConfig, target: Budget, rules: Rules) -> Iterator[ModelConfig]:
    """Models with the depth and the loop of `frame`."""
    natural = baseline.width * math.sqrt(baseline.executed_layers / frame.executed_layers)
    low, high = (share * natural for share in WIDTHS)
    if high - low > MOST_WIDTHS * rules.multiple_of:
        least = math.ceil((high - low) / MOST_WIDTHS)
        raise ValueError(
            f'width={baseline.width} with multiple_of={rules.multiple_of} leaves {(high - low) / rules.multiple_of:,.0f} '
            f'widths to try; choose a multiple_of from {least:,} on'
        )
    for width in _multiples(low, high, rules.multiple_of):
        frame = dataclasses.replace(frame, width=width)
        for attention in _attentions(frame, baseline, target, rules):
            for experts in _experts(dataclasses.replace(frame, attention=attention), baseline, target, rules):
                model = dataclasses.replace(frame, attention=attention, experts=experts)
                if shape_distance(model, baseline) <= SHAPES:
                    yield model


def _attentions(frame: ModelConfig, baseline: ModelConfig, target: Budget, rules: Rules) -> Iterator[AttentionConfig]:
    """KV heads that divide the Baseline's, head dimensions that meet the cache, query heads that keep N·H/D."""
    old, slack = baseline.attention, rules.tolerance.kv
    if math.isinf(slack):
        pairs = [(old.kv_heads, old.head_dim)]
    else:
        kv_width = target.kv_values / (2 * frame.executed_layers)  # G · H
        pairs = [
            (kv_heads, head_dim)
            for kv_heads in range(1, old.kv_heads + 1)
            if old.kv_heads % kv_heads == 0
            for head_dim in _around(kv_width / kv_heads, slack, rules.head_dim_multiple)
            if head_dim <= 2 * old.head_dim
        ]
    for kv_heads, head_dim in pairs:
        heads = frame.width * old.heads * old.head_dim / baseline.width / head_dim
        for count in _around(heads, 0, kv_heads):
            yield dataclasses.replace(old, heads=count, kv_heads=kv_heads, head_dim=head_dim)


def _experts(frame: ModelConfig, baseline: ModelConfig, target: Budget, rules: Rules) -> Iterator[ExpertsConfig]:
    """Expert widths that meet the FLOPs, each with numbers of experts that meet the parameters on either side."""
    old = baseline.experts
    per_token = rules.per_token or old.per_token
    attention, width = frame.attention, frame.width
    projections = 2 * width * attention.head_dim * (attention.heads + attention.kv_heads)
    attended = 2 * target.mean_attended_keys * attention.heads * attention.head_dim  # in weights: 12 T̄ N H over 6
    weights = target.train_flops.non_embedding / 6 / frame.executed_layers - attended - projections
    stored = target.stored.non_embedding / frame.layers - projections
    if math.isinf(rules.tolerance.parameters):
        experts_width = (weights - width * old.count) / (3 * per_token * width)
    else:
        experts_width = _solve_experts_width(weights, stored, per_token * width)
    if not experts_width > 0:
        return
    for size in _around(experts_width, rules.tolerance.flops, rules.multiple_of):
        if math.isinf(rules.tolerance.parameters):
            counts = [old.count]
        elif per_token == old.per_token == old.count == 1:
            counts = [1]  # one dense feed-forward layer has no second expert to add
        else:
            counts = _around(stored / (width * (3 * size + 1)), 0, rules.experts_multiple)
        for count in counts:
            if count >= per_token:
                yield dataclasses.replace(old, count=count, per_token=per_token, width=size)


def _solve_experts_width(weights: float, stored: float, active_width: float) -> float:
    """F from both budgets of a layer, with E eliminated.

    3·F·(K·D) + D·E = weights (experts and router, as FLOPs see them) and D·E·(3·F + 1) = stored; so u = 3·F + 1
    solves K·D·u² − (weights + K·D)·u + stored = 0, and the larger root is the one with a small router.
    """
    b = weights + active_width
    root = math.sqrt(max(b * b - 4 * active_width * stored, 0))
    return ((b + root) / (2 * active_width) - 1) / 3


def _around(exact: float, slack: float, multiple: int) -> list[int]:
    """Positive multiples within exact · (1 ± slack), at most NEAR on either side, and the nearest always; ascending."""
    steps = int(min(slack * exact / multiple, NEAR - 1))
    low, high = math.floor(exact / multiple) - steps, math.ceil(exact / multiple) + steps
    return [multiple * times for times in range(max(low, 1), max(high, 1) + 1)]


def _multiples(low: float, high: float, multiple: int) -> Iterator[int]:
    return itertools.takewhile(
        lambda size: size <= high, itertools.count(multiple * math.ceil(low / multiple), multiple)
    )
