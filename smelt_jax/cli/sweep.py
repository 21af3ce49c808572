"""Runs every arm of an experiment from text to table: pack, train, evaluate, branch, evaluate, compare, draw.

    smelt sweep --experiment=experiments/quickstart.py --workdir=runs/quickstart [--set=train.steps=200 …] [--arms=A,B]
    smelt sweep --experiment=experiments/smelt.py --arms=200m-s95-baseline,200m-s95-smelt --workdir=DIR --lines

The first arm is what the others are compared with. Kill it at any moment and run it again: it goes on where it was. With
--lines nothing runs: one line of commands an arm is printed, for a launcher that gives each arm a machine of its own, or a
pod (--coordinator=auto), and to stderr the command that packs, which comes before them.
"""

import inspect
import sys

from absl import flags

from smelt_jax.cli.flags import (
    define_strict_restore,
    define_workdir,
    find_experiment,
    load_experiment,
    load_module,
    override,
)


def define_flags() -> None:
    """--experiment, --arms, --set, --lines, --coordinator, --strict_restore and --workdir."""
    flags.DEFINE_string('experiment', None, 'The experiment, FILE.py. Required.')
    flags.DEFINE_list('arms', None, 'Arguments of the experiment, the first the reference; its ARGS if not given.')
    flags.DEFINE_multi_string('set', [], 'KEY=VALUE, set in the config of every arm; may be repeated.')
    flags.DEFINE_bool('lines', False, 'Print the commands of each arm, one arm a line, instead of running them.')
    flags.DEFINE_enum(
        'coordinator', None, ['auto'], 'With --lines: given to every command, for arms of many processes.'
    )
    define_strict_restore()
    define_workdir('Where packed rows, runs and results go.')
    flags.mark_flag_as_required('experiment')


def run() -> None:
    """Runs, or prints."""
    from rich.console import Console

    from smelt_jax import config, sweep

    given = flags.FLAGS
    module = load_module(find_experiment(given.experiment))
    runs = {}
    if not (arms := given.arms or getattr(module, 'ARGS', ())):
        raise ValueError(f'{given.experiment} has no ARGS; name its arms: --arms=A,B')
    for arm in arms:
        settings = load_experiment(f'{given.experiment}:{arm}')
        for entry in given.set:
            override(settings, entry)
        runs[arm] = config.resolve(settings)
    if given.coordinator and not given.lines:
        raise ValueError(
            f'--coordinator={given.coordinator}: a sweep is one process; with --lines it prints commands for many'
        )
    if given.lines:
        joined = [f'--coordinator={given.coordinator}'] if given.coordinator else []
        packing, lines = sweep.launcher_lines(given.experiment, runs, given.workdir, given.set, joined)
        print(packing, file=sys.stderr)
        print('\n'.join(lines))
        return
    paragraphs = inspect.cleandoc(getattr(module, 'NOTE', '')).split('\n\n')
    note = '\n\n'.join(' '.join(paragraph.split()) for paragraph in paragraphs)
    sweep.sweep(runs, given.workdir, Console(markup=False, highlight=False), note, given.strict_restore)
