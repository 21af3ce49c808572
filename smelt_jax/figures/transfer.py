"""Scores against losses: the curve of one arm, and what the other scores beyond it."""

from collections.abc import Sequence

import numpy as np
from etils import epath
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smelt_jax.figures.lawlines import POINTS
from smelt_jax.figures.style import GREY, SMALL, TEXT, new_figure, save, style_of
from smelt_jax.law.scores import Pairs
from smelt_jax.law.transfer import fit_sigmoid, residuals


def transfer(arms: Sequence[Pairs], reference: str, score: str, file: epath.PathLike) -> None:
    """Draws the scores of all arms against their losses (nats per token, falling to the right), and the reference's curve, into
    `file`: dashed outside of the reference's losses. The legend has each arm's mean residual.

    Raises:
      ValueError: there are more arms than styles, or too few points for a curve.
    """
    save(figure(arms, reference, score), file)


def figure(arms: Sequence[Pairs], reference: str, score: str) -> Figure:
    """The figure, not yet written."""
    drawn, axes = new_figure()
    losses, scores = arms[0].reference
    curve = fit_sigmoid(losses, scores)
    every = np.concatenate([losses, *(pairs.target[0] for pairs in arms)])
    x = np.linspace(every.min(), every.max(), POINTS)
    inside = (x >= losses.min()) & (x <= losses.max())
    axes.plot(x, np.where(inside, curve(x), np.nan), color=GREY, linewidth=1.6, zorder=2)
    axes.plot(x, np.where(inside, np.nan, curve(x)), color=GREY, linewidth=1.6, linestyle=(0, (4, 2.5)), zorder=2)
    points = [(reference, losses, scores), *((pairs.arm, *pairs.target) for pairs in arms)]
    handles = [Line2D([], [], color=GREY, linewidth=1.6, label=f'curve of {reference}')]
    for place, (name, at, of) in enumerate(points):
        colour, marker = style_of(place, len(points))
        axes.plot(at, of, marker, color=colour, markersize=5.5, markeredgecolor='white', markeredgewidth=0.7, zorder=3)
        mean = '' if not place else f', {residuals(curve, at, of).mean():+.3g} beyond it'
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle='', markersize=6, label=name + mean))
    axes.invert_xaxis()
    axes.set_xlabel('held-out loss (nats per token)', fontsize=TEXT)
    axes.set_ylabel(score, fontsize=TEXT)
    rises = curve.high > curve.low  # to the right, where losses are small
    axes.legend(handles=handles, loc='upper left' if rises else 'upper right', fontsize=SMALL, frameon=False)
    return drawn
