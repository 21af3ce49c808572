"""Curves of scores are means over seeds of what records say, and show the visits that were trained with."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from task_records import CHANCE, heldout, of_group, of_task, write

from smelt_jax.evaluate import task_tables
from smelt_jax.figures import depth, shots
from smelt_jax.figures.scored import Scored, along_shots, along_visits, scored
from smelt_jax.figures.style import COLOURS, GREY
from smelt_jax.law.reading import Frame, read
from smelt_jax.tasks import means

SHOTS = (0, 1, 2, 4, 16)
VISITS = {'a-baseline': (1,), 'a-smelt': (1, 2, 3)}


@pytest.fixture
def frame(tmp_path: Path) -> Frame:
    """Both tasks of the group, three seeds of the shots where there are any, held-out losses, the group's own records."""
    for name, visits in VISITS.items():
        tasks = [
            of_task(name, task, r, k, seed)
            for task in CHANCE
            for r in visits
            for k in SHOTS
            for seed in range(3 if k else 1)
        ]
        write(tmp_path / name, [*tasks, *(of_group(name, r) for r in visits), *(heldout(name, r) for r in visits)])
    return read([f'{tmp_path}/*'])


def points(figure: Figure, panel: int) -> dict[str, np.ndarray]:
    """Colour → points [n, 2] of its line in a panel."""
    lines = [line for line in figure.axes[panel].lines if line.get_linestyle() != 'None' and line.get_color() != GREY]
    return {str(line.get_color()): np.asarray(line.get_xydata()) for line in lines}


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def bars(figure: Figure, panel: int) -> list[tuple[float, float, float]]:
    """(x, low, high) of the error bars."""
    found = [path for bar in figure.axes[panel].collections for path in bar.get_paths()]
    return [(path.vertices[0, 0], path.vertices[0, 1], path.vertices[1, 1]) for path in found]


def test_points_are_means_over_seeds_with_their_standard_error(frame: Frame) -> None:
    figure = shots.figure(scored(frame, 'hellaswag'), 'accuracy')
    made = [of_task('a-baseline', 'hellaswag', 1, 4, seed) for seed in range(3)]
    for panel, key in enumerate(('accuracy', 'completion')):
        line = points(figure, panel)[COLOURS[0]]
        values = [record[key] for record in made]
        assert line[:, 0].tolist() == list(SHOTS)
        assert line[3, 1] == pytest.approx(statistics.fmean(values))
        error = statistics.stdev(values) / 3**0.5
        (bar,) = [bar for bar in bars(figure, panel)[: len(SHOTS)] if bar[0] == 4]
        assert bar[1:] == pytest.approx((line[3, 1] - error, line[3, 1] + error))
    alone = of_task('a-baseline', 'hellaswag', 1, 0)
    ends = (alone['accuracy'] - alone['accuracy_error'], alone['accuracy'] + alone['accuracy_error'])
    assert bars(figure, 0)[0] == pytest.approx((0, *ends))  # of one seed it is over examples
    assert all(x > 0 for x, *_ in bars(figure, 1))  # where there is none of the completion
    (chance,) = [line for line in figure.axes[0].lines if line.get_color() == GREY]
    assert set(np.asarray(chance.get_ydata())) == {0.25}
    assert figure.axes[0].get_xscale() == 'symlog'


def test_tables_and_figures_have_the_same_means() -> None:
    assert task_tables.means is means.means


def test_what_rounds_to_zero_has_no_sign() -> None:
    table = task_tables.group_table('', [of_group('a', 1, centered=-1e-6)])
    assert list(table.columns[-2].cells) == ['0.0000']


def test_visits_of_training_are_solid_and_filled_others_dashed_and_hollow(frame: Frame) -> None:
    figure = shots.figure(scored(frame, 'copa'), 'accuracy')
    whole = ['a-baseline, 1 visit', 'a-smelt, 1 visit', 'a-smelt, 2 visits', 'a-smelt, 3 visits']
    assert labels(figure) == [*whole, 'chance', 'at the visits of training', 'at other visits']
    strokes = {line.get_color(): line.get_linestyle() for line in figure.axes[0].lines if len(line.get_xydata()) > 2}
    assert [strokes[colour] for colour in COLOURS[:4]] == ['-', '--', '-', '--']
    for place, filled in enumerate((True, False, True, False)):
        marks = [
            line for line in figure.axes[0].lines if line.get_color() == COLOURS[place] and len(line.get_xdata()) == 1
        ]
        assert {line.get_markerfacecolor() != 'white' for line in marks} == {filled}
    figure = depth.figure(scored(frame, 'copa', ['shots==0']), 'accuracy')
    marks = [line for line in figure.axes[0].lines if line.get_color() == COLOURS[1] and len(line.get_xdata()) == 1]
    assert [line.get_markerfacecolor() != 'white' for line in marks] == [False, True, False]


def test_a_group_is_the_mean_of_its_tasks(frame: Frame) -> None:
    of = scored(frame, 'core')
    assert of.grouped
    assert of.chance == pytest.approx(0.375)
    curve = along_shots(of)[0]
    parts = [along_shots(scored(frame, task))[0].points[4] for task in CHANCE]
    for key in ('accuracy', 'centered', 'completion'):
        assert curve.points[4][key].value == pytest.approx(statistics.fmean(part[key].value for part in parts))
        together = sum(part[key].error ** 2 for part in parts) ** 0.5 / 2
        assert curve.points[4][key].error == pytest.approx(together)
    assert parts[0]['centered'].error == pytest.approx(parts[0]['accuracy'].error / 0.75)
    figure = shots.figure(of, 'centered')
    (chance,) = [line for line in figure.axes[0].lines if line.get_color() == GREY]
    assert set(np.asarray(chance.get_ydata())) == {0.0}
    assert figure.get_suptitle() == 'core, mean of 2 tasks'


def test_a_group_has_no_point_where_a_task_is_missing(frame: Frame) -> None:
    some = frame.take(
        [not (t == 'copa' and k == 4) for t, k in zip(frame.column('task'), frame.column('shots'), strict=True)]
    )
    assert [list(curve.points) for curve in along_shots(scored(some, 'core'))] == [[0, 1, 2, 16]] * 4
    assert [list(curve.points) for curve in along_shots(scored(some, 'hellaswag'))] == [list(SHOTS)] * 4


def test_depth_has_the_held_out_loss_beside_the_scores(frame: Frame) -> None:
    figure = depth.figure(scored(frame, 'hellaswag', ['shots<=1'], ['shots==0']), 'accuracy')
    assert labels(figure)[:2] == ['a-baseline, 1 shot', 'a-smelt, 1 shot']
    assert [axes.get_ylabel() for axes in figure.axes][2] == 'held-out loss (nats per token)'
    assert points(figure, 2)[COLOURS[1]] == pytest.approx(np.array([[1, 2.4], [2, 2.3], [3, 2.2]]))
    one = frame.take(
        [t != 'heldout' or n == 'a-smelt' for t, n in zip(*map(frame.column, ('task', 'name')), strict=True)]
    )
    assert len(depth.figure(scored(one, 'hellaswag', ['shots==1']), 'accuracy').axes) == 3
    without = frame.take([task != 'heldout' for task in frame.column('task')])
    assert len(depth.figure(scored(without, 'hellaswag', ['shots==1']), 'accuracy').axes) == 2


def test_depth_of_a_group_is_what_its_own_records_say(frame: Frame) -> None:
    figure = depth.figure(scored(frame, 'core'), 'centered')
    assert points(figure, 0)[COLOURS[1]] == pytest.approx(np.array([[1, 0.1], [2, 0.2], [3, 0.3]]))
    assert points(figure, 1)[COLOURS[1]] == pytest.approx(np.array([[1, 2.9], [2, 2.8], [3, 2.7]]))
    (curve,) = along_visits(scored(frame, 'core', ['visits<3', 'name==a-smelt']))
    assert list(curve.points) == [1, 2]
    # its own records are of both tasks
    with pytest.raises(
        ValueError, match=r'no mean over 1 task\(s\) of core; .* --tasks=core, without --shots, adds it'
    ):
        along_visits(scored(frame, 'core', exclude=['task==copa']))


def test_made_tasks_have_the_names_that_evaluate_takes(tmp_path: Path) -> None:
    write(tmp_path / 'a', [of_task('a', 'copa', 1, shots) | {'task': 'made:dyck', 'group': 'made'} for shots in (0, 1)])
    assert scored(read([str(tmp_path / 'a')]), 'dyck').task == 'made:dyck'


def test_checkpoints_of_one_name_are_told_apart(tmp_path: Path) -> None:
    records = [of_task('a', 'copa', 1, k, step=step) for step in (100, 200) for k in (0, 1)]
    write(tmp_path / 'a', [*records, *(of_task('b', 'copa', 1, k) for k in (0, 1))])
    of = scored(read([str(tmp_path / 'a')]), 'copa')
    assert list(of.lines) == ['a step 100', 'a step 200', 'b']
    write(tmp_path / 'copy', records)
    with pytest.raises(ValueError, match=r'copy/records.jsonl, line 1 are of the same checkpoint and task; give one'):
        scored(read([f'{tmp_path}/a', f'{tmp_path}/copy']), 'copa')


@pytest.mark.parametrize(
    ('values', 'expected'),
    [((0, 1, 2, 4, 8), [0, 1, 2, 4, 8]), ((0, 3, 4, 5, 10, 16), [0, 3, 4, 10, 16]), ((5, 6, 7), [5, 7])],
)
def test_labels_do_not_touch(values: Sequence[int], expected: list[int]) -> None:
    assert shots.labelled(values) == expected


@pytest.mark.parametrize('suffix', ['png', 'svg', 'pdf'])
def test_the_same_figure_has_the_same_bytes(frame: Frame, tmp_path: Path, suffix: str) -> None:
    of: Scored = scored(frame, 'core')
    for draw in (shots.shots, depth.depth):
        files = [tmp_path / f'{i}.{suffix}' for i in (1, 2)]
        for file in files:
            draw(of, 'centered', file)
        assert files[0].read_bytes() == files[1].read_bytes()


def test_the_verb(smelt: Callable, frame: Frame, tmp_path: Path) -> None:
    args = (f'--records={tmp_path}/a-*', f'--out={tmp_path}/one.svg')
    done = smelt('figure', 'shots', '--task=core', '--exclude=visits==3', *args)
    assert done.stdout == f'{tmp_path}/one.svg: shots of core, a-baseline, a-smelt\n'
    assert '3 visits' not in (tmp_path / 'one.svg').read_text()
    done = smelt('figure', 'depth', '--task=copa', '--where=shots==16', '--score=centered', *args)
    assert done.stdout == f'{tmp_path}/one.svg: depth of copa, a-baseline, a-smelt\n'


WRONG: list[tuple[tuple[str, ...], str]] = [
    (('shots',), '--task is required'),
    (('shots', '--task=mmlu'), '--task=mmlu: the records are of core, copa, hellaswag'),
    (
        ('shots', '--task=core', '--where=shots==4'),
        'the records of core are at 4 shots alone; smelt evaluate --shots=…',
    ),
    (('depth', '--task=core', '--where=visits==2'), 'the records of core are at 2 visits alone'),
    (('depth', '--task=copa'), "10 curves in one figure, as 'a-baseline"),
    (('depth', '--task=copa', '--score=loss'), '--score=loss: it is one of accuracy, centered'),
    (('shots', '--task=copa', '--where=shots==9'), '--where=shots==9 leaves none of'),
    (('shots', '--task=copa', '--records=scores.csv'), '--records are tables; these curves are of records.jsonl'),
    (('shots', '--task=copa', '--records='), '--records is required'),
]


@pytest.mark.parametrize(('args', 'complaint'), WRONG)
def test_a_wrong_command_is_named(
    smelt: Callable, frame: Frame, tmp_path: Path, args: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / 'scores.csv').write_text('task,loss\ncopa,2\n')
    done = smelt('figure', args[0], f'--records={tmp_path}/a-*', '--out=a.png', *args[1:], code=1, cwd=tmp_path)
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_records_that_are_not_alike_are_named(tmp_path: Path) -> None:
    for what, value in (('task_version', 'copa-2'), ('examples', 50)):
        write(tmp_path / what, [of_task('a', 'copa', 1, 0), of_task('a', 'copa', 1, 1, **{what: value})])
        with pytest.raises(ValueError, match=rf'line 2: {what} of copa is .* and {value}; evaluate both alike'):
            scored(read([str(tmp_path / what)]), 'copa')
    write(tmp_path / 'trial', [of_task('a', 'copa', 1, 0), of_task('a', 'copa', 1, 0, examples=50)])
    with pytest.raises(ValueError, match=r'examples of copa is .*, or choose with --where=examples==50'):
        scored(read([str(tmp_path / 'trial')]), 'copa')
    write(tmp_path / 'none', [heldout('a', 1)])
    with pytest.raises(ValueError, match='the records are of no task'):
        scored(read([str(tmp_path / 'none')]), 'copa')
