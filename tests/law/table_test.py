"""Tables: what a file says comes out as columns, and what cannot be fitted is named before work starts."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from law_tables import ROWS, write

from smelt_jax.law.laws import law_named
from smelt_jax.law.reading import read
from smelt_jax.law.select import numbers
from smelt_jax.law.table import Table, tables

CHINCHILLA, SMELT = law_named('chinchilla'), law_named('smelt')


def table(file: Path, rows: Sequence[dict[str, Any]], **how: Any) -> Table:
    """The one table of `rows`, by way of a file."""
    (made,) = tables([str(write(file, rows))], how.pop('law', CHINCHILLA), **how)
    return made


def changed(row: int, **values: Any) -> list[dict[str, Any]]:
    """ROWS but for one."""
    return [{**old, **values} if i == row else old for i, old in enumerate(ROWS)]


def test_columns_come_as_numbers_in_an_order_of_their_own(tmp_path: Path) -> None:
    made = table(tmp_path / 'a.csv', ROWS[::-1])
    assert made.columns['N'].dtype == made.loss.dtype == np.float64
    assert made.columns['N'].tolist() == [1e7, 1e7, 3e7, 3e7, 1e8, 1e8]
    assert made.columns['D'].tolist() == [1e9, 1e10] * 3
    assert made.loss.tolist() == [row['loss'] for row in ROWS]
    assert len(set(made.cells.tolist())) == 3  # all but D
    for order in ([3, 1, 0, 5, 2, 4], [5, 4, 3, 2, 1, 0]):
        again = table(tmp_path / 'b.csv', [ROWS[i] for i in order])
        assert again.loss.tolist() == made.loss.tolist()
        assert again.cells.tolist() == made.cells.tolist()


def test_several_files_patterns_and_gz(tmp_path: Path) -> None:
    write(tmp_path / 'a1.csv', ROWS[:2])
    write(tmp_path / 'a2.csv', ROWS[2:4])
    with gzip.open(write(tmp_path / 'b.csv', ROWS[4:]).with_suffix('.csv.gz'), 'wb') as out:
        out.write((tmp_path / 'b.csv').read_bytes())
    (made,) = tables([f'{tmp_path}/a*.csv', f'{tmp_path}/b.csv.gz'], CHINCHILLA)
    assert made.loss.tolist() == [row['loss'] for row in ROWS]
    (made,) = tables(
        [f'{tmp_path}/a*.csv', f'{tmp_path}/a1.csv', f'{tmp_path}/b.csv'], CHINCHILLA
    )  # a file given twice
    assert len(made.loss) == 6


def test_renames_go_either_way_and_compute(tmp_path: Path) -> None:
    rows = [{'params': r['N'], 'once': 1, 'final.loss': r['loss'], 'tokens': r['D'] / 1e9} for r in ROWS]
    made = table(tmp_path / 'a.csv', rows, columns=['loss=final.loss', 'N=params-once+1**2*1', 'D=tokens*1e9'])
    assert made.columns['N'].tolist() == [1e7, 1e7, 3e7, 3e7, 1e8, 1e8]
    rows = [{'params': r['N'], 'final_loss': r['loss'], 'tokens': r['D']} for r in ROWS]
    made = table(tmp_path / 'a.csv', rows, columns=['loss=final_loss', 'params=N', 'tokens=D'])
    assert made.columns['D'].tolist() == [1e9, 1e10] * 3


def test_rows_are_chosen_left_out_held_out_and_grouped(tmp_path: Path) -> None:
    rows = [
        {**row, 'arm': arm, 'use': int(row['N'] > 1e7 or row['D'] > 5e9 or arm == 'a')} for arm in 'ab' for row in ROWS
    ]
    rows += [{**row, 'D': row['D'] * 3, 'arm': arm, 'use': 1} for arm in 'ab' for row in ROWS]
    file = write(tmp_path / 'a.csv', rows)
    first, second = tables([str(file)], CHINCHILLA, by='arm', where=['use==1'], exclude=['D>2e10'], holdout=['N>5e7'])
    assert (first.group, second.group) == ('a', 'b')
    assert (len(first.loss), len(second.loss)) == (9, 8)
    assert first.held.sum() == 3
    assert (first.columns['N'][first.held] == 1e8).all()


def test_cells_are_named_by_columns(tmp_path: Path) -> None:
    made = table(tmp_path / 'a.csv', [{**row, 'scale': i % 2} for i, row in enumerate(ROWS)], cells=['scale'])
    assert sorted(set(made.cells.tolist())) == ['scale=0', 'scale=1']


def test_rows_with_the_same_columns(tmp_path: Path) -> None:
    file = tmp_path / 'a.csv'
    seeds = [*ROWS, {**ROWS[2], 'loss': ROWS[2]['loss'] * 1.01}]
    made = table(file, seeds)
    assert len(made.loss) == 7
    assert 'count as seeds' in made.notes[0]
    with pytest.raises(ValueError, match=r'line 4 and .*line 8 have the same N, D and the same loss; remove the copy'):
        table(file, [*ROWS, ROWS[2]])
    with pytest.raises(ValueError, match='too far apart for seeds; --best'):
        table(file, [*ROWS, {**ROWS[2], 'loss': ROWS[2]['loss'] * 1.3}])
    chain = [{**ROWS[2], 'loss': ROWS[2]['loss'] * step} for step in (1.08, 1.16)]  # each near the next
    with pytest.raises(ValueError, match=r'line 4 and .*line 9 have .* too far apart for seeds'):
        table(file, [*ROWS, *chain])
    made = table(file, [{**ROWS[2], 'loss': ROWS[2]['loss'] * 1.3}, *ROWS, ROWS[2]], best=True)
    assert made.loss.tolist() == [row['loss'] for row in ROWS]
    assert '2 rows had a better one' in made.notes[0]


BAD = [
    (changed(1, loss=''), r'line 3: loss is nothing, not a number'),
    (changed(1, N='big'), r"line 3: N is 'big', not a number"),
    (changed(1, loss=0), r'line 3: loss is 0, not in \(0, inf\)'),
    (changed(1, loss=-1), r'line 3: loss is -1'),
    (changed(1, loss='nan'), r'line 3: loss is nan'),
    (changed(1, loss='inf'), r'line 3: loss is inf'),
    (changed(4, D=10), r'D is in two units: nothing between 10 \(.*line 6\) and 1e\+09'),
    ([{**row, 'D': row['D'] / 1e9} for row in ROWS], r'D is at most 10, and chinchilla takes it raw'),
    ([{'N': 1e8, 'loss': 2}], r'no column D \(training tokens\); --columns=D='),
]


@pytest.mark.parametrize(('rows', 'complaint'), BAD, ids=[complaint for _, complaint in BAD])
def test_bad_rows_are_named(tmp_path: Path, rows: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        table(tmp_path / 'a.csv', rows)


@pytest.mark.parametrize(
    ('law', 'column', 'value', 'complaint'),
    [
        ('smelt', 'S', 1.0, r'S is 1, not in \[0, 1\)'),
        ('smelt', 'S', -0.1, r'S is -0.1'),
        ('looped-bounded-m-moe', 'm', 0.0, r'm is 0, not in \(0, 1\]'),
        ('looped-bounded-m-moe', 'R', 0.5, r'R is 0.5, not in \[1'),
        ('looped-bounded-m-moe', 'E', 0.0, r'E is 0, not in \[1'),
        ('looped-bounded-m-moe', 'N_loop', 0.9, r'N_loop is more than N'),
        ('looped-bounded-m-moe', 'N', 1e9, r'N is in two units'),
    ],
)
def test_values_that_a_law_has_no_meaning_for_are_named(
    tmp_path: Path, law: str, column: str, value: float, complaint: str
) -> None:
    rows = [
        {'N': 0.3, 'D': d, 'E': 8, 'R': r, 'm': 0.2, 'N_loop': 0.2, 'S': 0.9, 'F': 1e9, 'loss': 2 + 1 / d + 1 / r}
        for d in (100, 200, 300, 400) for r in (1, 2, 3, 4)
    ]  # fmt: skip
    rows = [{**row, 'D': row['D'] * (1e9 if law == 'smelt' else 1)} for row in rows]
    if law != 'smelt':
        table(tmp_path / 'good.csv', rows, law=law_named(law))
    rows[3][column] = value
    with pytest.raises(ValueError, match=complaint):
        table(tmp_path / 'a.csv', rows, law=law_named(law))


def test_raw_counts_for_a_law_of_billions_are_named(tmp_path: Path) -> None:
    rows = [{**row, 'E': e} for row in ROWS for e in (1, 2, 4)]
    with pytest.raises(ValueError, match=r'N is 1e\+07 or more, and moe takes billions; --columns=N=N/1e9'):
        table(tmp_path / 'a.csv', rows, law=law_named('moe'))


def test_files_that_are_no_tables_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'gone\.csv is not there'):
        read([f'{tmp_path}/gone.csv'])
    with pytest.raises(ValueError, match=r'\*.csv matches nothing'):
        read([f'{tmp_path}/*.csv'])
    with pytest.raises(ValueError, match='no table is given'):
        read([])
    for text, complaint in [
        ('', 'is empty'),
        ('a,b\n', 'has no rows'),
        ('a,a\n1,2\n', "two columns 'a'"),
        ('a,b\n1,2,3\n', 'line 2: has 3 values for 2 columns'),
    ]:
        (tmp_path / 'a.csv').write_text(text)
        with pytest.raises(ValueError, match=complaint):
            read([f'{tmp_path}/a.csv'])
    (tmp_path / 'a.csv').write_bytes(b'\xff\xfe\x00')
    with pytest.raises(ValueError, match='is no CSV file'):
        read([f'{tmp_path}/a.csv'])
    (tmp_path / 'a.csv').write_text('a,b\n1,2\n3,"4\n' + '5,6\n' * 50_000)
    with pytest.raises(ValueError, match=r'a\.csv, line 3: field larger than .*; is a quote never closed\?'):
        read([f'{tmp_path}/a.csv'])
    whole = gzip.compress(b'a,b\n1,2\n')
    for packed in (whole[:-9], whole[:12] + b'\xff' + whole[13:], b'a,b\n1,2\n'):
        (tmp_path / 'a.csv.gz').write_bytes(packed)
        with pytest.raises(ValueError, match=r'a\.csv\.gz is no CSV file'):
            read([f'{tmp_path}/a.csv.gz'])
    (tmp_path / 'r.jsonl.gz').write_bytes(gzip.compress(b'{}\n'))
    with pytest.raises(ValueError, match=r'r\.jsonl\.gz is packed'):
        read([f'{tmp_path}/r.jsonl.gz'])
    (tmp_path / 'r.jsonl').write_bytes(b'\xff\n')
    with pytest.raises(ValueError, match=r'r\.jsonl is no text in UTF-8'):
        read([f'{tmp_path}/r.jsonl'])
    (tmp_path / 'r.jsonl').write_text('{"a":' * 100_000 + '\n')
    with pytest.raises(ValueError, match=r'r\.jsonl, line 1: damaged, no JSON'):
        read([f'{tmp_path}/r.jsonl'])
    with pytest.raises(ValueError, match=r'line 4: arm is nothing; fill it in, or leave the row out'):
        table(tmp_path / 'a.csv', [{**row, 'arm': '' if i == 2 else 'a'} for i, row in enumerate(ROWS)], by='arm')
    with pytest.raises(ValueError, match='--where=N>1e12 leaves none of 6 rows'):
        table(tmp_path / 'a.csv', ROWS, where=['N>1e12'])
    with pytest.raises(ValueError, match='--holdout=N>1 leaves nothing to fit'):
        table(tmp_path / 'a.csv', ROWS, holdout=['N>1'])


def test_all_names_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    rows = [{'params': row['N'], 'tokens': row['D'], 'loss': row['loss']} for row in ROWS]
    with pytest.raises(
        ValueError, match=r'no column N \(parameters\), D \(.*\); --columns=N=…,D=… says .* of params, tokens'
    ):
        table(tmp_path / 'a.csv', rows)


def test_a_holdout_of_no_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='--holdout=N>1e9 holds for none of 6 rows'):
        table(tmp_path / 'a.csv', ROWS, holdout=['N>1e9'])


def test_ends_of_lines_and_marks_of_encodings_change_nothing(tmp_path: Path) -> None:
    made = table(tmp_path / 'a.csv', ROWS)
    text = (tmp_path / 'a.csv').read_text()
    for other in (text.replace('\n', '\r\n'), text.replace('\n', '\r'), '\ufeff' + text, text.rstrip('\n')):
        (tmp_path / 'b.csv').write_bytes(other.encode())
        (again,) = tables([f'{tmp_path}/b.csv'], CHINCHILLA)
        assert again.loss.tolist() == made.loss.tolist()


@pytest.mark.parametrize(
    ('expression', 'complaint'),
    [
        ('1/0*D', 'D is inf'),
        ('D*10**400', 'D is inf'),
        ('D*1' + '0' * 400, 'is no number that a computer holds'),
        ('(0-8)**0.5*D', 'D is nan'),
        ('-' * 5000 + 'D', 'is neither a column nor arithmetic'),
        ('D+' * 5000 + 'D', 'is neither a column nor arithmetic'),
    ],
    ids=lambda text: text[:20],
)
def test_arithmetic_without_a_result_is_named(tmp_path: Path, expression: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        table(tmp_path / 'a.csv', ROWS, columns=[f'D={expression}'])


@pytest.mark.parametrize('loss', ['true', '1' + '0' * 400])
def test_what_python_would_take_for_a_number_is_named(tmp_path: Path, loss: str) -> None:
    (tmp_path / 'r.jsonl').write_text(
        f'{{"step": 1, "visits": 1, "task": "t", "pack": "p", "name": "a-b", "loss": {loss}}}\n'
    )
    with pytest.raises(ValueError, match=r'r\.jsonl, line 1: loss is (True|10+), not a number'):
        numbers(read([f'{tmp_path}/r.jsonl']), 'loss')


def test_a_remedy_names_what_the_table_calls_the_column(tmp_path: Path) -> None:
    rows = [{'N': row['N'], 'tokens': row['D'] / 1e9, 'loss': row['loss']} for row in ROWS]
    with pytest.raises(ValueError, match=r'D is at most 10, and chinchilla takes it raw; --columns=D=tokens\*1e9'):
        table(tmp_path / 'a.csv', rows, columns=['D=tokens'])
    with pytest.raises(ValueError, match=r'--columns=D=\(tokens/2\)\*1e9'):
        table(tmp_path / 'a.csv', rows, columns=['D=tokens/2'])


def test_of_equals_the_same_is_the_best_whatever_the_order(tmp_path: Path) -> None:
    twins = [{**row, 'lr': lr} for row in ROWS for lr in (1, 2)]
    made = [table(tmp_path / 'a.csv', rows, best=True, cells=['lr']) for rows in (twins, twins[::-1])]
    assert made[0].cells.tolist() == made[1].cells.tolist()


def test_conditions_know_the_columns_that_are_computed(tmp_path: Path) -> None:
    rows = [{'once': row['N'] / 2, 'loop': row['N'] / 2, 'D': row['D'], 'loss': row['loss']} for row in ROWS]
    rows += [{**rows[0], 'once': 1e12}, {**rows[0], 'D': 3e9}]
    made = table(
        tmp_path / 'a.csv', rows, columns=['N=once+loop'], exclude=['N>1e11'], where=['N>0'], holdout=['N>5e7']
    )
    assert made.columns['N'].max() == 1e8
    assert made.held.sum() == 2
