"""Checkpoints on held-out text and on tasks, at any number of visits.

    smelt evaluate --checkpoint=runs/smelt
    smelt evaluate --checkpoint=runs/smelt@1000 --tasks=heldout,core,dyck --task_dir=DIR --visits=1,2,3 --seeds=10
    smelt evaluate --checkpoint=runs/smelt --against=runs/baseline --tasks=core --task_dir=DIR

Prints tables and adds records to records.jsonl of the run directory, with the budget of the model beside each score. A task
that has a record is not done again, so that an evaluation that was stopped goes on. Any number of visits can be asked for,
whatever was trained with. Tasks are rows of the tables (CSV) in --task_dir (docs/evaluation.md). Of several checkpoints each is
compared with the first one, or with its partner of --against.
"""

import sys

from absl import flags

from smelt_jax.cli.flags import (
    define_checkpoints,
    define_mesh,
    define_processes,
    define_texts_and_lists,
    given_checkpoints,
    given_mesh,
    join_processes,
)

TEXTS = {
    'task_dir': ('', 'The folder of task tables and files.'),
    'pack': ('', "Another pack of the same tokenizer; the run's own if not given."),
    'json': ('', 'A file for records and comparisons.'),
    'markdown': ('', 'A file for the tables; FILE.md#NAME for a marked place in one.'),
}
LISTS = {
    'against': ('', 'The partner of each checkpoint, which it is compared with.'),
    'tasks': (
        'heldout',
        'heldout, and tasks or groups of --task_dir, as core; made-up: dyck, copy, arithmetic, induction.',
    ),
    'visits': ('', 'Visits of the loop, one after the other; those of training if not given.'),
    'shots': ('', "Numbers of examples shown first; each task's own if not given."),
    'length_bins': ('', "Edges in tokens of the bins of document length of held-out loss; the config's if not given."),
}
INTEGERS = {
    'seeds': (1, 1, 'Draws of the examples shown.'),
    'limit': (0, 0, 'Examples of each task, evenly over its file; 0 for all.'),
    'room': (0, 0, 'Tokens of the longest prompt; 0 for those of a row in training.'),
    'new_tokens': (128, 1, 'Tokens that are generated at most for an answer.'),
}


def define_flags() -> None:
    """--checkpoint, --against, --tasks and how they are put, --visits, --pack, --mesh, and how many processes find together."""
    define_checkpoints('What is evaluated.', several=True)
    define_texts_and_lists(TEXTS, LISTS)
    for name, (default, least, text) in INTEGERS.items():
        flags.DEFINE_integer(name, default, text, lower_bound=least)
    flags.DEFINE_bool('again', False, 'Evaluate what has a record, too.')
    define_mesh()
    define_processes()


def run() -> None:
    """Evaluates, and prints what came out as tables."""
    from smelt_jax import screen
    from smelt_jax.evaluate.answer import evaluated
    from smelt_jax.evaluate.bar import Bar
    from smelt_jax.evaluate.wanted import wanted
    from smelt_jax.parallel import processes

    join_processes()
    asked = wanted(flags.FLAGS, given_checkpoints(), given_checkpoints('against'), given_mesh())

    def answer() -> screen.Answer:
        with Bar() as bar:
            return evaluated(asked, bar.say)

    if processes.first():
        screen.give(answer, ' '.join(['smelt evaluate', *sys.argv[1:]]), flags.FLAGS.json, flags.FLAGS.markdown)
    else:
        answer()
