"""Measures speed on this machine, as ratios within one process.

    smelt bench step --config=experiments/tiny_moe.py [--repeats=10] [--json=FILE]
    smelt bench experts --config=experiments/tiny_moe.py:baseline
    smelt bench save --config=experiments/quickstart.py:smelt --repeats=5
    smelt bench restart --config=experiments/quickstart.py:smelt --config.data.pack=runs/quickstart/pack --repeats=5
    smelt bench scoring --config=experiments/quickstart.py:smelt --repeats=5

step: the training step of a config on made-up rows: seconds, CPU seconds, tokens/s, and MFU against the rate of a matrix
product measured just before each step.
experts: one layer's experts over the config's tokens, forward and backward, against as many FLOPs in plain matrix products.
save: what a checkpoint takes from training, as a share of 50 updates.
restart: from the start of smelt train to its first update, resumed against fresh.
scoring: of requests as tasks ask them, against a plain forward pass over full rows of as many tokens.

Machines are shared: trust the ratio, and the CPU seconds, before the seconds.
"""

import json

from absl import flags

from smelt_jax.cli.flags import define_config, run_config

WORDS = ('step', 'experts', 'save', 'restart', 'scoring')


def define_flags() -> None:
    """--config, --repeats and --json."""
    define_config()
    flags.DEFINE_integer('repeats', 10, 'Steps or passes that are timed.', lower_bound=1)
    flags.DEFINE_string('json', '', 'A file for the figures.')


def run(word: str) -> None:
    """Measures, and prints a table."""
    import rich
    from rich.table import Table

    from smelt_jax.bench import experts, saving, scoring, step
    from smelt_jax.storage.files import reach

    config = run_config()
    measures = (step.measure, experts.measure, saving.measure, saving.measure_restart, scoring.measure)
    figures = dict(zip(WORDS, measures, strict=True))[word](config, flags.FLAGS.repeats)
    table = Table(title=f'{word} of {config.name}', show_header=False, title_justify='left')
    for name, value in figures.items():
        table.add_row(
            name,
            f'{value:,.4g}' if isinstance(value, float) else f'{value:,}' if isinstance(value, int) else str(value),
        )
    rich.print(table)
    if flags.FLAGS.json:
        reach(flags.FLAGS.json).write_text(json.dumps(figures, indent=1) + '\n')
