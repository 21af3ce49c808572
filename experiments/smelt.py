"""The published pairs of the compute-matched study, up to what it left unsaid: four cells, two arms each.

    smelt pack   --config=experiments/smelt.py:200m-s95-smelt --out=PACK '--config.pack.corpora=("jsonl:TEXTS/*.gz",)'
    smelt train  --config=experiments/smelt.py:200m-s95-smelt --config.data.pack=PACK --workdir=RUN
    smelt branch --trunk=RUN --step=10000 --workdir=RUN-10000              and from each of the five later steps
    smelt budget --config=experiments/smelt.py:200m-s95-smelt --against=experiments/smelt.py:200m-s95-baseline

The argument is SCALE-SPARSITY-ARM: 100m-s97, 200m-s95, 600m-s97 or 1.6b-s97 (parameters a token uses, equivalent sparsity in
percent), baseline or smelt. Both arms of a cell have the same training FLOPs per token (within 4%), the same stored
parameters (1%) and the same KV cache (4%), and read the same tokens in the same order. The other twelve cells of the
study are in grid.py, its ablations in ablations.py.

Cost of one run with its six branches (206B tokens and 6 × 10B), the head's product with our vocabulary included, and
that in hours of a TPU v5p chip at 40% of its peak:

    100m  2.4e20 FLOPs    370 h      600m  1.3e21 FLOPs   2 000 h
    200m  4.9e20 FLOPs    740 h      1.6b  3.0e21 FLOPs   4 500 h

Parameters and AdamW's moments take 12 bytes a stored parameter: 44 GB for 100m-s97, 650 GB for 1.6b-s97. docs/scale.md has
meshes that fit, compiled: 200m-s95 on v5p:4x4x4 with --config.mesh.fsdp=4 --config.mesh.expert=16
--config.mesh.chunk_tokens=1024 takes 5 GiB a chip, 1.6b-s97 on v5p:2x2x4 84 GiB.

Expect the looped arm ahead of its Baseline in held-out loss at equal compute, and more so with more compute: the study
has 1.8517 against 1.8735 nats at 200m-s95 on its own, unpublished data, and a compute gain of 8, 16 and 21% at 1e20,
1e21 and 1e22 FLOPs at s95 (7 and 15% at s97, 10 and 18% at s85, at the first two). Other text gives other losses; the
sign and the trend are what should come again.

Widths, experts, FLOPs and KV are published; heads and expert widths follow from them. Everything that `ours` marks below is
not published.
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

# sparsity: experts of the baseline, of smelt. A token uses 8.
EXPERTS = {'s95': (192, 288), 's97': (336, 504)}

# Peak learning rate by scale, for both arms. Ours.
PEAK_LR = {'100m': 1e-3, '200m': 8e-4, '600m': 5e-4, '1.6b': 3.5e-4}

CELLS = ('100m-s97', '200m-s95', '600m-s97', '1.6b-s97')
ARGS = tuple(f'{cell}-{arm}' for cell in CELLS for arm in ARMS)


def get_config(arg: str) -> ConfigDict:
    """The run `arg`, one of ARGS."""
    scale, sparsity, arm = arg.split('-')
    config = run_of(scale, arm, EXPERTS[sparsity][ARMS.index(arm)])
    config.name = arg
    return config


def run_of(scale: str, arm: str, experts: int) -> ConfigDict:
    """The study's recipe at a scale, with the published shape of an arm and any number of experts."""
    config = default_config()

    config.pack.tokenizer = 'bpe:65536'  # ours
    config.pack.row_tokens = 4096
    config.data.batch_rows = 256

    width, heads, head_dim, expert_width = SHAPES[scale, arm]
    config.model.width = width
    config.model.layers, config.model.loop.start, config.model.loop.length = DEPTH[scale]
    config.model.loop.visits = 2 if arm == 'smelt' else 1
    config.model.attention.update({'heads': heads, 'kv_heads': 4, 'head_dim': head_dim})
    config.model.experts.update({'count': experts, 'per_token': 8, 'width': expert_width})
    config.model.vocab = 65536  # ours
    config.model.dtype = 'bfloat16'
    config.model.remat = 'layer'

    config.optim.peak_lr = PEAK_LR[scale]
    config.optim.warmup_steps = 2000  # ours

    config.train.steps = 196_075
    config.train.branch_steps = (10_000, 20_000, 50_000, 100_000, 150_000, 196_075)
    config.train.branch_tokens = 10_000_000_000
    config.train.save_every = 1000
    config.heldout.batch_rows = 256
    return config
