"""Loss against training FLOPs: what is drawn is what the run directories say, and what they lack is named."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.legend import Legend

from smelt_jax.figures.arms import by_name
from smelt_jax.figures.loss_flops import WINDOW, Point, draw, loss_flops, read_curves, smooth
from smelt_jax.figures.style import COLOURS, MARKERS
from smelt_jax.runs import RunDir

MakeArm = Callable[..., list[RunDir]]


def edit_records(run: RunDir, change: Callable[[dict], dict | None]) -> None:
    """Rewrites the records of a run; those that become None go."""
    records = [new for record in run.records() if (new := change(record)) is not None]
    run.records_file.write_text(''.join(json.dumps(record) + '\n' for record in records))


def lines_of(figure: Figure) -> list[list[tuple[float, float]]]:
    """Every line and set of markers, as points."""
    return [[tuple(xy) for xy in np.asarray(line.get_xydata()).tolist()] for line in figure.axes[0].lines]


def legend_of(figure: Figure) -> Legend:
    """The legend, which is there."""
    legend = figure.axes[0].get_legend()
    assert legend is not None
    return legend


def test_curves_are_what_the_records_say(make_arm: MakeArm) -> None:
    trunk, *branches = make_arm('baseline', branch_steps=(100, 200, 400))
    curves = read_curves('baseline', [branches[1], trunk, branches[2], branches[0]])
    assert [tuple(point) for point in curves.trunk] == [(r['flops'], r['loss']) for r in trunk.records()]
    for (start, end), before, branch in zip(curves.annealed, curves.trunk, branches, strict=True):
        (record,) = branch.records()
        assert start == before
        assert end == (record['flops'], record['loss'])
    assert curves.training[-1].flops == 6e6 * trunk.metrics()[-1]['tokens_seen']


def test_the_figure_shows_every_curve_of_every_arm(make_arm: MakeArm) -> None:
    arms = {name: read_curves(name, make_arm(name)) for name in ('baseline', 'smelt')}
    figure = draw(arms)
    (axes,), lines = figure.axes, lines_of(figure)
    for arm in arms.values():
        assert arm.training in lines
        assert arm.trunk in lines
        assert [end for _, end in arm.annealed] in lines
        assert all([start, end] in lines for start, end in arm.annealed)
    assert axes.get_xscale() == 'log'
    assert 'FLOPs' in axes.get_xlabel()
    assert 'nats per token' in axes.get_ylabel()
    labels = [text.get_text() for text in legend_of(figure).get_texts()]
    assert labels[:2] == ['baseline', 'smelt']
    assert f'±{WINDOW:.0%}' in labels[2]


def test_an_arm_has_one_colour_and_one_marker(make_arm: MakeArm) -> None:
    arms = {
        'baseline': read_curves('baseline', make_arm('baseline')),
        'smelt': read_curves('smelt', make_arm('smelt', 2.9)),
    }
    figure = draw(arms)
    styles = []
    for arm in arms.values():
        points = {tuple(point) for point in (*arm.training, *arm.trunk, *(end for _, end in arm.annealed))}
        drawn = [line for line, xy in zip(figure.axes[0].lines, lines_of(figure), strict=True) if set(xy) <= points]
        assert len(drawn) == 6  # training, trunk, annealed, three links
        styles.append({(line.get_color(), line.get_marker()) for line in drawn})
    assert styles == [
        {(colour, marker), (colour, 'None')} for colour, marker in zip(COLOURS[:2], MARKERS[:2], strict=True)
    ]


@pytest.mark.parametrize('chosen', [slice(None), slice(1, None), slice(2, 3), slice(0, 1)])
def test_every_held_out_loss_is_inside_the_frame(make_arm: MakeArm, chosen: slice) -> None:
    curves = read_curves('baseline', make_arm('baseline')[chosen])
    (axes,) = draw({'baseline': curves}).axes
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    for point in (*curves.trunk, *(end for _, end in curves.annealed)):
        assert left < point.flops < right
        assert low < point.loss < high


@pytest.mark.parametrize('count', [1, 2, 7])
@pytest.mark.parametrize('branch_steps', [(100, 200, 400), (350, 400)])
def test_the_legend_covers_no_held_out_loss(make_arm: MakeArm, count: int, branch_steps: tuple[int, ...]) -> None:
    names = [f'arm {i}' for i in range(count)]
    arms = {name: read_curves(name, make_arm(name, branch_steps=branch_steps)) for name in names}
    figure = draw(arms)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    box = legend_of(figure).get_window_extent()
    points = [point for arm in arms.values() for point in (*arm.trunk, *(end for _, end in arm.annealed))]
    assert not any(box.contains(*axes.transData.transform(point)) for point in points)


@pytest.mark.parametrize('suffix', ['png', 'pdf', 'svg'])
def test_the_suffix_chooses_the_format(make_arm: MakeArm, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / 'new' / f'figure.{suffix}'
    loss_flops({'baseline': make_arm('baseline')}, file)
    assert {'png': b'\x89PNG', 'pdf': b'%PDF', 'svg': b'<svg'}[suffix] in file.read_bytes()[:600]
    assert list(file.parent.iterdir()) == [file]


def test_the_picture_has_both_colours_and_is_the_same_each_time(make_arm: MakeArm, tmp_path: Path) -> None:
    arms = {'baseline': make_arm('baseline'), 'smelt': make_arm('smelt', floor=2.9)}
    files = [tmp_path / 'a.png', tmp_path / 'b.png']
    settings = dict(matplotlib.rcParams)
    for file in files:
        loss_flops(arms, file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert dict(matplotlib.rcParams) == settings
    pixels = imread(files[0])
    assert pixels.shape == (1000, 1600, 4)
    for colour in COLOURS[:2]:
        assert np.all(np.abs(pixels[..., :3] - to_rgb(colour)) < 0.01, axis=-1).sum() > 1000


def test_smoothing_is_the_mean_over_a_share_of_the_tokens() -> None:
    noise = np.random.default_rng(0).normal(size=50)
    lines = [{'tokens_seen': 10 * i, 'loss': float(noise[i - 1])} for i in range(1, 51)]
    for line, point in zip(lines, smooth(lines, 3.0), strict=True):
        near = [
            other['loss'] for other in lines if abs(other['tokens_seen'] / line['tokens_seen'] - 1) <= WINDOW + 1e-9
        ]
        assert point.flops == 3 * line['tokens_seen']
        assert point.loss == pytest.approx(np.mean(near))
    assert smooth([], 3.0) == []


def test_other_visits_tasks_and_steps_are_left_out(make_arm: MakeArm) -> None:
    trunk, *branches = make_arm('baseline')
    expected = read_curves('baseline', [trunk, *branches])
    for run in (trunk, branches[0]):
        record = run.records()[0]
        run.put_records([record | {'visits': 2, 'loss': 9.0}, record | {'task': 'arc', 'loss': 9.0}])
    branches[0].put_records([branches[0].records()[0] | {'step': 110, 'loss': 9.0}])  # on the way to its endpoint
    assert read_curves('baseline', [trunk, *branches]) == expected


def test_a_branch_whose_checkpoint_was_not_evaluated_has_no_link(make_arm: MakeArm) -> None:
    trunk, *branches = make_arm('baseline')
    edit_records(trunk, lambda record: None if record['step'] == 200 else record)
    curves = read_curves('baseline', [trunk, *branches])
    assert [start is None for start, _ in curves.annealed] == [False, True, False]
    draw({'baseline': curves})


def test_no_arms(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='no runs to draw'):
        loss_flops({}, tmp_path / 'figure.png')
    with pytest.raises(ValueError, match='arm baseline: no held-out loss in'):
        loss_flops({'baseline': []}, tmp_path / 'figure.png')
    assert list(tmp_path.iterdir()) == []


def test_runs_that_were_not_evaluated(make_arm: MakeArm, tmp_path: Path) -> None:
    trunk, *branches = make_arm('smelt')
    branches[1].records_file.unlink()
    with pytest.raises(ValueError, match=r'branch-200 has no held-out loss of its endpoint, step 260'):
        loss_flops({'smelt': [trunk, *branches]}, tmp_path / 'figure.png')
    trunk.records_file.unlink()
    with pytest.raises(ValueError, match=r'arm smelt: no held-out loss in .*trunk; run smelt evaluate'):
        loss_flops({'smelt': [trunk]}, tmp_path / 'figure.png')
    trunk.metrics_file.unlink()
    with pytest.raises(ValueError, match=r'trunk has neither metrics nor held-out losses'):
        loss_flops({'smelt': [trunk, branches[0]]}, tmp_path / 'figure.png')
    assert not (tmp_path / 'figure.png').exists()


def test_two_trunks_or_two_configs_in_one_arm(make_arm: MakeArm, tmp_path: Path) -> None:
    one, other = make_arm('one'), make_arm('other')
    with pytest.raises(ValueError, match=r'arm both has two trunks, .*one/trunk and .*other/trunk'):
        read_curves('both', [*one, *other])
    with pytest.raises(ValueError, match='arm both has runs of different configs'):
        read_curves('both', [*one, *other[1:]])


def test_a_record_that_lacks_its_loss_is_named(make_arm: MakeArm) -> None:
    trunk, *_ = make_arm('baseline')
    edit_records(trunk, lambda record: record | {'loss': None})
    with pytest.raises(ValueError, match=r'records.jsonl: the held-out record of step 100 has no loss'):
        read_curves('baseline', [trunk])


def test_an_unknown_format_or_too_many_arms(make_arm: MakeArm, tmp_path: Path) -> None:
    arm = make_arm('baseline')
    with pytest.raises(ValueError, match=r'figure.gif: figures are written as \.png, \.pdf, \.svg'):
        loss_flops({'baseline': []}, tmp_path / 'figure.gif')  # said before anything is read
    with pytest.raises(ValueError, match='8 arms in one figure: 7 can be told apart'):
        loss_flops({str(i): arm for i in range(8)}, tmp_path / 'figure.png')


def test_arms_are_the_names_in_the_configs(make_arm: MakeArm, tmp_path: Path) -> None:
    runs = [*make_arm('smelt'), *make_arm('baseline')]
    arms = by_name([*(run.path for run in runs), runs[0].path])
    assert {name: [run.path for run in of_arm] for name, of_arm in arms.items()} == {
        'smelt': [run.path for run in runs[:4]],
        'baseline': [run.path for run in runs[4:]],
    }
    assert list(arms) == ['smelt', 'baseline']
    with pytest.raises(FileNotFoundError, match='nowhere is no run directory'):
        by_name([tmp_path / 'nowhere'])


def test_one_evaluated_checkpoint_is_enough(make_arm: MakeArm, tmp_path: Path) -> None:
    trunk, *_ = make_arm('baseline', branch_steps=(400,))
    loss_flops({'baseline': [trunk]}, tmp_path / 'figure.png')
    assert read_curves('baseline', [trunk]).trunk == [Point(**{k: trunk.records()[0][k] for k in ('flops', 'loss')})]


def test_drawing_loads_no_jax(make_arm: MakeArm, tmp_path: Path) -> None:
    make_arm('baseline')
    shutil.move(tmp_path / 'baseline', tmp_path / 'moved')  # nothing knows where a run directory was
    code = """
import sys
from pathlib import Path
from smelt_jax.figures.arms import by_name
from smelt_jax.figures.loss_flops import loss_flops
loss_flops(by_name(sorted(Path('moved').iterdir())), 'figure.png')
assert not {'jax', 'jaxlib', 'flax', 'matplotlib.pyplot'} & sys.modules.keys()
"""
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, '-c', code], cwd=tmp_path, env={'PYTHONPATH': root}, check=True)
    assert (tmp_path / 'figure.png').exists()
