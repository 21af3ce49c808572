"""The 32 pretraining runs of the compute-matched study: 4 scales × 4 sparsities × 2 arms.

    smelt budget --grid                                       what every cell costs, and how well it matches: docs/grid.md
    smelt sweep  --experiment=experiments/grid.py --workdir=DIR --lines --set=data.pack=PACK       one line of commands a run
    smelt train  --config=experiments/grid.py:100m-s85-smelt --config.data.pack=PACK --workdir=RUN

The argument is SCALE-SPARSITY-ARM: 100m 200m 600m 1.6b (parameters a token uses), s0 s85 s95 s97 (equivalent sparsity
in percent), baseline smelt. Four cells are those of smelt.py, where recipe, cost and what to expect stand. The study
published no geometry of the other twelve. They have the published widths and heads of their scale, and experts in the
published proportion; where that misses a budget, the nearest expert width that meets it (OTHER_WIDTHS). All ours.

Cost: that of smelt.py's runs of the same scale; sparsity hardly changes FLOPs. Expect the looped arm ahead in all 16 cells
at the last annealed endpoint, by more at the larger scales.
"""

from ml_collections import ConfigDict

from experiments import smelt

# sparsity: experts of the baseline, of smelt. 13 at s0: 12 would miss the parameters by 4 to 8%.
EXPERTS = {'s0': (8, 13), 's85': (64, 96), **smelt.EXPERTS}

# smelt's expert width where the published one would miss FLOPs or parameters.
OTHER_WIDTHS = {'100m-s0': 408, '1.6b-s0': 648, '600m-s85': 480}

PUBLISHED = smelt.CELLS
CELLS = tuple(f'{scale}-{sparsity}' for scale in smelt.DEPTH for sparsity in EXPERTS)
ARGS = tuple(f'{cell}-{arm}' for cell in CELLS for arm in smelt.ARMS)


def get_config(arg: str) -> ConfigDict:
    """The run `arg`, one of ARGS."""
    scale, sparsity, arm = arg.split('-')
    config = smelt.run_of(scale, arm, EXPERTS[sparsity][smelt.ARMS.index(arm)])
    config.name = arg
    if arm == 'smelt':
        config.model.experts.width = OTHER_WIDTHS.get(f'{scale}-{sparsity}', config.model.experts.width)
    return config
