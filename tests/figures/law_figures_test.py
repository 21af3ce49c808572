"""Figures of fitted laws draw what the laws say, and show what was not fitted otherwise than what was."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from smelt_jax.figures import domains, effective, frontier, gain, heldout, lawlines, residuals, surface, transfer
from smelt_jax.figures.style import GREY
from smelt_jax.law.design import effective as worth_of
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.frontier import of_fit
from smelt_jax.law.gain import gain as gain_of
from smelt_jax.law.geometry import LADDER
from smelt_jax.law.published import fits_of
from smelt_jax.law.scores import Pairs
from smelt_jax.law.table import Table

BASELINE, SMELT = fits_of('published:smelt')
(LOOPED,) = fits_of('published:looped-moe')
FITS = {'': [BASELINE, SMELT]}
PAIR = {'': (BASELINE, SMELT)}
MOST = 2.2e21  # FLOPs that the study was fitted to


def drawn(fit: Fitted) -> Fitted:
    """With some replicates."""
    moves = 0.003 * np.random.default_rng(0).normal(size=40)
    each = [fit.coefficients | {'E': fit.coefficients['E'] + move} for move in moves]
    return dataclasses.replace(fit, replicates=each)


def strokes(axes: Axes, style: str) -> list[np.ndarray]:
    """Points [n, 2] of the lines of a style, `-` or `--`, without gaps."""
    chosen = [line for line in axes.lines if line.get_linestyle() == style and line.get_color() != GREY]
    found = [np.asarray(line.get_xydata()) for line in chosen]
    return [points[np.isfinite(points[:, 1])] for points in found]


def labels(figure: Figure) -> list[str]:
    legends = [axes.get_legend() for axes in figure.axes] + list(figure.legends)
    return [text.get_text() for legend in legends if legend for text in legend.get_texts()]


def test_the_frontier_is_solid_where_it_was_fitted_and_dashed_beyond() -> None:
    figure = frontier.figure(FITS, (0.95, 0.97), ())
    assert [axes.get_title() for axes in figure.axes] == ['sparsity S = 0.95', 'sparsity S = 0.97']
    for axes, sparsity in zip(figure.axes, (0.95, 0.97), strict=True):
        for inside, beyond, fit in zip(strokes(axes, '-'), strokes(axes, '--'), (BASELINE, SMELT), strict=True):
            assert inside[:, 0].max() <= MOST * 1.0001
            assert beyond[:, 0].min() >= 0.9 * MOST  # joined to the last fitted point
            assert beyond[:, 0].max() == pytest.approx(10 * MOST)
            for points in (inside, beyond):
                assert points[:, 1] == pytest.approx(of_fit(fit, sparsity).best(points[:, 0]).loss)
    assert labels(figure) == ['baseline, γ = 0.237', 'smelt, γ = 0.250', 'within what was fitted', 'extrapolated']


def test_the_axis_says_what_the_budget_is_of() -> None:
    (chinchilla,) = fits_of('published:chinchilla')
    for fits, name in (([BASELINE], ', C = F·D'), ([chinchilla], ', C = 6·N·D'), ([BASELINE, chinchilla], ', C')):
        axes = frontier.figure({'': fits}, (0.95,), ()).axes[0]
        assert axes.get_xlabel() == f'training FLOPs{name}'


def test_hollow_markers_are_those_beyond() -> None:
    (axes,) = frontier.figure(FITS, (0.95,), ()).axes
    for line in axes.lines:
        if line.get_linestyle() == 'None' and len(line.get_xdata()):
            hollow = line.get_markerfacecolor() == 'white'
            assert all((x > MOST) == hollow for x in np.asarray(line.get_xdata()))


def test_intervals_are_drawn_where_there_are_replicates() -> None:
    assert not frontier.figure(FITS, (0.95,), ()).axes[0].collections
    figure = frontier.figure({'': [drawn(BASELINE), drawn(SMELT)]}, (0.95,), ())
    assert len(figure.axes[0].collections) == 2
    assert '95% interval' in labels(figure)
    for pair, bands in ((PAIR[''], 0), ((drawn(BASELINE), drawn(SMELT)), 1)):
        figure = gain.figure({'': pair}, (0.95,), ())
        assert len(figure.axes[0].collections) == bands
        assert labels(figure).count('95% interval') == bands


def test_gains_of_every_sparsity() -> None:
    figure = gain.figure(PAIR, (0.85, 0.97), (1e20, 1e22))
    (axes,) = figure.axes
    for inside, beyond, sparsity in zip(strokes(axes, '-'), strokes(axes, '--'), (0.85, 0.97), strict=True):
        for x, y in [*inside[::40], *beyond[::40]]:
            assert y == pytest.approx(gain_of(BASELINE, SMELT, x, sparsity).gain)
        assert (
            inside[-1, 0] < MOST < beyond[-1, 0]
        )  # where the Baseline needs more than was fitted, it is dashed before
    assert labels(figure) == ['S = 0.85', 'S = 0.97', 'within what was fitted', 'extrapolated']


def test_domains_are_in_order_and_hollow_if_extrapolated() -> None:
    pairs = {'Web': (drawn(SMELT), drawn(BASELINE)), 'Code': (drawn(BASELINE), drawn(SMELT))}
    figure = domains.figure(pairs, (0.95,), (1e21, 1e22))
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ['Web', 'Code']
    points = [line for line in axes.lines if len(line.get_xdata()) == 1]
    gains = [gain_of(*pairs[name], compute, 0.95).gain for compute in (1e21, 1e22) for name in ('Web', 'Code')]
    assert [float(line.get_xdata()[0]) for line in points] == pytest.approx(gains)  # type: ignore[index]
    assert [line.get_markerfacecolor() == 'white' for line in points] == [False, False, True, True]
    assert labels(figure)[-2:] == ['95% interval', 'extrapolated']
    with pytest.raises(ValueError, match='6 pairs of S and C in one figure: 5 can be told apart'):
        domains.figure(pairs, (0.85, 0.95, 0.97), (1e21, 1e22))


def test_the_surface_has_the_frontier_and_a_veil_over_what_was_not_fitted() -> None:
    figure = surface.figure(FITS, 0.95, ())
    for axes, fit in zip(figure.axes, (BASELINE, SMELT), strict=True):
        (inside,) = [points for points in strokes(axes, '-') if len(points) > 50]
        compute = inside[:, 0] * inside[:, 1]
        assert inside[:, 0] == pytest.approx(of_fit(fit, 0.95).best(compute).size)
        assert axes.get_title() == f'{fit.group}, S = 0.95'
        assert len(axes.collections) == 2
    first, second = (axes.collections[1].levels for axes in figure.axes)  # type: ignore[attr-defined]
    assert list(first) == list(second)
    other = dataclasses.replace(SMELT, coefficients=SMELT.coefficients | {'E': 0.5})
    first, second = (axes.collections[1].levels for axes in surface.figure({'': [BASELINE, other]}, 0.95, ()).axes)  # type: ignore[attr-defined]
    assert max(second) < max(first) - 0.5
    unmarked = [dataclasses.replace(fit, ranges={}) for fit in FITS['']]
    assert all(len(axes.collections) == 1 for axes in surface.figure({'': unmarked}, 0.95, (1e20, 1e21)).axes)
    with pytest.raises(ValueError, match='laws of F and N: one figure has one kind of size'):
        surface.figure({'': [BASELINE, *fits_of('published:besiroglu')]}, 0.95, ())


def test_what_visits_are_worth_beyond_those_fitted_is_dashed() -> None:
    figure = effective.figure(LOOPED, LADDER[0], (1, 8), (1, 4, 12))
    (axes,) = figure.axes
    for inside, beyond, experts in zip(strokes(axes, '-'), strokes(axes, '--'), (1, 8), strict=True):
        assert inside[:, 0].max() == pytest.approx(8)
        assert beyond[:, 0].max() == pytest.approx(12)
        for x, y in [*inside[::10], *beyond[::10]]:
            assert y == pytest.approx(worth_of(LOOPED, LADDER[0], experts, x))
    (nothing,) = strokes(effective.figure(LOOPED, LADDER[-1], (1,), (1, 4)).axes[0], '-')
    assert not len(nothing)  # 2.4B was not fitted


def rows(fit: Fitted, shift: float, held: int) -> Table:
    """Ten rows whose losses are `shift` above the law's, of which the first `held` were held out."""
    columns = {'F': np.geomspace(1e9, 1e10, 10), 'S': np.full(10, 0.9), 'D': np.geomspace(3e10, 2e11, 10)}
    mask = np.arange(10) < held
    return Table(fit.kind, columns, fit.loss(columns) + shift, np.full(10, 'cell'), mask, fit.group)


def test_residuals_are_measured_less_predicted_and_hollow_if_held_out() -> None:
    figure = residuals.figure([(BASELINE, rows(BASELINE, 0.004, 3)), (SMELT, rows(SMELT, -0.002, 0))])
    for axes, shift, hollow in zip(figure.axes, (4.0, -2.0), (3, 0), strict=True):
        points = [line for line in axes.lines if line.get_linestyle() == 'None']
        assert [len(line.get_xdata()) for line in points] == [10 - hollow, hollow]
        assert [line.get_markerfacecolor() == 'white' for line in points] == [False, True]
        assert np.concatenate([np.asarray(line.get_ydata()) for line in points]) == pytest.approx(shift)
    title = 'baseline\n7 rows, RMSE 4.0 millinats\n3 held out, RMSE 4.0 millinats'
    assert [axes.get_title() for axes in figure.axes] == [title, 'smelt\n10 rows, RMSE 2.0 millinats']
    with pytest.raises(ValueError, match='5 fits in one figure: 4 can be read'):
        residuals.figure([(BASELINE, rows(BASELINE, 0, 0))] * 5)


def test_held_out_rows_of_every_law() -> None:
    fits = {
        name: [
            dataclasses.replace(fit, rmse=0.003, details={'held_out': {'rmse': rmse, 'points': 5}})
            for fit, rmse in zip((BASELINE, SMELT), errors, strict=True)
        ]
        for name, errors in {'R': (0.01, 0.004), 'D': (0.006, 0.005)}.items()
    }
    figure = heldout.figure(fits)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ['D', 'R']
    points = [float(line.get_xdata()[0]) for line in axes.lines if line.get_markersize() == 8]  # type: ignore[index]
    assert points == pytest.approx([6, 5, 10, 4])
    assert labels(figure) == ['baseline smelt', 'smelt smelt', 'rows fitted']


@pytest.mark.parametrize('sign', [1, -1])
def test_scores_lie_about_the_curve_of_the_reference(sign: int) -> None:
    losses = np.linspace(1.7, 2.3, 20)
    scores = sign * 40 / (1 + np.exp((losses - 2) / 0.1))
    target, names = (losses - 0.1, scores + 3), [''] * 20
    figure = transfer.figure([Pairs('smelt', (losses, scores), target, names, names)], 'baseline', 'core')
    (axes,) = figure.axes
    lines = [np.asarray(line.get_xydata()) for line in axes.lines]
    fitted, further = (points[np.isfinite(points[:, 1])] for points in lines[:2])
    assert np.interp(losses, *fitted.T) == pytest.approx(scores, abs=0.1)
    assert further[:, 0].max() < 1.7
    for points, of in zip(lines[2:], ((losses, scores), target), strict=True):
        assert points == pytest.approx(np.stack(of, 1))
    assert labels(figure)[0] == 'curve of baseline'
    assert ' beyond it' in labels(figure)[2]
    assert axes.xaxis_inverted()


@pytest.mark.parametrize('suffix', ['png', 'svg', 'pdf'])
def test_the_same_figure_has_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    files = [tmp_path / f'{i}.{suffix}' for i in (1, 2)]
    for file in files:
        gain.gain(PAIR, (0.95,), (), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_spans_come_from_what_was_fitted() -> None:
    assert lawlines.compute_range([BASELINE]) == (1.3e19, 10 * MOST)
    own = dataclasses.replace(BASELINE, ranges={'F': (1e9, 1e10), 'D': (1e10, 1e11)})
    assert lawlines.compute_range([own]) == pytest.approx((1e19, 1e22))
    chinchilla = dataclasses.replace(fits_of('published:besiroglu')[0], ranges={'N': (1e9, 1e10), 'D': (1e10, 1e11)})
    assert lawlines.compute_range([chinchilla]) == pytest.approx((6e19, 6e22))
    with pytest.raises(ValueError, match='does not say which F and D it was fitted to; give --compute=LEAST,MOST'):
        lawlines.compute_range([dataclasses.replace(BASELINE, ranges={})])
