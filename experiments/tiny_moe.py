"""A small sparse model for measuring speed on a CPU, of a shape for which figures of another codebase are known.

    smelt bench step --config=experiments/tiny_moe.py
    smelt bench step --config=experiments/tiny_moe.py:smelt

Cost: a minute. Nothing is learned: tokens are random. The argument is baseline (4 layers) or smelt (the middle two run twice,
widths as in the Baseline: 6 executed layers). What to expect is in docs/performance.md.
"""

from ml_collections import ConfigDict

from smelt_jax.config import default_config

ARGS = ('baseline', 'smelt')


def get_config(arg: str = 'baseline') -> ConfigDict:
    """The run of one arm."""
    config = default_config()
    config.name = f'tiny_moe-{arg}'
    config.pack.row_tokens = 512
    config.data.batch_rows = 8
    config.model.vocab = 512
    config.model.width = 256
    config.model.layers = 4
    config.model.attention.update({'heads': 4, 'kv_heads': 2, 'head_dim': 64})
    config.model.experts.update({'count': 32, 'per_token': 8, 'width': 96})
    if arg == 'smelt':
        config.model.loop.update({'start': 1, 'length': 2, 'visits': 2})
    return config
