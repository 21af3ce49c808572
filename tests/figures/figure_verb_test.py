"""The verb `figure`, as a user runs it."""

import csv
import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt_jax.cli.figure import WORDS
from smelt_jax.figures.asked import DRAWN
from smelt_jax.law.published import fits_of
from smelt_jax.runs import RunDir


@pytest.mark.parametrize('word', WORDS)
def test_every_word_is_a_module_with_a_function_of_its_name(word: str) -> None:
    assert callable(getattr(importlib.import_module(f'smelt_jax.figures.{word}'), word))
    assert word in DRAWN


def test_a_figure_of_two_arms(smelt: Callable, make_arm: Callable[..., list[RunDir]], tmp_path: Path) -> None:
    runs = ','.join(str(run.path) for run in (*make_arm('baseline'), *make_arm('smelt')))
    done = smelt('figure', 'loss_flops', f'--runs={runs}', f'--out={tmp_path}/figure.png')
    assert done.stdout == f'{tmp_path}/figure.png: loss_flops of baseline, smelt\n'
    assert (tmp_path / 'figure.png').read_bytes().startswith(b'\x89PNG')


def grid(file: Path) -> None:
    """A made-up grid: the published laws of both arms, without noise."""
    with file.open('w', newline='') as out:
        table = csv.writer(out)
        table.writerow(['architecture', 'cell', 'F', 'S', 'D', 'loss'])
        for fit in fits_of('published:smelt'):
            for flops in (1e9, 3e9, 1e10):
                for sparsity in (0.85, 0.95):
                    for tokens in (2e10, 5e10, 1e11, 2e11):
                        columns = {'F': flops, 'S': sparsity, 'D': tokens}
                        cell = f'{flops:g}-{sparsity}'
                        table.writerow([fit.group, cell, *columns.values(), float(fit.loss(columns))])


def test_figures_of_fits_of_a_table(smelt: Callable, tmp_path: Path) -> None:
    folder = tmp_path / 'a=b'
    folder.mkdir()
    grid(folder / 'grid.csv')
    rows = (f'--records={folder}/grid.csv', '--by=architecture', '--holdout=D>1.5e11')
    search = ('--cells=cell', '--bootstrap=cells', '--replicates=20', '--starts=20')
    smelt('fit', *rows, *search, '--law=smelt', f'--out={folder}/fit.json')
    fit = f'--fit={folder}/fit.json'
    for word, *args in (
        ('residuals', fit, *rows),
        ('heldout', fit),
        ('frontier', fit),
        ('gain', fit),
        ('domains', f'--fit=All={folder}/fit.json', '--compute=1e20', '--sparsity=0.9'),
        ('surface', fit, '--sparsity=0.9'),
    ):
        done = smelt('figure', word, *args, f'--out={tmp_path}/{word}.svg')
        assert done.stdout.startswith(f'{tmp_path}/{word}.svg: {word} of ')
        assert '<svg' in (tmp_path / f'{word}.svg').read_text()
    done = smelt('law', 'gain', fit, '--compute=1e20', '--sparsity=0.95')
    assert '7.7%' in done.stdout  # as from the published coefficients
    assert 'independent' not in done.stdout
    done = smelt('figure', 'residuals', fit, rows[0], f'--out={tmp_path}/a.svg', code=1)
    assert "the rows are of '', none of 'baseline'; --by=COLUMN says whose" in done.stderr


@pytest.mark.parametrize(
    ('args', 'code', 'complaint'),
    [
        (('pie', '--runs=a', '--out=b.png'), 2, 'say what: loss_flops, frontier, surface'),
        (('loss_flops', '--runs=a'), 2, '--out is required'),
        (('loss_flops', '--out=b.png'), 1, '--runs is required'),
        (('loss_flops', '--runs=nowhere', '--out=b.png'), 1, 'nowhere is no run directory'),
        (('gain', '--fit=published:smelt', '--out=b.jpg'), 1, 'figures are written as .png, .pdf, .svg'),
        (('gain', '--fit=published:smelt', '--compute=1e20', '--out=b.png'), 1, 'give the least and the most'),
        (('surface', '--fit=published:smelt', '--out=b.png'), 1, 'a surface has one; --sparsity=0.95'),
        (('frontier', '--fit=published:looped-moe', '--out=b.png'), 1, 'has no frontier in closed form'),
        (('frontier', '--fit=published:parcae', '--out=b.png'), 1, 'does not say which N and D it was fitted to'),
        (('heldout', '--fit=R=published:smelt', '--out=b.png'), 1, 'R, smelt: nothing was held out'),
        (('effective', '--fit=published:chinchilla', '--out=b.png'), 1, 'chinchilla knows no visits'),
        (('effective', '--fit=published:looped-moe', '--size=7B', '--out=b.png'), 1, '--size=7B: there are 0.3B, 0.6B'),
        (('residuals', '--fit=published:smelt', '--out=b.png'), 1, '--records is required'),
        (('domains', '--fit=published:smelt', '--out=b.png'), 1, '--compute is required'),
    ],
)
def test_a_wrong_command_is_named(
    smelt: Callable, tmp_path: Path, args: tuple[str, ...], code: int, complaint: str
) -> None:
    done = smelt('figure', *args, code=code, cwd=tmp_path)
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
