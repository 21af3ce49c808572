"""What examples in the context are worth: accuracy and completion against their number."""

import math
from collections.abc import Sequence

from etils import epath
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from smelt_jax.figures.curves import draw
from smelt_jax.figures.scored import Scored, along_shots
from smelt_jax.figures.style import TEXT, save

APART = 0.4  # of a doubling: labels nearer to each other would touch


def shots(of: Scored, score: str, file: epath.PathLike) -> None:
    """Draws accuracy (or centered accuracy: `score`) and completion (nats per token) against the number of shots into `file`: a
    curve a checkpoint and number of visits, means over the seeds that drew the shots with their standard errors, chance dotted,
    dashed and hollow at visits that were not trained with.

    Raises:
      ValueError: the records are at one number of shots, or there are more curves than styles.
    """
    save(figure(of, score), file)


def figure(of: Scored, score: str) -> Figure:
    """The figure, not yet written."""
    return draw(of, along_shots(of), score, _axis)


def _axis(axes: Axes, values: Sequence[int]) -> None:
    """0 is as far from 1 as 1 from 2, and 2 from 4."""
    axes.set_xscale('symlog', base=2, linthresh=1, linscale=0.5)
    axes.xaxis.set_major_locator(FixedLocator(labelled(values)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter('{x:g}')
    axes.set_xlabel('examples shown, k', fontsize=TEXT)


def labelled(values: Sequence[int]) -> list[int]:
    """The values that have room for a label: 0 and powers of two first, then what is apart from those."""
    found: list[int] = []
    for value in sorted(values, key=lambda value: (value & (value - 1) != 0, value)):
        if all(abs(_place(value) - _place(other)) >= APART for other in found):
            found.append(value)
    return sorted(found)


def _place(value: int) -> float:
    """On the axis, in doublings."""
    return 1 + math.log2(value) if value else 0.0
