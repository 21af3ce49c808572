"""Tables that a law can be fitted to: named float64 columns, checked before work starts."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from smelt_jax.law.law import Law
from smelt_jax.law.reading import Frame, endpoints, read
from smelt_jax.law.select import columns_of, holds, numbers, renamed, select

# What records call the columns of laws. N leaves embeddings out.
OF_RECORDS = {
    'loss': 'loss',
    'F': 'flops_per_token',
    'S': 'sparsity',
    'D': 'tokens_seen',
    'N': 'active_parameters',
    'N_loop': 'looped_parameters',
    'R': 'visits',
    'E': 'experts / experts_per_token',
    'm': 'active_share',
}

# Column → least value, whether it itself is allowed, most, whether it itself is allowed.
RANGES = {
    'loss': (0, False, np.inf, False),
    'N': (0, False, np.inf, False),
    'D': (0, False, np.inf, False),
    'F': (0, False, np.inf, False),
    'S': (0, True, 1, False),
    'E': (1, True, np.inf, False),
    'R': (1, True, np.inf, False),
    'N_loop': (0, True, np.inf, False),
    'm': (0, False, 1, True),
}
COUNTS = ('N', 'D', 'F', 'N_loop')  # columns that have a unit to be wrong in
GAP = 1e4  # between neighbours of a sorted column: more, and they are in two units
SEEDS = 0.1  # relative difference of losses that seeds could make; more, and a column is missing


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows in an order that does not depend on the order of the files: by columns, then loss.

    Attributes:
      law: that the columns belong to.
      columns: name → float64 [n].
      loss: nats per token, float64 [n].
      cells: [n] text: rows with the same one are drawn together by a bootstrap over cells.
      held: bool [n]: rows that are kept from the fit.
      group: what the rows have in common.
      notes: what was left out, and what is to be said of the rows.
    """

    law: Law
    columns: dict[str, np.ndarray]
    loss: np.ndarray
    cells: np.ndarray
    held: np.ndarray
    group: str = ''
    notes: tuple[str, ...] = ()

    def take(self, keep: np.ndarray) -> 'Table':
        """The rows of a mask or of indices."""
        columns = {name: values[keep] for name, values in self.columns.items()}
        return dataclasses.replace(
            self, columns=columns, loss=self.loss[keep], cells=self.cells[keep], held=self.held[keep]
        )

    def check(self, by_cells: bool) -> None:
        """Raises ValueError if there are fewer rows than coefficients, or one cell for draws `by_cells`."""
        points, needed = int((~self.held).sum()), len(self.law.coefficients)
        whose = f' of {self.group}' * bool(self.group)
        if points < needed:
            what = f'{points} rows{whose} for the {needed} coefficients of {self.law.name}'
            raise ValueError(f'{what}; add rows, or take a smaller law')
        if by_cells and len(set(self.cells[~self.held].tolist())) < 2:
            what = f'the rows{whose} are of one cell: there is nothing to draw'
            raise ValueError(f'{what}; --bootstrap=points, or --cells=COLUMN')


def tables(
    records: Iterable[str],
    law: Law,
    columns: Sequence[str] = (),
    by: str = '',
    cells: Sequence[str] = (),
    where: Sequence[str] = (),
    exclude: Sequence[str] = (),
    holdout: Sequence[str] = (),
    best: bool = False,
) -> list[Table]:
    """Reads files and makes a table of each group, by its label.

    Args:
      records: files, run directories or patterns.
      law: whose columns are wanted.
      columns: NAME=EXPRESSION or COLUMN=NAME, where a table calls a column of the law otherwise.
      by: column whose values are the groups; '' for one group of all.
      cells: columns that name a row's cell; by default `cell` of records, and all columns of the law but D of tables.
      where, exclude: conditions of rows to take and to leave out.
      holdout: conditions of rows to keep from the fit.
      best: of rows with the same columns keep the one with the lowest loss, as of a sweep over learning rates.

    Raises:
      ValueError: a file, column, value, unit or condition is not as it should be; it is named.
    """
    frame = read(records)
    wanted = ('loss', *law.columns)
    names = renamed(columns, wanted, frame)
    if frame.records:
        counted = {**OF_RECORDS, 'N': f'active_parameters / {law.unit}', 'D': f'tokens_seen / {law.unit}'}
        counted['N_loop'] = f'looped_parameters / {law.unit}'
        names = {**{name: counted[name] for name in wanted}, **names}
    # The law's names can stand in conditions; there the loss of a row that is left out may be missing.
    aliases = {name: frame.columns[text] for name, text in names.items() if text in frame.columns}
    chosen = {name for condition in (*where, *exclude) for name in columns_of(condition)}
    unnamed = chosen & names.keys() - (aliases | frame.columns).keys()
    computed = {name: list(numbers(frame, names[name])) for name in unnamed}
    frame = dataclasses.replace(frame, columns={**computed, **aliases, **frame.columns})
    frame = select(frame, where, exclude)
    if frame.records:
        frame = endpoints(frame, chosen)
    _check_names(frame, law, [name for name in wanted if name not in names], names)
    found = {name: _checked(frame, law, name, names.get(name, name)) for name in wanted}
    if 'N_loop' in found and (found['N_loop'] > found['N']).any():
        row = int(np.argmax(found['N_loop'] > found['N']))
        raise ValueError(
            f'{frame.places[row]}: N_loop is more than N, of which it is a part; --columns says what they are'
        )
    frame = dataclasses.replace(
        frame, columns={**frame.columns, **{n: list(v) for n, v in found.items() if n in law.columns}}
    )
    held = np.zeros(len(frame), bool)
    for condition in holdout:
        apart = holds(frame, condition)
        if not apart.any():
            raise ValueError(f'--holdout={condition} holds for none of {len(frame)} rows; choose another condition')
        held |= apart
    if held.all():
        raise ValueError(f'--holdout={",".join(holdout)} leaves nothing to fit')
    whose = frame.column(by) if by else [''] * len(frame)
    if None in whose:
        raise ValueError(f'{frame.places[whose.index(None)]}: {by} is nothing; fill it in, or leave the row out')
    labels = np.array([str(value) for value in whose])
    made = []
    for label in sorted(set(labels.tolist())):
        mine = labels == label
        part = {name: values[mine] for name, values in found.items()}
        places = [place for place, one in zip(frame.places, mine, strict=True) if one]
        cell = _cells(frame.take(mine.tolist()), law, cells)
        ties = held[mine], np.unique(cell, return_inverse=True)[1]  # of rows with the same columns and loss
        order = np.lexsort([*ties, part['loss'], *(part[name] for name in reversed(list(law.columns)))])
        keep, notes = _repeats(part, law, places, order, best)
        notes = [*frame.notes, *notes]
        made.append(Table(law, part, part.pop('loss'), cell, held[mine], label, tuple(notes)).take(keep))
    return made


def _cells(frame: Frame, law: Law, cells: Sequence[str]) -> np.ndarray:
    names = list(cells) or (['cell'] if 'cell' in frame.columns else [name for name in law.columns if name != 'D'])
    values = [frame.column(name) for name in names]
    return np.array(
        [
            ' '.join(f'{name}={value}' for name, value in zip(names, row, strict=True))
            for row in zip(*values, strict=True)
        ]
    )


def _check_names(frame: Frame, law: Law, wanted: Sequence[str], renamed: Iterable[str]) -> None:
    """Raises ValueError, naming all of `wanted` that are no columns."""
    what = {'loss': 'the loss in nats per token', **law.columns}
    if missing := [name for name in wanted if name not in frame.columns]:
        those = ', '.join(f'{name} ({what[name]})' for name in missing)
        entries, known = ','.join(f'{name}=…' for name in missing), [n for n in frame.columns if n not in renamed]
        raise ValueError(f'no column {those}; --columns={entries} says which it is of {", ".join(known)}')


def _checked(frame: Frame, law: Law, name: str, expression: str) -> np.ndarray:
    values = numbers(frame, expression)
    low, with_low, high, with_high = RANGES.get(name, (-np.inf, False, np.inf, False))
    good = np.isfinite(values) & ((values > low) | (with_low & (values == low)))
    good &= (values < high) | (with_high & (values == high))
    if not good.all():
        row = int(np.argmin(good))
        span = f'{"[" if with_low else "("}{low:g}, {high:g}{"]" if with_high else ")"}'
        remedy = 'mend it, or leave the row out with --exclude'
        raise ValueError(f'{frame.places[row]}: {name} is {values[row]:g}, not in {span}; {remedy}')
    if name in COUNTS:
        _check_unit(frame, law, name, values, expression if expression in frame.columns else f'({expression})')
    return values


def _check_unit(frame: Frame, law: Law, name: str, values: np.ndarray, source: str) -> None:
    order = np.argsort(values, kind='stable')
    order = order[values[order] > 0]
    if not len(order):
        return
    ratios = values[order][1:] / values[order][:-1]
    if len(ratios) and ratios.max() > GAP and name != 'N_loop':
        i = int(np.argmax(ratios))
        one, other = (f'{values[j]:g} ({frame.places[j]})' for j in order[[i, i + 1]])
        raise ValueError(f'{name} is in two units: nothing between {one} and {other}; give all rows the same unit')
    unit = law.unit if name != 'F' else 1.0
    if unit == 1 and values.max() < 1e3:
        raise ValueError(
            f'{name} is at most {values.max():g}, and {law.name} takes it raw; --columns={name}={source}*1e9'
        )
    if unit == 1e9 and values[order].min() > 1e5:
        raise ValueError(
            f'{name} is {values.min():g} or more, and {law.name} takes billions; --columns={name}={source}/1e9'
        )


def _repeats(
    part: Mapping[str, np.ndarray], law: Law, places: Sequence[str], order: np.ndarray, best: bool
) -> tuple[np.ndarray, list[str]]:
    """Indices of the rows to take, in order, and what is to be said of rows with the same columns.

    The same loss too is a copy of a row, which would count it twice: an error. So is a loss that differs by more than SEEDS.
    What lies between is taken for seeds, all of which count."""
    keep: list[int] = []
    repeated = first = 0  # `first`: the lowest loss of the rows with the same columns
    for i in map(int, order):
        same = bool(keep) and all(part[name][i] == part[name][first] for name in law.columns)
        if same and best:
            continue  # the order is by loss
        if same:
            low, before, loss = (part['loss'][j] for j in (first, keep[-1], i))
            rows = f'{places[keep[-1] if before == loss else first]} and {places[i]} have the same {", ".join(law.columns)}'
            if before == loss:
                raise ValueError(f'{rows} and the same loss; remove the copy')
            if loss > low * (1 + SEEDS):
                raise ValueError(
                    f'{rows}, and losses {low:g} and {loss:g}, too far apart for seeds; --best keeps the lowest'
                )
            repeated += 1
        first = first if same else i
        keep.append(i)
    dropped = len(order) - len(keep)
    notes = [f'{repeated} rows repeat the columns of another with another loss, and count as seeds'] * bool(repeated)
    notes += [f'{dropped} rows had a better one with the same columns, and were left out'] * bool(dropped)
    return np.array(keep), notes
