"""The loss surface over size and tokens: lines of equal loss, the frontier across them, budgets as diagonals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smelt_jax.figures.lawlines import compute_range, draw, flat, spread
from smelt_jax.figures.style import COLOURS, GREY, SMALL, TEXT, log_x, panels, save
from smelt_jax.law import frontier as frontiers
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.gain_report import levels

WIDTH, HEIGHT = 4.2, 5.0  # inches of a panel
NEAR = 0.03  # relative difference of the lines of two panels that could be the same
MARGIN = 3.0  # times: how much further than the frontier's ends the axes reach
NAMES = {'F': 'training FLOPs per token, F', 'N': 'parameters, N'}
BUDGETS: dict[str, Any] = {'color': GREY, 'linewidth': 0.9, 'linestyle': (0, (1, 2))}
SHADE = '0.93'
HATCH = '0.75'
VEIL: dict[str, Any] = {'colors': [SHADE], 'hatches': ['//']}


def surface(
    fits: Mapping[str, Sequence[Fitted]], sparsity: float, computes: Sequence[float], file: epath.PathLike
) -> None:
    """Draws the loss of each fit, one panel each, into `file`: what lies outside of what was fitted is hatched.

    Args:
      sparsity: S of all panels; a law without takes none.
      computes: the least and most FLOPs that the frontier is drawn for; empty for what was fitted and a decade more.
    """
    save(figure(fits, sparsity, computes), file)


def figure(fits: Mapping[str, Sequence[Fitted]], sparsity: float, computes: Sequence[float]) -> Figure:
    """The figure, not yet written."""
    lines = flat(fits)
    kinds = {frontiers.size_of(fit.law) for _, fit in lines}
    if len(kinds) > 1:
        raise ValueError(f'the fits are laws of {" and ".join(sorted(kinds))}: one figure has one kind of size')
    ends = compute_range([fit for _, fit in lines], computes)
    drawn, row = panels(len(lines), (max(6.4, WIDTH * len(lines) + 0.8), HEIGHT))
    shown: list[float] = []
    for axes, (name, fit) in zip(row, lines, strict=True):
        level = levels(fit, [sparsity])[0]
        shown = _contours(fit, level, ends, shown)
        _panel(axes, fit, level, ends, shown)
        axes.set_title(name if level is None else f'{name}, S = {level:g}', fontsize=TEXT)
        axes.set_xlabel(NAMES[frontiers.size_of(fit.law)], fontsize=TEXT)
    row[0].set_ylabel('training tokens, D', fontsize=TEXT)
    handles = [
        Line2D([], [], color=COLOURS[0], linewidth=1.2, label='equal loss (nats per token)'),
        Line2D([], [], color=COLOURS[1], linewidth=2, marker='o', markersize=6, label='least loss of a budget'),
        Line2D([], [], label='equal training FLOPs', **BUDGETS),
        Patch(
            facecolor=(0.5, 0.5, 0.5, 0.18),
            edgecolor=GREY,
            hatch='///',
            linewidth=0,
            label='outside of what was fitted',
        ),
    ]
    drawn.legend(handles=handles, loc='outside lower center', ncols=2, fontsize=SMALL, frameon=False)
    return drawn


def _contours(fit: Fitted, sparsity: float | None, ends: tuple[float, float], other: Sequence[float]) -> list[float]:
    """Losses, rising, along the frontier; those of the `other` panel if they are nearly the same, for panels to be compared."""
    steps = frontiers.of_fit(fit, sparsity).best(np.geomspace(ends[0] / 3, ends[1], 9)).loss
    own = sorted({round(float(step), 2) for step in steps})
    near = len(own) == len(other) and all(abs(a - b) <= NEAR * b for a, b in zip(own, other, strict=True))
    return list(other) if near else own


def _panel(axes: Axes, fit: Fitted, sparsity: float | None, ends: tuple[float, float], shown: Sequence[float]) -> None:
    line, size = frontiers.of_fit(fit, sparsity), frontiers.size_of(fit.law)
    x = spread(ends)
    best = line.best(x)
    sizes = spread((best.size[0] / MARGIN, best.size[-1] * MARGIN))
    tokens = spread((best.tokens[0] / MARGIN, best.tokens[-1] * MARGIN))
    axes.set_yscale('log')
    axes.set_ylim(tokens[0], tokens[-1])
    log_x(axes, sizes[0], sizes[-1])  # before labels are placed
    axes.grid(visible=False)
    columns: dict[str, Any] = {size: sizes[None, :], 'D': tokens[:, None]}
    columns |= {} if sparsity is None else {'S': np.full((1, 1), sparsity)}
    losses = fit.loss(columns)
    outside = fit.outside({**columns, 'C': line.flops * sizes * tokens[:, None]})
    if outside.any():
        with_hatch = axes.contourf(sizes, tokens, outside.astype(float), levels=[0.5, 1.5], zorder=1, **VEIL)
        with_hatch.set_edgecolor(HATCH)
        with_hatch.set_linewidth(0.0)
    contours = axes.contour(sizes, tokens, losses, levels=shown, colors=COLOURS[0], linewidths=1.2, zorder=2)
    for text in axes.clabel(contours, fmt='%.2f', fontsize=SMALL - 1):
        text.set_bbox({'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.8})
    for exponent in range(int(np.ceil(np.log10(ends[0]))), int(np.floor(np.log10(ends[1]))) + 1):
        budget = 10.0**exponent / (line.flops * sizes)
        axes.plot(sizes, np.where((budget > tokens[0]) & (budget < tokens[-1]), budget, np.nan), zorder=2, **BUDGETS)
    beyond = np.array(
        [bool(frontiers.outside(fit, c, frontiers.Best(*p), sparsity)) for c, *p in zip(x, *best, strict=True)]
    )
    draw(axes, best.size, best.tokens, beyond, COLOURS[1], 'o')
