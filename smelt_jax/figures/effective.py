"""What visits are worth: effective parameters over active ones, by the number of visits, one line a number of experts."""

from collections.abc import Sequence

import numpy as np
from etils import epath
from matplotlib.figure import Figure

from smelt_jax.figures.lawlines import draw, handle, strokes
from smelt_jax.figures.style import GREY, SMALL, TEXT, new_figure, save, style_of
from smelt_jax.law.design import check_visits, unfitted
from smelt_jax.law.design import effective as worth_of
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.geometry import Size

STEPS = 12  # of a line between two numbers of visits


def effective(fit: Fitted, size: Size, experts: Sequence[int], visits: Sequence[int], file: epath.PathLike) -> None:
    """Draws ρ_eff = N_eff / N_act of models of one size against visits R into `file`: dashed outside
    of what was fitted; above, what the visits cost in FLOPs.

    Args:
      experts: E of the lines.
      visits: R, of which the least and the most are the ends.

    Raises:
      ValueError: the law knows no visits, or there are more lines than styles.
    """
    save(figure(fit, size, experts, visits), file)


def figure(fit: Fitted, size: Size, experts: Sequence[int], visits: Sequence[int]) -> Figure:
    """The figure, not yet written."""
    check_visits(fit)
    x = np.linspace(min(visits), max(visits), STEPS * (max(visits) - min(visits)) + 1)
    drawn, axes = new_figure()
    handles, beyond = [], False
    for place, number in enumerate(experts):
        colour, marker = style_of(place, len(experts))
        y = np.array([worth_of(fit, size, number, times) for times in x])
        outside = unfitted(fit, size, number, x)
        draw(axes, x, y, outside, colour, marker, np.arange(0, len(x), STEPS))
        beyond |= bool(outside.any())
        handles.append(handle(colour, marker, f'E = {number}, m = {size.share(number):.2g}'))
    top = axes.get_ylim()[1]
    axes.plot(x, [size.unrolled(times) / size.active for times in x], color=GREY, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_ylim(1 - 0.03 * (top - 1), top + 0.05 * (top - 1))
    axes.annotate(
        'what they cost (FLOPs)',
        _where(size, top),
        fontsize=SMALL,
        color=GREY,
        xytext=(6, -4),
        textcoords='offset points',
    )
    axes.set_xticks([int(times) for times in np.unique(x.round()) if min(visits) <= times <= max(visits)])
    axes.set_xlabel('visits of the loop, R', fontsize=TEXT)
    axes.set_ylabel(rf'effective / active parameters, $\rho_\mathrm{{eff}}$ ({size.name})', fontsize=TEXT)
    axes.legend(handles=[*handles[::-1], *strokes(beyond, False)], loc='lower right', fontsize=SMALL, frameon=False)
    return drawn


def _where(size: Size, top: float) -> tuple[float, float]:
    """Near the upper end of the costs, N_unroll / N_act = 1 + (R − 1) N_loop / N_act; at their start if nothing is looped."""
    if not size.looped:
        return 1.0, 1.0
    return 1 + (top - 1) * size.active / size.looped, top
