"""How every figure looks, and how it is written. Matplotlib's objects alone, none of its global state."""

import io

import matplotlib
from etils import epath
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter

from smelt_jax.storage.files import reach, write_atomically

# Okabe and Ito's palette, told apart with any kind of colour vision; the markers tell the same in black and white.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X')
GREY = '#606060'
SUFFIXES = ('.png', '.pdf', '.svg')

TEXT, SMALL = 12, 10.5  # points; the figure is 8 inches wide, so that 800 pixels show it at 100 a point and inch
SIZE = (8.0, 5.0)
DPI = 200


def new_figure() -> tuple[Figure, Axes]:
    """A figure with one pair of axes: light grid, no box on the right and above."""
    figure, (axes,) = panels(1)
    return figure, axes


def panels(count: int, size: tuple[float, float] = SIZE, share_y: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure with `count` pairs of axes side by side, in the style of `new_figure`. With `share_y` they have one y axis."""
    figure = Figure(figsize=size, dpi=DPI, layout='constrained')
    FigureCanvasAgg(figure)
    row = list(figure.subplots(1, count, sharey=share_y, squeeze=False)[0])
    for axes in row:
        axes.spines[['top', 'right']].set_visible(False)
        axes.grid(which='major', color='0.9', linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=SMALL)
    return figure, row


def log_x(axes: Axes, left: float, right: float) -> None:
    """A logarithmic x axis from `left` to `right`, with three labels or more however few decades it spans."""
    axes.set_xscale('log')
    axes.set_xlim(left, right)
    ratio = right / left
    marks = (1, 2, 3, 4, 5, 6, 8) if ratio < 5 else (1, 2, 5) if ratio < 50 else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=marks, numticks=20))
    axes.xaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(100, 100)))
    axes.xaxis.set_minor_locator(LogLocator(subs=tuple(range(2, 10)), numticks=20))
    axes.xaxis.set_minor_formatter(NullFormatter())


def style_of(place: int, arms: int) -> tuple[str, str]:
    """Colour and marker of arm number `place` of `arms`. Raises ValueError if there are more arms than styles."""
    if arms > len(COLOURS):
        raise ValueError(f'{arms} arms in one figure: {len(COLOURS)} can be told apart; draw fewer')
    return COLOURS[place], MARKERS[place]


def check_suffix(file: epath.PathLike) -> epath.Path:
    """The file as a path. Raises ValueError if its suffix is of no format that figures are written in."""
    path = reach(file)
    if path.suffix not in SUFFIXES:
        raise ValueError(f'{path}: figures are written as {", ".join(SUFFIXES)}; give the file one of these suffixes')
    return path


def save(figure: Figure, file: epath.PathLike) -> None:
    """Writes the figure in the format of the file's suffix, whole or not at all. Makes the folder."""
    path, buffer = check_suffix(file), io.BytesIO()
    dated = {'.png': {}, '.pdf': {'CreationDate': None}, '.svg': {'Date': None}}  # the same figure, the same bytes
    with matplotlib.rc_context({'svg.hashsalt': 'smelt'}):  # names of an SVG's parts, drawn by lot otherwise
        figure.savefig(buffer, format=path.suffix[1:], dpi=DPI, metadata=dated[path.suffix])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
