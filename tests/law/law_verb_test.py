"""The verb `law`, as a user runs it."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smelt_jax.law.asked import ANSWERS
from smelt_jax.law.fitted import save
from smelt_jax.law.published import fits_of

ROOT = Path(__file__).parents[2]
LOOPED = '--fit=published:looped-moe'


def test_words_are_those_that_are_answered() -> None:
    from smelt_jax.cli.law import WORDS

    assert tuple(ANSWERS) == WORDS


def test_the_published_numbers_of_both_studies(smelt: Callable, tmp_path: Path) -> None:
    done = smelt('law', 'published', f'--json={tmp_path}/a.json')
    rows = {row['what']: row for row in json.loads((tmp_path / 'a.json').read_text())['rows']}
    assert len(rows) == 18
    for what, row in rows.items():
        if what.startswith('CE gain'):
            assert -0.15 < float(row['verdict'].removesuffix(' points')) < -0.05
        else:
            assert row['verdict'] in ('same', 'holds')
    assert 'differs' not in done.stdout


def test_a_file_is_as_good_as_what_it_was_written_from(smelt: Callable, tmp_path: Path) -> None:
    save(fits_of('published:smelt'), tmp_path / 'fit.json')
    args = ('gain', '--compute=1e21,1e22', '--sparsity=0.95')
    done = smelt('law', *args, f'--fit={tmp_path}/fit.json', f'--json={tmp_path}/a.json')
    assert done.stdout == smelt('law', *args, '--fit=published:smelt').stdout
    first, second = json.loads((tmp_path / 'a.json').read_text())['gains']
    assert (first['outside'], second['outside']) == ([], ['smelt: C, D', 'baseline: C, D'])
    assert '15.7%' in done.stdout


def test_a_fit_is_shown_with_what_it_was_fitted_to(smelt: Callable) -> None:
    done = smelt('law', 'show', '--fit=published:smelt,published:looped-moe,published:parcae')
    assert 'K │ 1.975e+06 │ 5.264e+06' in done.stdout
    assert 'fitted to N 0.173 to 0.756, D 100 to 500, E 1 to 16, R 1 to 8' in done.stdout
    assert 'fitted to ranges that are not stated: nothing is marked as extrapolated' in done.stdout
    done = smelt('law', 'frontier', '--fit=published:parcae,published:besiroglu', '--compute=1e19')
    assert done.stdout.count('what it was fitted to is not stated') == 2


def test_gains_by_domain_are_of_a_file_each(smelt: Callable, tmp_path: Path) -> None:
    baseline, looped = fits_of('published:smelt')
    save([baseline, looped], tmp_path / 'code.json')
    save([looped, baseline], tmp_path / 'web.json')
    save([baseline, looped], tmp_path / 'S=0.95.json')  # a path with = in it
    fits = f'--fit=Code={tmp_path}/code.json,Math/STEM={tmp_path}/web.json,{tmp_path}/S=0.95.json'
    smelt('law', 'gain', fits, '--compute=1e21', '--sparsity=0.95', f'--json={tmp_path}/a.json')
    found = json.loads((tmp_path / 'a.json').read_text())['gains']
    assert [one['group'] for one in found] == ['Code', 'Math/STEM', '']


def test_a_design_and_its_table_in_a_document(smelt: Callable, tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text('# Page\n\n<!-- design -->\n<!-- end of design -->\n\nThe end.\n')
    budget = ('--flops=5e21', '--memory=3GB', '--bits=4')
    smelt('law', 'design', LOOPED, *budget, f'--markdown={page}#design', f'--json={tmp_path}/a.json')
    best = json.loads((tmp_path / 'a.json').read_text())['best'][0]
    assert (best['size']['name'], best['experts'], best['visits']) == ('1.0B', 8, 2)
    text = page.read_text()
    assert f'    smelt law design {LOOPED} {" ".join(budget)} ' in text
    assert '| 1.0B | 8 | 2 |' in text
    assert '| E = 8 | 1.9807° | 1.9756*° | 1.9768 |' in text  # the star is on R*; ° where D was not fitted
    assert text.endswith('<!-- end of design -->\n\nThe end.\n')


def test_visits_and_what_they_are_worth(smelt: Callable) -> None:
    done = smelt('law', 'visits', LOOPED, '--flops=1e21,1.5e22', '--experts=8')
    row = next(line for line in done.stdout.splitlines() if '0.3B' in line)
    assert [cell.strip() for cell in row.strip('│').split('│')] == ['E = 8', '0.3B', '2°', '5°']
    done = smelt('law', 'effective', LOOPED, '--experts=1', '--visits=1,2')
    assert '1.00 │  1.15' in done.stdout
    assert '1.00° │ 1.17°' in done.stdout  # 2.4B was not fitted
    done = smelt('law', 'effective', '--fit=published:iso-depth')
    assert done.stdout.count('E = 1 ') == 5
    assert 'E = 2' not in done.stdout
    assert 'what it was fitted to is not stated' in done.stdout


def test_fits_that_look_alike_are_called_by_their_files(smelt: Callable, tmp_path: Path) -> None:
    for folder in ('a', 'b'):
        (tmp_path / folder).mkdir()
        save(fits_of('published:besiroglu'), tmp_path / folder / 'fit.json')
    mine, other = f'{tmp_path}/a/fit.json', f'{tmp_path}/b/fit.json'
    for files, arms in {
        'published:chinchilla,published:besiroglu': ['chinchilla', 'besiroglu'],
        f'{mine},{other}': [mine, other],
        f'{mine},published:smelt': ['chinchilla', 'baseline', 'smelt'],
        f'Mine={mine},{other}': ['Mine', 'chinchilla'],
    }.items():
        smelt('law', 'frontier', f'--fit={files}', '--compute=1e20', '--sparsity=0.9', f'--json={tmp_path}/a.json')
        assert [one['arm'] for one in json.loads((tmp_path / 'a.json').read_text())['frontier']] == arms


def scores(file: Path, rows: list[dict]) -> None:
    with file.open('w', newline='') as out:
        table = csv.DictWriter(out, rows[0])
        table.writeheader()
        table.writerows(rows)


def test_transfer_from_a_table(smelt: Callable, tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    rows = []
    for scale in range(4):
        for step in range(6):
            for arm, better, lift in (('baseline', 0.0, 0.0), ('smelt', 0.02, 1.0)):
                loss = 2.4 - 0.15 * scale - 0.03 * step - better
                score = 50 / (1 + np.exp((loss - 2) / 0.2)) + lift + 0.1 * noise.normal()
                rows.append({'architecture': arm, 'cell': f'c{scale}', 'step': step, 'loss': loss, 'core': score})
    scores(tmp_path / 'scores.csv', rows)
    args = ('transfer', f'--records={tmp_path}/scores.csv', '--score=core', '--group=cell', '--replicates=50')
    smelt('law', *args, f'--json={tmp_path}/a.json')
    (arm,) = json.loads((tmp_path / 'a.json').read_text())['arms']
    assert arm['wins'] == {'won': 24, 'tied': 0, 'lost': 0}
    assert [one['group'] for one in arm['residuals']] == ['c0', 'c1', 'c2', 'c3', 'all']
    assert arm['residuals'][-1]['mean'] == pytest.approx(1, abs=0.2)
    scores(tmp_path / 'scores.csv', rows[:-1])
    assert "cell step 'c3 5' is not in both of baseline and smelt" in smelt('law', *args, code=1).stderr
    scores(tmp_path / 'scores.csv', [*rows, rows[0]])
    assert "two rows of baseline are of pair 'c0 0'" in smelt('law', *args, code=1).stderr
    for column, value in (('core', 'nan'), ('loss', 'inf')):
        scores(tmp_path / 'scores.csv', [*rows[:3], {**rows[3], column: value}, *rows[4:]])
        done = smelt('law', *args, code=1)
        assert f'scores.csv, line 5: {column} is {value}; mend it, or leave the row out' in done.stderr
    scores(tmp_path / 'scores.csv', [{**row, 'cell': 'c0', 'step': i // 2} for i, row in enumerate(rows)])
    done = smelt('law', *args, '--seed=-1', code=2)
    assert '--seed=-1' in done.stderr
    done = smelt('law', *args, code=1)
    assert 'the pairs are of one cell: there is nothing to draw; --cells=COLUMN,…' in done.stderr


@pytest.mark.parametrize(
    ('args', 'complaint'),
    [
        (('show',), '--fit is required'),
        (('show', '--fit=nowhere.json'), 'nowhere.json is not there; smelt fit --out=nowhere.json writes it'),
        (('gain', '--fit=published:smelt,published:smelt'), 'a file without a name is given twice'),
        (('gain', LOOPED), "--reference=baseline: the fits of published:looped-moe are of ''"),
        (('frontier', '--fit=published:smelt', '--sparsity=95'), '--sparsity=95: give a share from 0 to below 1'),
        (('frontier', '--fit=published:smelt', '--compute=a'), '--compute=a: give a number above 0, as 5e20'),
        (('frontier', LOOPED), 'looped-bounded-m-moe has no frontier in closed form'),
        (('design', LOOPED), '--flops is required'),
        (('design', LOOPED, '--flops=1e20,1e21'), 'a design has one budget; smelt law visits takes several'),
        (('design', LOOPED, '--flops=5e21', '--memory=3'), '--memory=3: give bytes with a unit, as 3GB'),
        (('design', LOOPED, '--flops=5e21', '--visits=2,1'), '--visits=2,1: give whole numbers from 1'),
        (
            ('design', '--fit=published:smelt', '--flops=1'),
            "has the fits 'baseline', 'smelt'; name one of them with --group",
        ),
        (('design', '--fit=published:joint-moe', '--flops=5e21', '--visits=1'), '--epsilon is required'),
        (('transfer', '--records=a.csv'), '--score is required'),
        (('frontier', '--fit=published:smelt', '--compute='), '--compute is required'),
        (('gain', '--fit=published:smelt', '--sparsity='), '--sparsity is required'),
        (('effective', '--fit=published:chinchilla'), 'chinchilla knows no visits; give a fit of a looped law'),
        (
            ('design', '--fit=published:looped-moe,published:looped-moe', '--flops=1'),
            "has the fits '', '', some of one name; give one of the files alone",
        ),
    ],
)
def test_a_wrong_command_is_named(smelt: Callable, tmp_path: Path, args: tuple[str, ...], complaint: str) -> None:
    done = smelt('law', *args, code=1, cwd=tmp_path)
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_tables_of_the_page_are_what_its_commands_write(smelt: Callable, tmp_path: Path) -> None:
    page = (ROOT / 'docs' / 'laws.md').read_text()
    commands = re.findall(r'^    smelt (law \S+ .*--markdown=docs/laws\.md#(\S+))$', page, flags=re.MULTILINE)
    assert {name for _, name in commands} == {'published', 'design', 'design-cache', 'visits'}
    for _, name in commands:
        assert f'<!-- {name} -->' in page
    empty = re.sub(r'(<!-- (\S+) -->\n)\n    smelt law .*?(<!-- end of \2 -->)', r'\1\3', page, flags=re.DOTALL)
    assert len(empty) < len(page) - 2000
    (tmp_path / 'docs').mkdir()
    (tmp_path / 'docs' / 'laws.md').write_text(empty)
    for command, _ in commands:
        smelt(*command.split(), cwd=tmp_path)
    assert (tmp_path / 'docs' / 'laws.md').read_text() == page
