"""CE gain of groups, as domains or quartiles of sources, at one compute: a point and its interval each."""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from smelt_jax.figures.style import COLOURS, GREY, SMALL, TEXT, panels, save, style_of
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.gain import Gain, gains
from smelt_jax.law.gain_report import levels
from smelt_jax.law.intervals import LEVEL
from smelt_jax.law.units import flops_text


def domains(
    pairs: Mapping[str, tuple[Fitted, Fitted]],
    sparsities: Sequence[float],
    computes: Sequence[float],
    file: epath.PathLike,
) -> None:
    """Draws the compute-equivalent gain of each pair, largest first, into `file`: hollow if it is extrapolated.

    Args:
      pairs: group → (reference, target), fitted to that group's loss.
      sparsities, computes: S and training FLOPs of the target; each combination has a marker of its own.

    Raises:
      ValueError: there are more combinations than styles.
    """
    save(figure(pairs, sparsities, computes), file)


def figure(
    pairs: Mapping[str, tuple[Fitted, Fitted]], sparsities: Sequence[float], computes: Sequence[float]
) -> Figure:
    """The figure, not yet written."""
    first = next(iter(pairs.values()))[0]
    places = [(sparsity, compute) for sparsity in levels(first, sparsities) for compute in computes]
    found = {place: {one.group: one for one in gains(pairs, [place[1]], [place[0]])} for place in places}
    if len(places) > len(COLOURS) - 2:
        raise ValueError(
            f'{len(places)} pairs of S and C in one figure: {len(COLOURS) - 2} can be told apart; fewer --sparsity or --compute'
        )
    order = sorted(pairs, key=lambda name: found[places[0]][name].gain)
    drawn, (axes,) = panels(1, (8.0, 1.6 + 0.5 * len(order)))
    for i, place in enumerate(places):
        colour, marker = style_of(i + 2, len(places) + 2)
        shift = 0.0 if len(places) == 1 else 0.5 * (0.5 - i / (len(places) - 1))
        for row, name in enumerate(order):
            _draw(axes, found[place][name], row + shift, colour, marker)
    axes.set_yticks(range(len(order)), [name or 'all' for name in order], fontsize=TEXT)
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.grid(visible=False, axis='y')
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _, target = next(iter(pairs.values()))
    axes.set_xlabel(f'compute that {target.group or "the target"} saves at equal loss', fontsize=TEXT)
    _legend(axes, places, [one for by_name in found.values() for one in by_name.values()])
    return drawn


def _draw(axes: Axes, one: Gain, y: float, colour: str, marker: str) -> None:
    if one.low is not None and one.high is not None:
        axes.plot([one.low, one.high], [y, y], color=colour, linewidth=1.6, zorder=2)
    face = 'white' if one.outside else colour
    axes.plot(one.gain, y, marker, color=colour, markerfacecolor=face, markersize=8, markeredgewidth=1.5, zorder=3)


def _legend(axes: Axes, places: Sequence[tuple[float | None, float]], found: Sequence[Gain]) -> None:
    handles = []
    for i, (sparsity, compute) in enumerate(places):
        colour, marker = style_of(i + 2, len(places) + 2)
        words = f'C = {flops_text(compute)}' + ('' if sparsity is None else f', S = {sparsity:g}')
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle='', markersize=8, label=words))
    if any(one.low is not None for one in found):
        handles.append(Line2D([], [], color=GREY, linewidth=1.6, label=f'{LEVEL:.0%} interval'))
    if any(one.outside for one in found):
        hollow: dict[str, Any] = {'markerfacecolor': 'white', 'markeredgewidth': 1.5}
        handles.append(
            Line2D([], [], color=GREY, marker='o', linestyle='', markersize=8, label='extrapolated', **hollow)
        )
    axes.legend(handles=handles, loc='center left', bbox_to_anchor=(1.0, 0.5), fontsize=SMALL, frameon=False)
