"""The study's three ablations at 200M active parameters: which layers, how deep, how often.

    smelt budget --grid --experiment=experiments/ablations.py          what every arm costs, and how well it matches
    smelt sweep  --experiment=experiments/ablations.py --arms=s85-baseline,s85-span2,s85-smelt --workdir=DIR
    smelt train  --config=experiments/ablations.py:s85-visits3 --config.data.pack=PACK --workdir=RUN

The argument is SPARSITY-ARM. s85 and s95 are 64 and 192 experts in the Baseline. Arms:

    baseline             12 layers, no loop
    smelt                the middle 6 twice: grid.py's arm, which belongs to all three ablations
    span2 … span12       the middle 2, 4, 8, 10 or all 12 layers twice
    visits3, visits4     s85: the middle 6 three and four times
    depth6 … depth18     s85: half of 6, 8, 10, 14, 16 or 18 physical layers twice

Each arm has the Baseline's FLOPs per token, stored parameters and KV cache, within 1.2, 0.3 and 2.6% (`smelt` within 2.9,
0.5 and 3.1%). The study published the losses of its arms but not their geometry: GEOMETRY is what `smelt budget --match`
finds first for each, at T̄ = 401. Ours.

Cost: 4.9e20 FLOPs an arm, 740 hours of a TPU v5p chip at 40% of its peak. Expect (study, validation loss in nats):

    looped of 12    0       2       4       6       8       10      12
    s85             1.9445  1.9384  1.9275  1.9257  1.9374  1.9413  1.9322
    s95             1.8735  1.8562  1.8524  1.8517  1.8544  1.8572  1.8601

    visits, s85     1       2       3       4
                    1.9445  1.9257  1.9385  1.9360

and of the depths the Baseline's 12 as the best.
"""

from ml_collections import ConfigDict

from experiments import grid

# sparsity, arm: layers; first and number of looped layers, visits; width D; heads N of dimension H; experts E of width F.
GEOMETRY = {
    ('s85', 'span2'): (12, (5, 2, 2), 1128, (20, 54), (72, 440)),
    ('s85', 'span4'): (12, (4, 4, 2), 1104, (24, 48), (88, 368)),
    ('s85', 'span8'): (12, (2, 8, 2), 976, (28, 38), (112, 328)),
    ('s85', 'span10'): (12, (1, 10, 2), 936, (28, 34), (120, 320)),
    ('s85', 'span12'): (12, (0, 12, 2), 920, (28, 32), (136, 288)),
    ('s95', 'span2'): (12, (5, 2, 2), 1168, (24, 54), (232, 392)),
    ('s95', 'span4'): (12, (4, 4, 2), 1096, (24, 48), (264, 368)),
    ('s95', 'span8'): (12, (2, 8, 2), 968, (28, 38), (336, 328)),
    ('s95', 'span10'): (12, (1, 10, 2), 928, (28, 34), (368, 312)),
    ('s95', 'span12'): (12, (0, 12, 2), 856, (28, 32), (400, 312)),
    ('s85', 'visits3'): (12, (3, 6, 3), 920, (28, 32), (136, 288)),
    ('s85', 'visits4'): (12, (3, 6, 4), 856, (32, 26), (176, 240)),
    ('s85', 'depth6'): (6, (1, 3, 2), 1504, (16, 86), (96, 496)),
    ('s85', 'depth8'): (8, (2, 4, 2), 1208, (20, 64), (96, 464)),
    ('s85', 'depth10'): (10, (2, 5, 2), 1168, (20, 52), (96, 384)),
    ('s85', 'depth14'): (14, (3, 7, 2), 976, (24, 36), (96, 328)),
    ('s85', 'depth16'): (16, (4, 8, 2), 920, (32, 32), (104, 280)),
    ('s85', 'depth18'): (18, (4, 9, 2), 896, (32, 28), (104, 256)),
}

ARGS = tuple(
    f'{sparsity}-{arm}'
    for sparsity in ('s85', 's95')
    for arm in ('baseline', 'smelt', *(name for of, name in GEOMETRY if of == sparsity))
)


def get_config(arg: str) -> ConfigDict:
    """The run `arg`, one of ARGS."""
    sparsity, arm = arg.split('-')
    config = grid.get_config(f'200m-{sparsity}-{"smelt" if arm == "smelt" else "baseline"}')
    config.name = arg
    if (sparsity, arm) in GEOMETRY:
        layers, (start, length, visits), width, (heads, head_dim), (experts, expert_width) = GEOMETRY[sparsity, arm]
        config.model.update({'layers': layers, 'width': width})
        config.model.loop.update({'start': start, 'length': length, 'visits': visits})
        config.model.attention.update({'heads': heads, 'head_dim': head_dim})
        config.model.experts.update({'count': experts, 'width': expert_width})
    return config
