"""Held-out loss of a checkpoint: over all, by source, by domain, by document length.

    smelt evaluate --workdir=runs/smelt [--step=1000] [--visits=3] [--pack=DIR]

Prints tables and adds a record to records.jsonl of the run directory: the loss in nats per token and in bits per byte, with
tokens and bytes counted, and the whole budget of the model beside it. Evaluating the same step and visits again replaces
the record. Any number of visits can be asked for, whatever the model was trained with.
"""

from absl import flags

from smelt_jax.cli.flags import define_mesh, define_processes, define_workdir, given_mesh, join_processes


def define_flags() -> None:
    """--workdir, --step, --visits, --pack, --mesh, and how many processes find together."""
    define_workdir('The run directory of a trunk or a branch.')
    flags.DEFINE_integer('step', None, 'The step of the checkpoint; the latest if not given.')
    flags.DEFINE_integer('visits', None, "Visits of the loop; the config's if not given.", lower_bound=1)
    flags.DEFINE_string('pack', '', "Another pack of the same tokenizer; the run's own if not given.")
    define_mesh()
    define_processes()


def run() -> None:
    """Evaluates, and prints the record as tables."""
    from rich.console import Console

    from smelt_jax import screen
    from smelt_jax.evaluate.heldout import evaluate
    from smelt_jax.evaluate.tables import record_tables
    from smelt_jax.parallel import processes

    join_processes()
    given = flags.FLAGS
    record = evaluate(given.workdir, given.step, given.visits, given.pack, given_mesh())
    if processes.first():
        screen.show(Console(markup=False), record_tables(record))
