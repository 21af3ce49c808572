"""The verb `figure`, as a user runs it."""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt_jax import figures
from smelt_jax.runs import RunDir


@pytest.mark.parametrize('kind', figures.KINDS)
def test_every_kind_is_a_module_with_a_function_of_its_name(kind: str) -> None:
    assert callable(getattr(importlib.import_module(f'smelt_jax.figures.{kind}'), kind))


def test_a_figure_of_two_arms(smelt: Callable, make_arm: Callable[..., list[RunDir]], tmp_path: Path) -> None:
    runs = ','.join(str(run.path) for run in (*make_arm('baseline'), *make_arm('smelt')))
    done = smelt('figure', '--kind=loss_flops', f'--runs={runs}', f'--out={tmp_path}/figure.png')
    assert done.stdout == f'{tmp_path}/figure.png: loss_flops of baseline, smelt\n'
    assert (tmp_path / 'figure.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize(
    ('args', 'code', 'complaint'),
    [
        (('--kind=pie', '--runs=a', '--out=b.png'), 2, 'loss_flops'),
        (('--kind=loss_flops', '--out=b.png'), 2, '--runs is required'),
        (('--kind=loss_flops', '--runs=nowhere', '--out=b.png'), 1, 'nowhere is no run directory'),
    ],
)
def test_a_wrong_command_is_named(
    smelt: Callable, tmp_path: Path, args: tuple[str, ...], code: int, complaint: str
) -> None:
    done = smelt('figure', *args, code=code, cwd=tmp_path)
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
