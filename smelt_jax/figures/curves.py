"""How curves of scores are drawn: a panel a measure, points with their standard errors, hollow at visits not trained with."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from smelt_jax.figures.lawlines import BEYOND
from smelt_jax.figures.scored import Curve, Scored
from smelt_jax.figures.style import GREY, SMALL, TEXT, panels, style_of

LABELS = {
    'accuracy': 'accuracy',
    'centered': 'centered accuracy',
    'completion': 'completion (nats per token)',
    'loss': 'held-out loss (nats per token)',
}
CHANCE = (0, (1, 2))  # strokes of a dotted line
WIDTH, HEIGHT = 3.7, 4.4  # inches, of a panel and of the figure


def draw(of: Scored, curves: Sequence[Curve], score: str, x_axis: Callable[[Axes, Sequence[int]], None]) -> Figure:
    """A panel for `score`, for completion, and for held-out loss if there is any; `x_axis(axes, values)` marks the values."""
    measures = [score, 'completion'] + ['loss'] * any(curve.of('loss')[0] for curve in curves)
    drawn, row = panels(len(measures), (WIDTH * len(measures) + 0.6, HEIGHT), share_y=False)
    values = sorted({at for curve in curves for at in curve.points})
    for axes, measure in zip(row, measures, strict=True):
        if measure == score:
            level = 0.0 if score == 'centered' else of.chance
            axes.axhline(level, color=GREY, linewidth=1.4, linestyle=CHANCE, zorder=1)
        for place, curve in enumerate(curves):
            _draw(axes, curve, measure, *style_of(place, len(curves)))
        if measure == 'accuracy':
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel(LABELS[measure], fontsize=TEXT)
        x_axis(axes, values)
    mean = f', mean of {len(of.tasks)} tasks' * of.grouped
    drawn.suptitle(f'{of.task}{mean}', fontsize=TEXT)
    handles = [_handle(curve, *style_of(place, len(curves))) for place, curve in enumerate(curves)]
    drawn.legend(
        handles=[*handles, *_meanings(curves)],
        loc='outside lower center',
        ncols=len(measures),
        fontsize=SMALL,
        frameon=False,
    )
    return drawn


def _trained(curve: Curve, at: int) -> bool:
    return (at if curve.visits is None else curve.visits) == curve.trained


def _dashed(curve: Curve) -> bool:
    return curve.visits not in (None, curve.trained)


def _draw(axes: Axes, curve: Curve, measure: str, colour: str, marker: str) -> None:
    at, found = curve.of(measure)
    axes.plot(
        at,
        [one.value for one in found],
        color=colour,
        linewidth=1.6,
        linestyle=BEYOND if _dashed(curve) else '-',
        zorder=3,
    )
    for x, (value, error) in zip(at, found, strict=True):
        face = colour if _trained(curve, x) else 'white'
        if error is not None:
            axes.errorbar([x], [value], [error], fmt='none', ecolor=colour, elinewidth=1.1, capsize=2.5, zorder=2)
        above = 4.5 if len(at) == 1 else 4  # a point alone has no line that would show where it is
        axes.plot([x], [value], marker, color=colour, markerfacecolor=face, markersize=6.5, zorder=above)


def _handle(curve: Curve, colour: str, marker: str) -> Line2D:
    face = 'white' if _dashed(curve) else colour
    handle = Line2D([], [], color=colour, linewidth=1.6, marker=marker, markerfacecolor=face, label=curve.name)
    handle.set_linestyle(BEYOND if _dashed(curve) else '-')
    return handle


def _meanings(curves: Sequence[Curve]) -> list[Line2D]:
    """Grey handles of the legend, of what is there."""
    found = [Line2D([], [], color=GREY, linewidth=1.4, linestyle=CHANCE, label='chance')]
    trained = {_trained(curve, at) for curve in curves for at in curve.points}
    for of, face, label in ((True, GREY, 'at the visits of training'), (False, 'white', 'at other visits')):
        if of in trained and len(trained) > 1:
            found.append(
                Line2D([], [], color=GREY, linestyle='', marker='o', markersize=6.5, markerfacecolor=face, label=label)
            )
    return found
