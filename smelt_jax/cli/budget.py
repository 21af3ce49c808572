"""Counts a config's budgets, compares them with another config's, or finds a Baseline's looped partner.

    smelt budget --config=experiments/smelt.py:200m-s95-smelt --against=experiments/smelt.py:200m-s95-baseline
    smelt budget --config=experiments/smelt.py:200m-s95-baseline --match --visits=2 --span=0.5 --multiple_of=128
    smelt budget --grid

The budgets are training FLOPs per token (F), stored parameters without embeddings and norms (N), KV values per token. The
last line says T̄, the mean number of keys a query attends to: --mean_attended_keys, or config.data.pack's, or the study's.
--match lists partners, best first; one in brackets is outside the tolerance, and if all are, the exit code is 1.
--protocol=budgets fixes all three budgets at the same physical depth (SMELT); parameters only the stored ones (Huginn,
Ouro, Parcae); flops only FLOPs per token; depth the executed layers at the same width (Iso-Depth). --grid shows the
study's 32 runs, or those of another --experiment. --json writes what is shown, and more, for programs.
"""

import dataclasses
import sys

from absl import flags

from smelt_jax import screen
from smelt_jax.budget import answers
from smelt_jax.budget.attended import STUDY_KEYS, chosen
from smelt_jax.budget.matching import Rules
from smelt_jax.budget.protocols import PROTOCOLS
from smelt_jax.cli.flags import FLAGS, define_config, find_experiment, load_experiment, load_module, run_config
from smelt_jax.config import resolve
from smelt_jax.data.manifest import open_pack

SIZES = ('multiple_of', 'head_dim_multiple', 'experts_multiple', 'per_token', 'layers')  # of `Rules`


def define_flags() -> None:
    """--config, what to do with it, and the rules of matching."""
    define_config(required=False)
    flags.DEFINE_string('against', None, 'A second experiment, FILE.py or FILE.py:ARG, that --config is compared with.')
    flags.DEFINE_bool('match', False, 'Finds looped partners of --config.')
    flags.DEFINE_bool('grid', False, 'Shows every NAME-ARM of --experiment beside its NAME-baseline.')
    flags.DEFINE_string('experiment', 'experiments/grid.py', 'With --grid: whose ARGS are shown.')
    flags.DEFINE_float('mean_attended_keys', None, 'T̄. See above for what it is if not given.', 1, 1e7)
    flags.DEFINE_enum('protocol', 'budgets', PROTOCOLS, 'What the partner has in common with the Baseline.')
    flags.DEFINE_integer('visits', 2, 'How often the partner executes its loop.')
    flags.DEFINE_float('span', 0.5, 'Share of the layers that the loop takes, in the middle.')
    flags.DEFINE_list('tolerance', '0.04,0.01,0.04', 'Of FLOPs, parameters and KV, as fractions; or one for all three.')
    flags.DEFINE_integer('multiple_of', 8, 'Divides width and expert width; 128 fills the lanes of a TPU.')
    flags.DEFINE_integer('head_dim_multiple', 2, 'Divides the head dimension.')
    flags.DEFINE_integer('experts_multiple', 8, 'Divides the number of experts: the mesh axis they are spread over.')
    flags.DEFINE_integer('per_token', 0, "The partner's experts per token; 0 takes the Baseline's.", 0)
    flags.DEFINE_integer('count', 5, 'Partners listed.', lower_bound=1)
    flags.DEFINE_integer('layers', 0, "The partner's physical layers; 0 takes the Baseline's.", 0)
    flags.DEFINE_string('json', None, 'A file for the result, as data.')
    flags.DEFINE_string('markdown', None, 'A file for the tables.')


def run() -> None:
    """Answers."""
    screen.give(_answer, ' '.join(sys.argv), FLAGS.json, FLAGS.markdown)


def _answer() -> screen.Answer:
    answers.one_question(grid=FLAGS.grid, match=FLAGS.match, against=FLAGS.against)
    if FLAGS.grid:
        module = load_module(find_experiment(FLAGS.experiment))
        models = {arg: resolve(module.get_config(arg)).model for arg in getattr(module, 'ARGS', ())}
        return answers.grid(models, getattr(module, 'PUBLISHED', ()), FLAGS.mean_attended_keys or STUDY_KEYS)
    if FLAGS.config is None:
        raise ValueError('--config=FILE.py:ARG is required, or --grid')
    mine = (run := run_config()).name, run.model
    packed = open_pack(run.data.pack).train.mean_attended_keys if run.data.pack else None
    keys, origin = chosen(FLAGS.mean_attended_keys, packed, run.pack.row_tokens)
    if FLAGS.match:
        sizes = (getattr(FLAGS, name) for name in SIZES)
        rules = Rules(answers.tolerance(FLAGS.tolerance), *sizes)
        answer = answers.partners(*mine, FLAGS.protocol, FLAGS.visits, FLAGS.span, keys, rules, FLAGS.count)
    elif FLAGS.against:
        other = resolve(load_experiment(FLAGS.against))
        answer = answers.against(*mine, other.name, other.model, keys, answers.tolerance(FLAGS.tolerance))
    else:
        answer = answers.count(*mine, keys, run.train.steps * run.data.batch_rows * run.pack.row_tokens)
    return dataclasses.replace(answer, lines=[*answer.lines, origin])
