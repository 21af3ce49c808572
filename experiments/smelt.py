"""The 32 pretraining runs of the compute-matched study: 4 scales × 4 sparsities × 2 arms.

    smelt budget --grid                                                    what every cell costs, and how well it matches
    smelt pack   --config=experiments/smelt.py:200m-s95-smelt --out=PACK '--config.pack.corpora=("jsonl:TEXTS/*.gz",)'
    smelt train  --config=experiments/smelt.py:200m-s95-smelt --config.data.pack=PACK --workdir=RUN
    smelt branch --trunk=RUN --step=10000 --workdir=RUN-10000              and from each of the five later steps

The argument is SCALE-SPARSITY-ARM: 100m 200m 600m 1.6b (parameters a token uses), s0 s85 s95 s97 (equivalent sparsity
in percent), baseline smelt. Both arms of a cell have the same training FLOPs per token (within 4%), the same stored
parameters (1%) and the same KV cache (4%), and read the same tokens in the same order.

Cost of one run with its six branches (206B tokens and 6 × 10B), the head's product with our vocabulary included, and
that in hours of a TPU v5p chip at 40% of its peak:

    100m  2.4e20 FLOPs    370 h      600m  1.3e21 FLOPs   2 000 h
    200m  4.9e20 FLOPs    740 h      1.6b  3.0e21 FLOPs   4 500 h

Parameters and AdamW's moments take 12 bytes a stored parameter: 44 GB for 100m-s97, 650 GB for 1.6b-s97.

Expect the looped arm ahead of its Baseline in held-out loss at equal compute, and more so with more compute: the study
has 1.8517 against 1.8735 nats at 200m-s95 on its own, unpublished data, and a compute gain of 8, 16 and 21% at 1e20,
1e21 and 1e22 FLOPs at s95 (7 and 15% at s97, 10 and 18% at s85, at the first two). Other text gives other losses; the
sign and the trend are what should come again.

Widths, heads and expert widths of four cells follow from the study's published sizes and budgets (PUBLISHED). The other
cells are derived: the scale's published widths and heads, experts as in EXPERTS, and where that misses a budget the
nearest expert width that meets it (OTHER_WIDTHS). Everything that `ours` marks below is not published.
"""

from ml_collections import ConfigDict

from smelt_jax.config import default_config

ARMS = ('baseline', 'smelt')

# scale: physical layers, and start and length of the loop: the middle half, an odd rest going behind it.
DEPTH = {'100m': (10, 2, 5), '200m': (12, 3, 6), '600m': (20, 5, 10), '1.6b': (30, 7, 15)}

# (scale, arm): width D, query heads N, head dimension H, expert width F. Everywhere 4 KV heads.
SHAPES = {
    ('100m', 'baseline'): (672, 12, 56, 544),
    ('100m', 'smelt'): (576, 16, 36, 424),
    ('200m', 'baseline'): (1280, 20, 64, 432),
    ('200m', 'smelt'): (1056, 24, 44, 352),
    ('600m', 'baseline'): (1792, 28, 64, 600),
    ('600m', 'smelt'): (1512, 36, 42, 472),
    ('1.6b', 'baseline'): (2304, 36, 64, 768),
    ('1.6b', 'smelt'): (1848, 44, 42, 640),
}

# sparsity: experts of the baseline, of smelt. A token uses 8. 13 at s0: 12 would miss the parameters by 4 to 8%.
EXPERTS = {'s0': (8, 13), 's85': (64, 96), 's95': (192, 288), 's97': (336, 504)}

# Cells whose geometry the study published: up to heads and expert widths, which its figures determine.
PUBLISHED = ('100m-s97', '200m-s95', '600m-s97', '1.6b-s97')

# smelt's expert width where the published one would miss FLOPs or parameters. Ours.
OTHER_WIDTHS = {'100m-s0': 408, '1.6b-s0': 648, '600m-s85': 480}

# Peak learning rate by scale, for both arms. Ours.
PEAK_LR = {'100m': 1e-3, '200m': 8e-4, '600m': 5e-4, '1.6b': 3.5e-4}

CELLS = tuple(f'{scale}-{sparsity}' for scale in DEPTH for sparsity in EXPERTS)
ARGS = tuple(f'{cell}-{arm}' for cell in CELLS for arm in ARMS)


def get_config(arg: str) -> ConfigDict:
    """The run `arg`, one of ARGS."""
    scale, sparsity, arm = arg.split('-')
    config = default_config()
    config.name = arg

    config.pack.tokenizer = 'bpe:65536'  # ours
    config.pack.row_tokens = 4096
    config.data.batch_rows = 256

    _set_model(config.model, scale, sparsity, arm)
    config.model.vocab = 65536  # ours
    config.model.dtype = 'bfloat16'
    config.model.remat = 'layer'

    config.optim.peak_lr = PEAK_LR[scale]
    config.optim.warmup_steps = 2000  # ours

    config.train.steps = 196_075
    config.train.branch_steps = (10_000, 20_000, 50_000, 100_000, 150_000, 196_075)
    config.train.branch_tokens = 10_000_000_000
    config.train.save_every = 1000
    config.heldout.batch_rows = 64
    return config


def _set_model(model: ConfigDict, scale: str, sparsity: str, arm: str) -> None:
    width, heads, head_dim, expert_width = SHAPES[scale, arm]
    model.width = width
    model.layers, model.loop.start, model.loop.length = DEPTH[scale]
    model.loop.visits = 2 if arm == 'smelt' else 1
    model.attention.update({'heads': heads, 'kv_heads': 4, 'head_dim': head_dim})
    model.experts.count = EXPERTS[sparsity][ARMS.index(arm)]
    model.experts.per_token = 8
    model.experts.width = expert_width
    if arm == 'smelt':
        model.experts.width = OTHER_WIDTHS.get(f'{scale}-{sparsity}', expert_width)
