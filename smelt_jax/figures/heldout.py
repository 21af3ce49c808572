"""How laws predict rows that were held out of their fit: the RMSE of each law, for each way of holding out."""

from collections.abc import Mapping, Sequence

from etils import epath
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smelt_jax.figures.style import SMALL, TEXT, log_x, panels, save, style_of
from smelt_jax.law.fitted import Fitted

LEAST = 1e-9  # millinats: where an error of nothing is drawn


def heldout(fits: Mapping[str, Sequence[Fitted]], file: epath.PathLike) -> None:
    """Draws the RMSE (millinats, logarithmic) of held-out rows by law, a row of the figure for each name, into `file`. Small
    open circles are the RMSE of the rows that were fitted.

    Args:
      fits: by what was held out, as R or D; several laws each, with `held_out` in their details.

    Raises:
      ValueError: a fit held nothing out, or there are more laws than styles.
    """
    save(figure(fits), file)


def figure(fits: Mapping[str, Sequence[Fitted]]) -> Figure:
    """The figure, not yet written."""
    laws = list(dict.fromkeys(_law(fit) for group in fits.values() for fit in group))
    drawn, (axes,) = panels(1, (8.0, 1.7 + 0.6 * len(fits)))
    names, values = list(fits)[::-1], []
    for row, name in enumerate(names):
        for fit in fits[name]:
            if 'held_out' not in fit.details:
                raise ValueError(
                    f'{name or "a fit"}, {fit.law}: nothing was held out; smelt fit --holdout=R>8 and the like do'
                )
            place = laws.index(_law(fit))
            colour, marker = style_of(place, len(laws))
            y = row + (0.0 if len(laws) == 1 else 0.5 * (0.5 - place / (len(laws) - 1)))
            rmse = max(1e3 * fit.details['held_out']['rmse'], LEAST)
            values.append(rmse)
            if fit.rmse:
                fitted = max(1e3 * fit.rmse, LEAST)
                values.append(fitted)
                axes.plot([fitted, rmse], [y, y], color=colour, linewidth=1, zorder=2)
                axes.plot(fitted, y, 'o', color=colour, markerfacecolor='white', markersize=4.5, zorder=5)
            axes.plot(rmse, y, marker, color=colour, markersize=8, zorder=4)
    margin = max(1.1, (max(values) / min(values)) ** 0.06)
    log_x(axes, min(values) / margin, max(values) * margin)
    axes.xaxis.set_major_formatter('{x:g}')
    axes.set_yticks(range(len(names)), [name or 'all' for name in names], fontsize=TEXT)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis='y')
    axes.set_xlabel('RMSE of the loss (millinats per token)', fontsize=TEXT)
    axes.set_ylabel('held out', fontsize=TEXT)
    handles = []
    for place, law in enumerate(laws):
        colour, marker = style_of(place, len(laws))
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle='', markersize=8, label=law))
    handles.append(
        Line2D(
            [], [], color='0.4', marker='o', markersize=4.5, markerfacecolor='white', linewidth=1, label='rows fitted'
        )
    )
    axes.legend(handles=handles, loc='center left', bbox_to_anchor=(1.0, 0.5), fontsize=SMALL, frameon=False)
    return drawn


def _law(fit: Fitted) -> str:
    return ' '.join(part for part in (fit.group, fit.law) if part)
