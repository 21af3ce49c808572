"""Loss along the compute-optimal frontier: one panel a sparsity, one line an architecture."""

from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smelt_jax.figures.lawlines import band, budget_name, compute_range, draw, flat, handle, spread, strokes
from smelt_jax.figures.style import SMALL, TEXT, log_x, panels, save, style_of
from smelt_jax.law import frontier as frontiers
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.gain_report import levels
from smelt_jax.law.intervals import interval

WIDTH, HEIGHT = 3.4, 4.6  # inches of a panel


def frontier(
    fits: Mapping[str, Sequence[Fitted]], sparsities: Sequence[float], computes: Sequence[float], file: epath.PathLike
) -> None:
    """Draws L*(C), nats per token against training FLOPs, of all fits into `file`: dashed outside of what was fitted.

    Args:
      fits: by the name of their file. Laws without a sparsity have the same line in every panel.
      sparsities: S of the panels.
      computes: the least and most FLOPs; empty for what was fitted and a decade more.

    Raises:
      ValueError: there are more fits than styles, a law has no frontier, or no span is known.
    """
    save(figure(fits, sparsities, computes), file)


def figure(fits: Mapping[str, Sequence[Fitted]], sparsities: Sequence[float], computes: Sequence[float]) -> Figure:
    """The figure, not yet written."""
    lines = flat(fits)
    shown = list(sparsities) if any('S' in fit.kind.columns for _, fit in lines) else [None]
    ends = compute_range([fit for _, fit in lines], computes)
    x = spread(ends)
    drawn, row = panels(len(shown), (max(6.4, WIDTH * len(shown) + 1.2), HEIGHT))
    beyond = banded = False
    for axes, sparsity in zip(row, shown, strict=True):
        for place, (_, fit) in enumerate(lines):
            colour, marker = style_of(place, len(lines))
            level = sparsity if levels(fit, [0.0]) != [None] else None
            best = frontiers.of_fit(fit, level).best(x)
            outside = np.array([bool(names) for names in _outside(fit, x, best, level)])
            draw(axes, x, best.loss, outside, colour, marker)
            beyond |= bool(outside.any())
            if fit.replicates:
                many = frontiers.of_replicates(fit, level)
                losses = np.stack([many.best(compute).loss for compute in x])
                low, high = interval(losses, axis=1)
                band(axes, x, low, high, colour)
                banded = True
        log_x(axes, *ends)
        axes.set_xlabel(budget_name([fit for _, fit in lines]), fontsize=TEXT)
        if sparsity is not None:
            axes.set_title(f'sparsity S = {sparsity:g}', fontsize=TEXT)
    row[0].set_ylabel('least loss, L* (nats per token)', fontsize=TEXT)
    handles = [_handle(name, fit, place, len(lines), shown[0]) for place, (name, fit) in enumerate(lines)]
    row[-1].legend(handles=[*handles, *strokes(beyond, banded)], loc='upper right', fontsize=SMALL, frameon=False)
    return drawn


def _handle(name: str, fit: Fitted, place: int, arms: int, sparsity: float | None) -> Line2D:
    gamma = frontiers.of_fit(fit, sparsity if 'S' in fit.kind.columns else None).gamma
    return handle(*style_of(place, arms), f'{name}, γ = {gamma:.3f}')


def _outside(fit: Fitted, x: np.ndarray, best: frontiers.Best, sparsity: float | None) -> list[tuple[str, ...]]:
    return [
        frontiers.outside(fit, compute, frontiers.Best(*point), sparsity)
        for compute, *point in zip(x, best.size, best.tokens, best.loss, strict=True)
    ]
