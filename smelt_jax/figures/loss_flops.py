"""Loss against training FLOPs: the trunks of all arms, and the endpoints annealed from them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smelt_jax.figures.arms import heldout_records
from smelt_jax.figures.style import GREY, SMALL, TEXT, check_suffix, log_x, new_figure, save, style_of
from smelt_jax.runs import RunDir, config_fingerprint

WINDOW = 0.1  # of the running mean: as wide everywhere on a logarithmic axis

TRUNK: dict[str, Any] = {'linewidth': 1.4, 'markersize': 7, 'markerfacecolor': 'white', 'markeredgewidth': 1.4}
ANNEALED: dict[str, Any] = {'linestyle': '', 'markersize': 9, 'markeredgecolor': 'white', 'markeredgewidth': 0.8}
LINK: dict[str, Any] = {'linestyle': (0, (4, 2)), 'linewidth': 0.9}


class Point(NamedTuple):
    """Training FLOPs F · D, and loss in nats per token."""

    flops: float
    loss: float


@dataclasses.dataclass(frozen=True)
class Curves:
    """What is drawn of one arm.

    Attributes:
      training: running mean of the trunk's training loss, by FLOPs.
      trunk: held-out loss of the trunk's checkpoints, by FLOPs.
      annealed: held-out loss at the end of each branch, after that of the checkpoint it grew from: None if that one was not
        evaluated.
    """

    training: list[Point]
    trunk: list[Point]
    annealed: list[tuple[Point | None, Point]]


def loss_flops(arms: Mapping[str, Sequence[RunDir]], file: epath.PathLike) -> None:
    """Draws held-out loss (nats per token) against training FLOPs (F · D, on a logarithmic axis) into `file`.

    For each arm: the trunk's training loss, faint, as a mean over `WINDOW` of the tokens to either side; the held-out loss
    of the trunk's checkpoints, hollow and joined; that of the annealed endpoints, filled, each with a thin line from its
    trunk's checkpoint. What the trunks did above and before the held-out losses lies outside the frame.

    Args:
      arms: name in the legend → run directories: a trunk and the branches annealed from it.
      file: PNG, PDF or SVG, by its suffix.

    Raises:
      ValueError: there is nothing to draw, a run directory has nothing to show, an arm mixes runs of several configs, or the
        suffix is of another format.
    """
    check_suffix(file)
    if not arms:
        raise ValueError('no runs to draw; give the run directory of a trunk and those of its branches')
    save(draw({name: read_curves(name, runs) for name, runs in arms.items()}), file)


def draw(arms: Mapping[str, Curves]) -> Figure:
    """The figure, not yet written."""
    figure, axes = new_figure()
    _frame(axes, list(arms.values()))
    for place, arm in enumerate(arms.values()):
        _draw_arm(axes, arm, *style_of(place, len(arms)))
    axes.set_xlabel('training FLOPs (embedding and head left out)', fontsize=TEXT)
    axes.set_ylabel('loss (nats per token)', fontsize=TEXT)
    _legend(axes, arms)
    return figure


def read_curves(name: str, runs: Sequence[RunDir]) -> Curves:
    """What the run directories of an arm hold. Raises ValueError as `loss_flops` does."""
    trunks = [run for run in runs if run.lineage().kind == 'trunk']
    if len(trunks) > 1:
        raise ValueError(f'arm {name} has two trunks, {trunks[0].path} and {trunks[1].path}; give them different names')
    if len({config_fingerprint(run.config()) for run in runs}) > 1:
        raise ValueError(f'arm {name} has runs of different configs, {_paths(runs)}; give them different names')

    records = {run.path: heldout_records(run) for run in runs}
    found = [record for of_run in records.values() for record in of_run]
    if not found:
        raise ValueError(f'arm {name}: no held-out loss in {_paths(runs)}; run smelt evaluate on them first')
    trunk = {record['step']: Point(record['flops'], record['loss']) for run in trunks for record in records[run.path]}
    lines = [line for run in trunks for line in run.metrics()]
    if trunks and not (trunk or lines):
        raise ValueError(
            f'{trunks[0].path} has neither metrics nor held-out losses; leave it out, or train and evaluate it'
        )

    annealed = []
    for run in runs:
        if run in trunks:
            continue
        stop = run.lineage().stop
        ends = [record for record in records[run.path] if record['step'] == stop]
        if not ends:
            raise ValueError(
                f'{run.path} has no held-out loss of its endpoint, step {stop}; finish it and run smelt evaluate'
            )
        annealed += [(trunk.get(end['trunk_step']), Point(end['flops'], end['loss'])) for end in ends]
    return Curves(
        smooth(lines, found[0]['flops_per_token']), list(trunk.values()), sorted(annealed, key=lambda pair: pair[1])
    )


def smooth(lines: Sequence[Mapping[str, float]], flops_per_token: float) -> list[Point]:
    """The mean training loss of the lines whose tokens are within `WINDOW` of each line's, as a share of them. Updates that
    were skipped, since their loss was no number, count for nothing."""
    lines = [line for line in lines if line['loss'] is not None]
    tokens = np.array([line['tokens_seen'] for line in lines], float)
    sums = np.cumsum([0.0, *(line['loss'] for line in lines)])
    first = np.searchsorted(tokens, tokens * (1 - WINDOW), side='left')
    last = np.searchsorted(tokens, tokens * (1 + WINDOW), side='right')
    means = (sums[last] - sums[first]) / (last - first)
    return [Point(flops, mean) for flops, mean in zip(tokens * flops_per_token, means, strict=True)]


def _frame(axes: Axes, curves: Sequence[Curves]) -> None:
    """Limits of the axes: all held-out losses and the training losses beside them, with room for the legend above."""
    points = [point for arm in curves for point in (*arm.trunk, *(end for _, end in arm.annealed))]
    start = min(point.flops for point in points)
    beside = [point for arm in curves for point in arm.training if point.flops >= start]
    losses = [point.loss for point in (*points, *beside)]
    low, high = min(losses), max(losses)
    height = max(high - low, 0.02 * high)
    bottom = low - 0.1 * height
    legend = 0.05 + 0.05 * (len(curves) + 3)  # of the frame's height: a line an arm, three for the strokes
    top = bottom + (high - bottom) / (1 - legend)
    axes.set_ylim(bottom, top)
    left = min([start, *(point.flops for arm in curves for point in arm.training if point.loss < top)])
    right = max(point.flops for point in (*points, *beside))
    margin = max(1.05, (right / left) ** 0.04)
    log_x(axes, left / margin, right * margin)


def _draw_arm(axes: Axes, arm: Curves, colour: str, marker: str) -> None:
    axes.plot(*_xy(arm.training), color=colour, alpha=0.35, linewidth=1.5, zorder=2)
    for start, end in arm.annealed:
        if start is not None:
            axes.plot(*_xy([start, end]), color=colour, zorder=3, **LINK)
    axes.plot(*_xy(arm.trunk), color=colour, marker=marker, zorder=4, **TRUNK)
    axes.plot(*_xy([end for _, end in arm.annealed]), color=colour, marker=marker, zorder=5, **ANNEALED)


def _legend(axes: Axes, arms: Mapping[str, Curves]) -> None:
    """The arms by colour and marker; what the strokes mean, in grey, of those that are there."""
    handles = []
    for place, name in enumerate(arms):
        colour, marker = style_of(place, len(arms))
        handles.append(Line2D([], [], color=colour, marker=marker, markersize=8, linewidth=1.4, label=name))
    if any(arm.training for arm in arms.values()):
        label = f'trunk, training (mean over ±{WINDOW:.0%} of the tokens)'
        handles.append(Line2D([], [], color=GREY, alpha=0.5, label=label))
    if any(arm.trunk for arm in arms.values()):
        handles.append(Line2D([], [], color=GREY, marker='o', label='trunk, held-out', **TRUNK))
    if any(arm.annealed for arm in arms.values()):
        handles.append(Line2D([], [], color=GREY, marker='o', label='annealed, held-out', **ANNEALED | LINK))
    axes.legend(handles=handles, loc='upper right', fontsize=SMALL, frameon=False)


def _xy(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.flops for point in points], [point.loss for point in points]


def _paths(runs: Sequence[RunDir]) -> str:
    return ', '.join(str(run.path) for run in runs) or '(no run directory)'
