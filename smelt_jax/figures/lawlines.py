"""What figures of fitted laws have in common: where they begin and end, and how they show what was not fitted."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from smelt_jax.figures.style import GREY
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.frontier import size_of
from smelt_jax.law.units import flops_text

HOLLOW: dict[str, Any] = {'marker': 'o', 'markersize': 6, 'markerfacecolor': 'white'}
POINTS = 241  # of a line
BEYOND = (0, (4, 2.5))  # strokes of what is extrapolated
MARKED = 6  # points of a line that have a marker
MOST = 1e40  # FLOPs: the axes of more than these overflow
DECADES = 1.0  # drawn past what was fitted, upwards


def spread(ends: tuple[float, float]) -> np.ndarray:
    """POINTS values from one end to the other, evenly in their logarithm."""
    return np.geomspace(*ends, POINTS)


def compute_range(fits: Sequence[Fitted], given: Sequence[float] = ()) -> tuple[float, float]:
    """The FLOPs that a figure of `fits` spans: the least and most of `given`; else what they were fitted to and DECADES more.

    Raises ValueError if a fit does not say what it was fitted to and nothing is given, or what is given is no such span.
    """
    if given:
        what = f'--compute={",".join(f"{value:g}" for value in given)}'
        if len(set(given)) < 2:
            raise ValueError(f'{what}: give the least and the most, as 1e19,1e23')
        if min(given) < 1 or max(given) > MOST:
            raise ValueError(f'{what}: a figure shows from 1 to {flops_text(MOST)} FLOPs')
        return min(given), max(given)
    spans = [_computes(fit) for fit in fits]
    return min(low for low, _ in spans), max(high for _, high in spans) * 10**DECADES


def _computes(fit: Fitted) -> tuple[float, float]:
    size = size_of(fit.law)
    if 'C' in fit.ranges:
        return fit.ranges['C']
    if size not in fit.ranges or 'D' not in fit.ranges:
        name = fit.group or fit.law
        raise ValueError(f'the fit {name} does not say which {size} and D it was fitted to; give --compute=LEAST,MOST')
    flops = 1.0 if size == 'F' else 6.0
    (small, large), (few, many) = fit.ranges[size], fit.ranges['D']
    return flops * small * few, flops * large * many


def budget_name(fits: Sequence[Fitted], of: str = '') -> str:
    """Of an axis: training FLOPs C, and what they are of by the laws, if all have the same size."""
    names = {'F': ', C = F·D', 'N': ', C = 6·N·D'}
    kinds = {size_of(fit.law) for fit in fits}
    return f'training FLOPs{of}' + (names[kinds.pop()] if len(kinds) == 1 else ', C')


def draw(
    axes: Axes, x: np.ndarray, y: np.ndarray, outside: np.ndarray, colour: str, marker: str, places: Any = None
) -> None:
    """A line, solid with filled markers where it was fitted, dashed with hollow ones where `outside`, joined.

    The markers, at the indices `places` or at MARKED of them, are points of the line: they tell lines apart without colours."""
    reach = outside.copy()
    reach[1:] |= outside[:-1]  # so that the strokes meet
    reach[:-1] |= outside[1:]
    axes.plot(x, np.where(outside, np.nan, y), color=colour, linewidth=1.8, zorder=3)
    axes.plot(x, np.where(reach, y, np.nan), color=colour, linewidth=1.8, linestyle=BEYOND, zorder=3)
    if places is None:
        places = np.linspace(0, len(x) - 1, 2 * MARKED + 1).astype(int)[1::2]
    for chosen, face in ((places[~outside[places]], colour), (places[outside[places]], 'white')):
        axes.plot(x[chosen], y[chosen], marker, color=colour, markerfacecolor=face, markersize=6.5, zorder=4)


def handle(colour: str, marker: str, label: str) -> Line2D:
    """A line of `draw` in a legend."""
    return Line2D([], [], color=colour, linewidth=1.8, marker=marker, markersize=6.5, label=label)


def band(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> None:
    """An interval around a line."""
    axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0, zorder=1)


def strokes(beyond: bool, interval: bool) -> list[Any]:
    """Grey handles of a legend: what the strokes mean, of those that are there."""
    found: list[Any] = []
    if beyond:
        found.append(
            Line2D([], [], color=GREY, linewidth=1.8, marker='o', markersize=6, label='within what was fitted')
        )
        found.append(Line2D([], [], color=GREY, linewidth=1.8, linestyle=BEYOND, label='extrapolated', **HOLLOW))
    if interval:
        found.append(Line2D([], [], color=GREY, linewidth=8, alpha=0.25, label='95% interval'))
    return found


def name_of(fit: Fitted, name: str = '') -> str:
    """In a legend."""
    return ' '.join(part for part in (name, fit.group) if part) or fit.law


def flat(fits: Mapping[str, Sequence[Fitted]]) -> list[tuple[str, Fitted]]:
    """(name in the legend, fit) of fits by the name of their file."""
    return [(name_of(fit, name), fit) for name, group in fits.items() for fit in group]
