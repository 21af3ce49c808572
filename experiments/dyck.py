"""Made-up text: brackets to close, and letters to look up in the line that they are in.

    smelt sweep --experiment=experiments/dyck.py --workdir=runs/dyck
    smelt evaluate --checkpoint=runs/dyck/smelt/branch-2200 --against=runs/dyck/baseline/branch-2200 \\
        --tasks=dyck,induction --shots=0,1,2,4,8,16 --seeds=3

The argument is the arm, baseline or smelt, a pair of one budget (as in quickstart.py). A trunk of 2,200 updates of 1,024
tokens, and a branch of 240 more.

Cost: the looped arm takes 7 minutes on two cores, 10 of processor time. Expect that it closes every line of brackets
(guessing: 7%) and finds 99 letters of 100 (20%), with up to eight examples and without; Baseline too. That looking up is
learned late and at once, and what it takes: docs/evaluation.md.
"""

from ml_collections import ConfigDict

from smelt_jax.config import default_config

ARGS = ('baseline', 'smelt')
# arm: width D, heads N, head dimension H, experts E, expert width F
SHAPES = {'baseline': (128, 4, 48, 8, 96), 'smelt': (108, 4, 32, 12, 84)}


def get_config(arg: str) -> ConfigDict:
    """The run of one arm."""
    config = default_config()
    config.name = arg

    config.pack.corpora = ('made:dyck:38000', 'made:induction:88000')
    config.pack.tokenizer = 'bpe:299'  # a token for each bracket, letter and word
    config.pack.row_tokens = 256
    config.data.batch_rows = 4

    width, heads, head_dim, experts, expert_width = SHAPES[arg]
    config.model.vocab = 299
    config.model.width = width
    config.model.layers = 4
    config.model.init_std = 0.08  # four times the default
    if arg == 'smelt':
        config.model.loop.update({'start': 1, 'length': 2, 'visits': 2})
    config.model.attention.update({'heads': heads, 'kv_heads': 2, 'head_dim': head_dim, 'rope_theta': 500.0})
    config.model.experts.update({'count': experts, 'per_token': 2, 'width': expert_width})

    config.optim.peak_lr = 1.5e-3
    config.optim.warmup_steps = 40
    config.train.steps = 2200
    config.train.branch_steps = (2200,)
    config.train.branch_tokens = 240 * 1024
    config.train.save_every = 100
    config.train.log_every = 10
    config.heldout.batch_rows = 16
    config.heldout.max_rows = 96
    return config
