"""What visits of the loop do to scores: accuracy, completion and held-out loss against their number."""

from collections.abc import Sequence

from etils import epath
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from smelt_jax.figures.curves import draw
from smelt_jax.figures.scored import Scored, along_visits
from smelt_jax.figures.style import TEXT, save


def depth(of: Scored, score: str, file: epath.PathLike) -> None:
    """Draws accuracy or centered accuracy (`score`), completion, and held-out loss if there are records of it (nats per token)
    against visits of the loop into `file`: a curve a checkpoint, filled at the visits of training and hollow at others, with
    standard errors where records tell them.

    Raises:
      ValueError: the records are at one number of visits, or there are more curves than styles.
    """
    save(figure(of, score), file)


def figure(of: Scored, score: str) -> Figure:
    """The figure, not yet written."""
    return draw(of, along_visits(of), score, _axis)


def _axis(axes: Axes, values: Sequence[int]) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
    axes.set_xlim(values[0] - 0.4, values[-1] + 0.4)
    axes.set_xlabel('visits of the loop, R', fontsize=TEXT)
