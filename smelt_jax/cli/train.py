"""Trains a config in a workdir. Run again, it goes on from its last checkpoint.

    smelt train --config=experiments/quickstart.py:smelt --config.data.pack=runs/quickstart/pack --workdir=runs/smelt

The workdir gets config.json (every number the run depends on), lineage.json (packed rows, tokenizer), checkpoints/,
metrics.jsonl and tensorboard/. A workdir that belongs to another config is refused, with the keys that differ. Checkpoints of
train.branch_steps are kept for ever: `smelt branch` starts there.

Devices share the work as config.mesh says, processes are joined by --coordinator; neither changes the numbers. See
docs/scale.md.

The learning rate warms up and then stays (the W and S of WSD); the decay is the branches' part.
"""

from absl import flags

from smelt_jax.cli.flags import (
    define_config,
    define_processes,
    define_strict_restore,
    define_workdir,
    join_processes,
    run_config,
)


def define_flags() -> None:
    """--config, --workdir, --strict_restore, and how many processes find together."""
    define_config()
    define_processes()
    define_workdir('The run directory.')
    define_strict_restore()


def run() -> None:
    """Trains."""
    from smelt_jax.parallel import processes
    from smelt_jax.train.loop import train

    join_processes()
    train(run_config(), flags.FLAGS.workdir, flags.FLAGS.strict_restore)
    if processes.first():
        print(f'{flags.FLAGS.workdir}: trained')
