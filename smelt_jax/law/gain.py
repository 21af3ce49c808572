"""Compute-equivalent gain: what share of the compute an architecture saves at equal loss."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from smelt_jax.law import frontier as frontiers
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.intervals import interval


@dataclasses.dataclass(frozen=True)
class Gain:
    """CE Gain = 1 − C_tgt / C_ref, where both frontiers have the same loss.

    Attributes:
      group: '' of the whole loss, else as a domain.
      compute: C_tgt, FLOPs.
      sparsity: S, of both; None if the laws have none.
      loss: of both, nats per token.
      reference_compute: C_ref; infinite if the reference's floor is above the loss.
      gain: as a fraction.
      low, high: the interval at `LEVEL` by the replicates; None without replicates.
      paired: the replicates of both fits drew the same cells.
      outside: `arm: columns` where a point lies outside of what was fitted; empty if it is nowhere extrapolated.
    """

    group: str
    compute: float
    sparsity: float | None
    loss: float
    reference_compute: float
    gain: float
    low: float | None
    high: float | None
    paired: bool
    outside: tuple[str, ...]


def gain(reference: Fitted, target: Fitted, compute: float, sparsity: float | None = None, group: str = '') -> Gain:
    """The gain of `target` over `reference` where the target's frontier is at `compute`.

    The interval is by percentiles of the gains of replicate i of both fits, for every i. Where both drew the same cells, as
    when they were fitted together, what moves both arms alike moves no gain; else the replicates are independent.

    Raises:
      ValueError: the fits are of different laws, or have different numbers of replicates; or as `frontier`.
    """
    if not (np.isfinite(compute) and compute > 0):
        raise ValueError(f'compute={compute}: FLOPs are more than 0')
    if reference.law != target.law:
        what = f'{_arm(reference)} is a fit of {reference.law} and {_arm(target)} of {target.law}'
        raise ValueError(f'{what}; a gain is of one law')
    ours, theirs = frontiers.of_fit(target, sparsity), frontiers.of_fit(reference, sparsity)
    best = ours.best(compute)
    needed = float(theirs.compute(best.loss))
    low = high = None
    if len(target.replicates) != len(reference.replicates):
        raise ValueError(
            f'{_arm(reference)} has {len(reference.replicates)} replicates and {_arm(target)} {len(target.replicates)}; '
            f'fit both with the same number'
        )
    if target.replicates:
        each = frontiers.of_replicates(target, sparsity).best(compute).loss
        with np.errstate(divide='ignore'):  # a reference that needs next to nothing
            gains = 1 - compute / frontiers.of_replicates(reference, sparsity).compute(each)
        low, high = map(float, interval(gains))
    points = [(target, compute, best)]
    if np.isfinite(needed) and needed > 0:
        points.append((reference, needed, theirs.best(needed)))
    found = [(fit, frontiers.outside(fit, at, point, sparsity)) for fit, at, point in points]
    return Gain(
        group=group,
        compute=compute,
        sparsity=sparsity,
        loss=float(best.loss),
        reference_compute=needed,
        gain=1 - compute / needed if needed else -np.inf,
        low=low,
        high=high,
        paired=paired(reference, target),
        outside=tuple(f'{_arm(fit)}: {", ".join(names)}' for fit, names in found if names),
    )


def gains(
    pairs: Mapping[str, tuple[Fitted, Fitted]], computes: Sequence[float], sparsities: Sequence[float | None]
) -> list[Gain]:
    """The gain of every pair (reference, target), by its group, at every compute and sparsity.

    The pairs are fits of the whole loss, or of the loss of a domain, a quartile of sources, a length of documents.
    """
    return [
        gain(*pair, compute, sparsity, group)
        for group, pair in pairs.items()
        for sparsity in sparsities
        for compute in computes
    ]


def paired(reference: Fitted, target: Fitted) -> bool:
    """Whether replicate i of both fits drew the same cells: their `details` have the same cells and the same seed."""
    draws = [[fit.details.get(name) for name in ('bootstrap', 'seed', 'cells')] for fit in (reference, target)]
    return draws[0] == draws[1] and draws[0][0] == 'cells' and draws[0][2] is not None


def _arm(fit: Fitted) -> Any:
    return fit.group or fit.law
