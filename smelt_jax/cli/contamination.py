"""How much of tasks' examples stands in packed text: runs of words in both.

    smelt contamination --pack=data/pack --tasks=core --task_dir=DIR
    smelt contamination --pack=data/pack --tasks=core,gsm8k --task_dir=DIR --show=3 --json=contamination.json

An example overlaps if 13 words in a row (--words) of its question and right answer, in lower case, stand in a document of
the rows. Documents are read whole: what rows had cut is joined. Memory is that of the tasks' n-grams, whatever the size of the
pack. A run that stopped early has read a part of the train split only, and what is found may lie in the rest.

--json has every example that was found, with its first n-gram. Tasks are rows of the tables (CSV) in --task_dir;
docs/evaluation.md says what is in them.
"""

import sys

from absl import flags

from smelt_jax.cli.flags import FLAGS, define_texts_and_lists

TEXTS = {
    'task_dir': ('', 'The folder of task tables and files.'),
    'json': ('', 'A file for the result, as data.'),
    'markdown': ('', 'A file for the table, or FILE.md#NAME.'),
}
LISTS = {
    'tasks': ('', 'Tasks or groups of --task_dir, as core; made-up ones: dyck, copy, arithmetic, induction. Required.')
}


def define_flags() -> None:
    """What is compared with what, and where it goes."""
    flags.DEFINE_string('pack', None, 'The folder that smelt pack wrote. Required.')
    flags.mark_flag_as_required('pack')
    define_texts_and_lists(TEXTS, LISTS)
    flags.DEFINE_enum('split', 'train', ('train', 'heldout'), 'Whose rows are read.')
    flags.DEFINE_integer('words', 13, 'Of an n-gram.', lower_bound=1)
    flags.DEFINE_integer('show', 0, 'Examples of each task that are shown, of those with an overlap.', lower_bound=0)


def run() -> None:
    """Reads, and prints the table."""
    from smelt_jax import screen
    from smelt_jax.evaluate.bar import Bar
    from smelt_jax.tasks.contamination_report import answer
    from smelt_jax.tasks.tables import task_folder, tasks_of

    if not FLAGS.tasks:
        raise ValueError('--tasks is required: tasks, or a group of them as core')
    folder = task_folder(FLAGS.task_dir)
    tasks = tasks_of(FLAGS.tasks, folder)

    def asked() -> screen.Answer:
        with Bar('read') as bar:
            return answer(FLAGS.pack, FLAGS.split, tasks, folder, FLAGS.words, FLAGS.show, bar.say)

    screen.give(asked, ' '.join(sys.argv), FLAGS.json, FLAGS.markdown)
