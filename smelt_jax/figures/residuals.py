"""What fitted laws leave unexplained: measured less predicted loss, by predicted loss."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smelt_jax.figures.lawlines import name_of
from smelt_jax.figures.style import GREY, SMALL, TEXT, panels, save, style_of
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.table import Table

WIDTH, HEIGHT = 3.6, 4.4  # inches of a panel
MANY = 150  # rows; of more the markers are smaller
PANELS = 4  # with more groups the panels would be too small to read


def residuals(found: Sequence[tuple[Fitted, Table]], file: epath.PathLike) -> None:
    """Draws measured − predicted loss (millinats per token) of each row against its predicted loss (nats) into `file`, a panel
    a fit: hollow where a row was held out of the fit or lies outside of what was fitted; dotted, the fit's RMSE either way.

    Args:
      found: fits, each with the rows that it was fitted to or is to be tried on.

    Raises:
      ValueError: there are more fits than panels.
    """
    save(figure(found), file)


def figure(found: Sequence[tuple[Fitted, Table]]) -> Figure:
    """The figure, not yet written."""
    if len(found) > PANELS:
        raise ValueError(
            f'{len(found)} fits in one figure: {PANELS} can be read side by side; choose some with --where'
        )
    drawn, row = panels(len(found), (max(6.4, WIDTH * len(found) + 1.0), HEIGHT))
    hollow = False
    for place, (axes, (fit, table)) in enumerate(zip(row, found, strict=True)):
        colour, marker = style_of(place, len(found))
        predicted = fit.loss(table.columns)
        error = 1e3 * (table.loss - predicted)
        apart = table.held | fit.outside(table.columns)
        hollow |= bool(apart.any())
        size = 6.0 if len(error) < MANY else 4.0
        for mask, face, edge in ((~apart, colour, 'white'), (apart, 'white', colour)):
            style: dict[str, Any] = {
                'markerfacecolor': face,
                'markeredgecolor': edge,
                'markersize': size,
                'markeredgewidth': 0.1 * size + 0.3,
            }
            axes.plot(predicted[mask], error[mask], marker, zorder=3, **style)
        axes.axhline(0, color=GREY, linewidth=1)
        for side in (-1, 1) if fit.rmse else ():
            axes.axhline(side * 1e3 * (fit.rmse or 0.0), color=GREY, linewidth=1.1, linestyle=(0, (1, 2)))
        words = [name_of(fit)]
        for mask, what in ((~table.held, 'rows'), (table.held, 'held out')):
            if mask.any():
                words.append(f'{mask.sum()} {what}, RMSE {np.sqrt(np.mean(error[mask] ** 2)):.1f} millinats')
        axes.set_title('\n'.join(words), fontsize=SMALL)
        axes.set_xlabel('predicted loss (nats per token)', fontsize=TEXT)
    row[0].set_ylabel('measured − predicted (millinats)', fontsize=TEXT)
    handles = [Line2D([], [], color=GREY, linewidth=1.1, linestyle=(0, (1, 2)), label="± the fit's RMSE")]
    if hollow:
        label = 'held out, or outside of what was fitted'
        handles.append(Line2D([], [], color=GREY, marker='o', linestyle='', markerfacecolor='white', label=label))
    drawn.legend(handles=handles, loc='outside lower center', ncols=2, fontsize=SMALL, frameon=False)
    return drawn
