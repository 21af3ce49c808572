"""Draws a figure, from the records of runs or from fitted laws.

    smelt figure loss_flops --runs=runs/a,runs/a-100,runs/b,runs/b-100 --out=figures/loss_flops.png
    smelt figure frontier --fit=fit.json --sparsity=0.85,0.95,0.97 --out=figures/frontier.svg
    smelt figure surface --fit=fit.json --sparsity=0.95 --out=figures/surface.png
    smelt figure gain --fit=fit.json --reference=baseline --out=figures/gain.png
    smelt figure domains --fit=Code=code.json,Web=web.json --sparsity=0.95 --compute=1e21 --out=figures/domains.png
    smelt figure residuals --fit=fit.json --records='runs/*/*' --by=architecture --out=figures/residuals.png
    smelt figure heldout --fit=R=linear-r.json,R=bounded-r.json,D=linear-d.json,D=bounded-d.json --out=figures/heldout.png
    smelt figure effective --fit=looped.json --size=0.3B --visits=1,2,4,8,12 --out=figures/effective.png
    smelt figure transfer --records=scores.csv --score=core --out=figures/transfer.png
    smelt figure shots --records='runs/*' --task=core --out=figures/shots.png
    smelt figure depth --records=runs/smelt --task=hellaswag --out=figures/depth.png

loss_flops: held-out loss against training FLOPs; run directories with the same `name` in their config are one arm, a trunk
and the branches annealed from it. transfer: scores by loss, and the curve of one arm. shots, depth: scores of tasks by shots
and by visits. The others are of files of smelt fit, or of published:NAME: the least loss of a budget, the loss over size
and tokens, the compute saved at equal loss and the same by domain, what the law leaves unexplained, how it predicts what was
held out, what visits of a loop are worth. What lies outside of what was fitted is dashed, hollow or hatched.
"""

from absl import flags

from smelt_jax.cli.flags import FLAGS, define_texts_and_lists

WORDS = (
    'loss_flops', 'frontier', 'surface', 'gain', 'domains', 'residuals', 'heldout', 'effective', 'transfer', 'shots', 'depth',
)  # fmt: skip

TEXTS = {
    'reference': ('baseline', 'gain, domains, transfer: the group that the others are compared with.'),
    'by': ('', 'residuals: column whose values are the groups of the fits.'),
    'group': ('', 'effective: which fit of a file that holds several.'),
    'sizes': ('', "effective: a JSON file of models; the looped-MoE study's ladder if not given."),
    'loss': ('loss', 'transfer: column of the loss, nats per token.'),
    'score': (
        '',
        'transfer: column of the score, required. shots, depth: accuracy (of a task), centered (of a group).',
    ),
    'task': ('', 'shots, depth: a task, or a group as core. Required there.'),
    'arm': ('architecture', 'transfer: column of the arms.'),
    'size': ('', 'effective: the name of one of them; the first if not given.'),
}
CONDITIONS = {
    'where': 'residuals, transfer, shots, depth: COLUMN==VALUE and the like, rows to take. May be given often.',
    'exclude': 'residuals, transfer, shots, depth: the same, rows to leave out.',
    'holdout': 'residuals: the same, rows that were kept from the fit.',
}
LISTS = {
    'runs': ('', 'loss_flops: run directories, evaluated.'),
    'fit': ('', 'Fit files, published:NAME, or NAME=FILE.'),
    'sparsity': ('0.85,0.95,0.97', 'S, for laws that have one.'),
    'compute': ('', 'FLOPs: the least and the most of a line, or of the points of domains.'),
    'experts': ('', 'effective: E; if not given 1,2,4,8,16, and 1 for a law without.'),
    'visits': ('', 'effective: R, of which the least and the most are the ends; 1 to 8 if not given.'),
    'records': ('', 'residuals, transfer: tables or run directories; shots, depth: run directories.'),
    'pair': ('cell,step', 'transfer: columns that name a pair.'),
    'cells': ('cell', 'transfer: columns that name what is drawn together.'),
    'columns': ('', 'residuals: NAME=COLUMN, where they call a column of the law otherwise.'),
}


def define_flags() -> None:
    """Those of all words."""
    define_texts_and_lists(TEXTS, LISTS)
    for name, text in CONDITIONS.items():
        flags.DEFINE_multi_string(name, [], text)
    flags.DEFINE_bool('best', False, 'residuals: of rows with the same columns the one with the lowest loss.')
    flags.DEFINE_string('out', None, 'The picture: a .png, .pdf or .svg file. Required.')
    flags.mark_flag_as_required('out')


def run(word: str) -> None:
    """Draws."""
    from smelt_jax.figures import asked

    print(f'{FLAGS.out}: {word} of {asked.draw(word, FLAGS)}')
