"""x"""

from ml_collections import ConfigDict

from smelt_jax.config import default_config

ARGS = ('baseline', 'smelt')
SHAPES = {'baseline': (128, 4, 48, 8, 96), 'smelt': (108, 4, 32, 12, 84)}


def get_config(arg: str) -> ConfigDict:
    """The run of one arm."""
    config = default_config()
    config.name = arg

    config.pack.corpora = ('made:dyck+induction+copy:6144', 'made:arithmetic:1024')
    config.pack.row_tokens = 512
    config.data.batch_rows = 4

    width, heads, head_dim, experts, expert_width = SHAPES[arg]
    config.model.vocab = 257
    config.model.width = width
    config.model.layers = 4
    config.model.init_std = 0.08
    if arg == 'smelt':
        config.model.loop.update({'start': 1, 'length': 2, 'visits': 2})
    config.model.attention.update({'heads': heads, 'kv_heads': 2, 'head_dim': head_dim, 'rope_theta': 500.0})
    config.model.experts.update({'count': experts, 'per_token': 2, 'width': expert_width})

    config.optim.peak_lr = 3e-3
    config.optim.warmup_steps = 40
    config.train.steps = 800
    config.train.save_every = 100
    config.train.log_every = 10
    config.heldout.batch_rows = 16
    config.heldout.max_rows = 96
    return config
