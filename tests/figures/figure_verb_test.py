"""The verb `figure`, as a user runs it."""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt_jax.cli.figure import WORDS
from smelt_jax.figures.asked import DRAWN
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
