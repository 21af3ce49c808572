"""CE gain along compute: one line a sparsity, or one a pair of fits."""

from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from smelt_jax.figures.lawlines import band, budget_name, compute_range, draw, handle, spread, strokes
from smelt_jax.figures.style import GREY, SMALL, TEXT, log_x, new_figure, save, style_of
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.gain import gains
from smelt_jax.law.gain_report import levels


def gain(
    pairs: Mapping[str, tuple[Fitted, Fitted]],
    sparsities: Sequence[float],
    computes: Sequence[float],
    file: epath.PathLike,
) -> None:
    """Draws the compute-equivalent gain, percent against the target's training FLOPs, into `file`: dashed where either arm lies
    outside of what was fitted, with the interval of the replicates if there are any.

    Args:
      pairs: name → (reference, target).
      sparsities: S of the lines; a law without takes none.
      computes: the least and most FLOPs; empty for what was fitted and a decade more.

    Raises:
      ValueError: there are more lines than styles, or no span is known.
    """
    save(figure(pairs, sparsities, computes), file)


def figure(
    pairs: Mapping[str, tuple[Fitted, Fitted]], sparsities: Sequence[float], computes: Sequence[float]
) -> Figure:
    """The figure, not yet written."""
    ends = compute_range([fit for pair in pairs.values() for fit in pair], computes)
    x = spread(ends)
    lines = [(name, pair, s) for name, pair in pairs.items() for s in levels(pair[0], sparsities)]
    drawn, axes = new_figure()
    axes.axhline(0, color=GREY, linewidth=1)
    handles, beyond, interval = [], False, False
    for place, (name, pair, sparsity) in enumerate(lines):
        colour, marker = style_of(place + 2, len(lines) + 2)  # the first two are the arms'
        found = gains({name: pair}, list(x), [sparsity])
        outside = np.array([bool(one.outside) for one in found])
        draw(axes, x, np.array([one.gain for one in found]), outside, colour, marker)
        if found[0].low is not None:
            low, high = (np.array([getattr(one, end) for one in found], float) for end in ('low', 'high'))
            band(axes, x, low, high, colour)
            interval = True
        beyond |= bool(outside.any())
        words = [name] * bool(name) + [f'S = {sparsity:g}'] * (sparsity is not None)
        handles.append(handle(colour, marker, ', '.join(words) or 'gain'))
    log_x(axes, *ends)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    reference, target = next(iter(pairs.values()))
    axes.set_xlabel(budget_name([target], f' of {target.group or "the target"}'), fontsize=TEXT)
    axes.set_ylabel(f'compute saved at equal loss\nagainst {reference.group or "the reference"}', fontsize=TEXT)
    axes.legend(handles=[*handles, *strokes(beyond, interval)], loc='upper left', fontsize=SMALL, frameon=False)
    return drawn
