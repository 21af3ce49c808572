"""Puts fitted laws to use: frontiers, gains, designs, what scores make of losses.

    smelt law show --fit=published:smelt
    smelt law frontier --fit=fit.json --compute=1e20,1e21,1e22 --sparsity=0.85,0.95,0.97
    smelt law gain --fit=fit.json --reference=baseline --compute=1e20,1e21
    smelt law gain --fit=Code=code.json,Web=web.json --reference=baseline --compute=1e21
    smelt law design --fit=published:looped-moe --flops=5e21 --memory=3GB --bits=4 --context=32768 --batch=4 --served=1e12
    smelt law visits --fit=looped.json --flops=1e20,1e21,1e22 --experts=1,8
    smelt law effective --fit=looped.json
    smelt law transfer --records=scores.csv --score=core --arm=architecture --pair=cell,step --group=scale --cells=cell
    smelt law transfer --records='runs/*/*/records.jsonl' --where=task==core --score=centered
    smelt law published

--fit names files of smelt fit, or published:NAME; NAME=FILE gives a file a name in the tables, as of a domain. What lies
outside of what was fitted is marked in every table. published sets the two studies' printed numbers beside those of their
coefficients. --markdown=FILE.md#NAME writes between <!-- NAME --> and <!-- end of NAME --> of a file that is there.
"""

import sys

from absl import flags

from smelt_jax import screen
from smelt_jax.cli.flags import FLAGS, define_texts_and_lists

WORDS = ('show', 'frontier', 'gain', 'design', 'visits', 'effective', 'transfer', 'published')

TEXTS = {
    'reference': ('baseline', 'gain, transfer: the group that the others are compared with.'),
    'group': ('', 'design, visits, effective: which fit of a file with several; transfer: a column of groups.'),
    'memory': ('', 'design, visits: bytes of weights and cache, as 3GB; no limit if not given.'),
    'bits': ('4', 'Of a stored weight.'),
    'context': ('', 'design, visits: tokens of a sequence whose keys and values are in memory; leaves them out if not given.'),
    'batch': ('1', 'Sequences in memory at a time.'),
    'cache_bits': ('16', 'Of a key or a value.'),
    'served': ('', 'design, visits: tokens of inference that --flops pay for, too.'),
    'epsilon': ('', "Nats that a step to a larger E or R has to gain; the fit's RMSE if not given."),
    'sizes': ('', "A JSON file of models to choose among; the looped-MoE study's ladder if not given."),
    'loss': ('loss', 'transfer: column of the loss, nats per token.'),
    'score': ('', 'transfer: column of the score. Required there.'),
    'arm': ('architecture', 'transfer: column of the arms.'),
    'json': ('', 'A file for the result, as data.'),
    'markdown': ('', 'A file for the tables, or FILE.md#NAME.'),
}  # fmt: skip
LISTS = {
    'fit': ('', 'Fit files, published:NAME, or NAME=FILE.'),
    'compute': ('1e20,1e21,1e22', 'frontier, gain: training FLOPs.'),
    'sparsity': ('0.85,0.95,0.97', 'frontier, gain: S, for laws that have one.'),
    'flops': ('', 'design: FLOPs to spend; visits: several of them.'),
    'experts': ('', 'E to choose among; if not given 1,2,4,8,16, and 1 for a law without.'),
    'visits': ('', 'R to choose among; if not given 1 to 8, and 1 for a law without.'),
    'records': ('', 'transfer: tables or run directories.'),
    'pair': ('cell,step', 'transfer: columns that name a pair.'),
    'cells': ('cell', 'transfer: columns that name what is drawn together.'),
}  # fmt: skip


def define_flags() -> None:
    """Those of all words."""
    define_texts_and_lists(TEXTS, LISTS)
    flags.DEFINE_multi_string('where', [], 'transfer: COLUMN==VALUE and the like, rows to take. May be given often.')
    flags.DEFINE_multi_string('exclude', [], 'transfer: the same, rows to leave out.')
    flags.DEFINE_bool('lower_is_better', False, 'transfer: of the score.')
    flags.DEFINE_integer('replicates', 1000, 'transfer: of the bootstrap.', lower_bound=1)
    flags.DEFINE_integer('seed', 0, 'transfer: of the bootstrap.', lower_bound=0)


def run(word: str) -> None:
    """Answers."""
    from smelt_jax.law import asked

    question = ' '.join(['smelt law', word, *sys.argv[1:]])
    screen.give(lambda: asked.answer(word, FLAGS), question, FLAGS.json, FLAGS.markdown)
