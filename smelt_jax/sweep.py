"""The whole way of the data for every arm of an experiment: pack, train, evaluate, branch, evaluate, compare, draw.

    WORKDIR/pack/                     packed rows, read by all arms
    WORKDIR/ARM/trunk/                a run directory
    WORKDIR/ARM/branch-STEP/          a run directory for each of train.branch_steps
    WORKDIR/comparison-A-B.json, .txt the arms A and B side by side
    WORKDIR/loss_flops.png

Every part finds out by itself what it has done already, so that a sweep that was killed goes on where it was.
"""

import dataclasses
import io
import json
import shlex
from collections.abc import Sequence

import rich.console
from etils import epath

from smelt_jax import screen
from smelt_jax.config import RunConfig, diff, to_dict
from smelt_jax.data.packing import pack
from smelt_jax.evaluate.compare import Arm, compare, tables
from smelt_jax.evaluate.heldout import evaluate
from smelt_jax.evaluate.text import pack_references
from smelt_jax.figures.loss_flops import loss_flops
from smelt_jax.runs import RunDir
from smelt_jax.storage.files import as_path, reach, write_atomically
from smelt_jax.train.branch import branch
from smelt_jax.train.loop import train


def sweep(
    runs: dict[str, RunConfig],
    workdir: str,
    console: rich.console.Console,
    note: str = '',
    strict_restore: bool = False,
) -> None:
    """Runs every arm and compares the first with each other one.

    Args:
      runs: arm → its config; their `pack` settings are the same. `data.pack` is set here.
      workdir: of the sweep.
      console: where progress and tables go.
      note: printed and written below the tables: what this experiment can and cannot show.
      strict_restore: see `train.loop.train`.

    Raises:
      ValueError: the arms would not read the same rows, or would not be scored on the same text; or as the parts raise it.
    """
    root = reach(workdir)
    runs = with_pack(runs, root)
    first = next(iter(runs.values()))
    console.rule('packing')
    pack(first.pack, first.data.pack, console)
    arms = [_run_arm(name, run, root, console, strict_restore) for name, run in runs.items()]
    console.rule('the same text by simpler means')
    steps = max(run_dir.lineage().stop for arm in arms for run_dir in (arm.trunk, *arm.branches))
    references = pack_references(first.data.pack, first.data, steps, first.heldout.max_rows)
    for other in arms[1:]:
        _show(compare(arms[0], other, references), root, console, note)
    figure = root / 'loss_flops.png'
    loss_flops({arm.name: [arm.trunk, *arm.branches] for arm in arms}, figure)
    console.print(f'\nPicture: {figure}; tables: {root}/comparison-*.txt and .json', soft_wrap=True)


def with_pack(runs: dict[str, RunConfig], root: epath.Path) -> dict[str, RunConfig]:
    """The configs with `data.pack` set to the sweep's. Raises ValueError if the arms would not read the same rows, or would
    not be scored on the same text."""
    first_name, first = next(iter(runs.items()))
    for name, run in runs.items():
        lines = diff(_shared(first), _shared(run))
        if lines:
            raise ValueError(f'{first_name} and {name} would not be compared on the same text: {"; ".join(lines)}')
    data = dataclasses.replace(first.data, pack=first.data.pack or str(root / 'pack'))
    return {name: dataclasses.replace(run, data=data) for name, run in runs.items()}


def launcher_lines(
    experiment: str, runs: dict[str, RunConfig], workdir: str, settings: Sequence[str] = (), joined: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The commands of a sweep for a launcher that runs arms on machines of their own: the one that packs, to be run first,
    and one line an arm.

    Args:
      settings: KEY=VALUE, as they are set in `runs`.
      joined: flags of every command that runs a model: how its processes find together.
    """
    runs = with_pack(runs, as_path(workdir))
    overrides = [f'--config.{entry}' for entry in settings if not entry.startswith('data.pack=')]
    packing, lines = '', []
    for name, run in runs.items():
        trunk, pack_folder = f'{workdir}/{name}/trunk', run.data.pack
        config = [f'--config={experiment}:{name}', *overrides]
        packing = packing or shlex.join(['smelt', 'pack', *config, f'--out={pack_folder}'])
        commands = [['train', *config, f'--config.data.pack={pack_folder}', f'--workdir={trunk}']]
        for step in run.train.branch_steps:
            leaf = f'{workdir}/{name}/branch-{step}'
            commands += [
                ['evaluate', f'--checkpoint={trunk}@{step}'],
                ['branch', f'--trunk={trunk}', f'--step={step}', f'--workdir={leaf}'],
                ['evaluate', f'--checkpoint={leaf}'],
            ]
        lines.append(' && '.join(shlex.join(['smelt', *command, *joined]) for command in commands))
    return packing, lines


def _shared(run: RunConfig) -> dict:
    """What arms must have in common."""
    config = to_dict(run)
    train = {key: config['train'][key] for key in ('steps', 'branch_steps', 'branch_tokens')}
    return {'pack': config['pack'], 'data': config['data'], 'train': train, 'heldout': config['heldout']}


def _run_arm(name: str, run: RunConfig, root: epath.Path, console: rich.console.Console, strict_restore: bool) -> Arm:
    console.rule(name)
    trunk = train(run, str(root / name / 'trunk'), strict_restore)
    branches = []
    for step in run.train.branch_steps:
        _evaluate_once(trunk, step)
        folder, tokens = str(root / name / f'branch-{step}'), run.train.branch_tokens
        leaf = branch(str(trunk.path), step, folder, tokens, strict_restore=strict_restore)
        _evaluate_once(leaf, leaf.lineage().stop)
        branches.append(leaf)
    return Arm(name, trunk, branches)


def _evaluate_once(run_dir: RunDir, step: int) -> None:
    if not any(record['step'] == step for record in run_dir.heldout()):
        evaluate(str(run_dir.path), step)


def _show(comparison: dict, root: epath.Path, console: rich.console.Console, note: str) -> None:
    """On the screen, and as files: comparison-BASELINE-OTHER.json and .txt."""
    file = io.StringIO()
    for target in (console, rich.console.Console(markup=False, file=file, width=118)):
        screen.show(target, tables(comparison))
        target.print(f'\n{note}')
    name = '-'.join(('comparison', *comparison['arms']))
    write_atomically(root / f'{name}.json', json.dumps(comparison, indent=1) + '\n')
    write_atomically(root / f'{name}.txt', file.getvalue())
