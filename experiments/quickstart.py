"""The main job at toy size: a Baseline and a looped model of one budget, on the text that every Python machine has.

    launch/quickstart.sh                       sets up an environment, then runs the line below
    smelt sweep --experiment=experiments/quickstart.py --workdir=runs/quickstart

The argument is the arm, baseline or smelt. Both have 4 layers; smelt runs the middle two twice, and pays with a narrower
model with half as many experts again: of the partners that `smelt budget --match` finds, one shaped like the published pairs.

Cost: about seven minutes on two cores. Each arm trains a trunk of 96 updates of 4096 tokens, and three branches of 12
updates from steps 32, 64 and 96. Expect both arms below the byte trigram that is fitted on the same text.
"""

from ml_collections import ConfigDict

from smelt_jax.config import default_config

ARGS = ('baseline', 'smelt')

# arm: width D, heads N, head dimension H, experts E, expert width F. Ratios of the two: see the table that a run prints.
SHAPES = {'baseline': (256, 4, 48, 8, 256), 'smelt': (200, 5, 32, 12, 224)}

NOTE = """
What a run of this size can show: that both models learn, and that the three budgets match.
The byte trigram is fitted on the same training text; a model below it has learned more than letter statistics. xz has no
training text, but sees all held-out text at once and finds every repeated licence and signature in it.

What it cannot show: which architecture is better. It has one seed, under half a million tokens and a few million
parameters. The same pair with 8 rows a step instead of 16 ended 0.01 nats apart, the other way round; and a group of few
tokens is noisier still. The published gains, 7 to 10% of compute at 1e20 FLOPs and 15 to 18% at 1e21 (by sparsity), were
found at ten million times this budget and more. Nor does it show what annealing brings: a branch reads on while the rate
falls, so its end has more tokens than the step it grew from.
"""


def get_config(arg: str) -> ConfigDict:
    """The run of one arm."""
    config = default_config()
    config.name = arg

    config.pack.corpora = ('local',)
    config.pack.tokenizer = 'bpe:4096'
    config.pack.row_tokens = 256
    config.pack.max_bytes = 1_500_000
    config.data.batch_rows = 16

    width, heads, head_dim, experts, expert_width = SHAPES[arg]
    config.model.vocab = 4096
    config.model.width = width
    config.model.layers = 4
    if arg == 'smelt':
        config.model.loop.update({'start': 1, 'length': 2, 'visits': 2})
    config.model.attention.update({'heads': heads, 'kv_heads': 1, 'head_dim': head_dim})
    config.model.experts.update({'count': experts, 'per_token': 2, 'width': expert_width})

    config.optim.peak_lr = 3e-3
    config.optim.warmup_steps = 8
    config.train.steps = 96
    config.train.branch_steps = (32, 64, 96)
    config.train.branch_tokens = 12 * 4096
    config.train.save_every = 16
    config.train.log_every = 5
    config.heldout.batch_rows = 16
    config.heldout.max_rows = 96
    return config
