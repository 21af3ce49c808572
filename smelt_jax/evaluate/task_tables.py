"""Records of tasks as tables: means over seeds, by visits, by shots, two checkpoints side by side. No jax."""

import itertools
from collections.abc import Mapping, Sequence

from rich.table import Table

from smelt_jax.evaluate.pairs import Difference, Pair
from smelt_jax.evaluate.tables import number
from smelt_jax.tasks.means import Mean, Record, means


def task_tables(records: Sequence[Record]) -> list[Table]:
    """Of one checkpoint: a table at each number of visits; with several of them or several numbers of shots, curves too."""
    found = means(records)
    first = found[0].record
    title = f'{first["name"]}, step {first["step"]}'
    visits = list(dict.fromkeys(mean.record['visits'] for mean in found))
    tables = [_table(f'{title}, {r} visit(s)', [mean for mean in found if mean.record['visits'] == r]) for r in visits]
    if len(visits) > 1:
        tables += _curves(f'{title}: by visits', found, 'visits', 'shots')
    if len({mean.record['shots'] for mean in found}) > len({mean.record['task'] for mean in found}):
        tables += _curves(f'{title}: by shots', found, 'shots', 'visits')
    return tables


def _table(title: str, found: Sequence[Mean]) -> Table:
    table = _columns(
        title,
        ('task',),
        ('shots', 'seeds', 'examples', 'accuracy', 'chance', 'centered', 'nats/token', 'shots dropped'),
    )
    for mean in found:
        record = mean.record
        table.add_row(
            record['task'],
            str(record['shots']),
            str(mean.seeds),
            f'{record["examples"]:,}',
            _cell(mean, 'accuracy'),
            f'{record["chance"]:.1%}',
            f'{mean.centered:z.3f}',
            number(mean.completion),
            f'{record["dropped"]:,}' + f', {record["cut"]:,} cut' * bool(record['cut']),
        )
    return table


def _curves(title: str, found: Sequence[Mean], along: str, other: str) -> list[Table]:
    """Accuracy and completion of every task against `along`, a row a task and value of `other`."""
    points = sorted({mean.record[along] for mean in found})
    tables = []
    for name in ('accuracy', 'nats/token'):
        table = _columns(f'{title}, {name}', ('task', other), [f'{along} = {point}' for point in points])
        for (task, at), group in itertools.groupby(
            sorted(found, key=lambda mean: (mean.record['task'], mean.record[other])),
            key=lambda mean: (mean.record['task'], mean.record[other]),
        ):
            cells = {mean.record[along]: _cell(mean, name) for mean in group}
            if len(cells) > 1:
                table.add_row(task, str(at), *(cells.get(point, '–') for point in points))
        tables.append(table)
    return tables


def _cell(mean: Mean, name: str) -> str:
    if name == 'accuracy':
        return f'{mean.accuracy:.1%}' + (f' ± {100 * mean.error:.1f}' if mean.error is not None else '')
    return number(mean.completion) + (f' ± {mean.completion_error:.4f}' if mean.completion_error is not None else '')


def group_table(title: str, groups: Sequence[Record]) -> Table:
    """Means over the tasks of a group, a row a checkpoint, number of visits and of shots, if not the tasks' own."""
    table = _columns(title, ('group', 'of'), ('visits', 'shots', 'tasks', 'seeds', 'centered', 'nats/token'))
    for record in groups:
        table.add_row(
            record['task'],
            f'{record["name"]}, step {record["step"]}',
            str(record['visits']),
            str(record.get('shots', 'own')),
            str(record['tasks']),
            str(record['seeds']),
            f'{record["centered"]:z.4f}',
            number(record['completion']),
        )
    return table


def pair_table(title: str, names: tuple[str, str], pairs: Mapping[str, Pair]) -> Table:
    """Two checkpoints on the same examples. A star: the interval leaves out 0."""
    reference, other = names
    columns = [f'{measure} {of}' for measure in ('centered', 'nats/token') for of in (reference, other, 'difference')]
    table = _columns(title, ('task',), columns)
    for task, pair in pairs.items():
        table.add_row(task, *_difference(pair.accuracy), *_difference(pair.completion))
    return table


def _difference(of: Difference) -> tuple[str, str, str]:
    star = '*' if of.sure else ''
    return (
        f'{of.reference:z.4f}',
        f'{of.other:z.4f}',
        f'{of.difference:+z.4f}{star} [{of.low:+z.4f}, {of.high:+z.4f}]',
    )


def _columns(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title, title_justify='left')
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify='right')
    return table
