"""Draws a figure from the records of runs.

    smelt figure --kind=loss_flops --runs=runs/a,runs/a-100,runs/b,runs/b-100 --out=figures/loss_flops.png

Run directories with the same `name` in their config are one arm: a trunk and the branches annealed from it.

loss_flops: held-out loss against training FLOPs; the trunks' checkpoints and the endpoints annealed from them.
"""

import importlib

from absl import flags

from smelt_jax.figures import KINDS


def define_flags() -> None:
    """--kind, --runs and --out."""
    flags.DEFINE_enum('kind', None, KINDS, 'What is drawn. Required.')
    flags.DEFINE_list('runs', None, 'Run directories, evaluated: DIR,DIR,… Required.')
    flags.DEFINE_string('out', None, 'The picture: a .png, .pdf or .svg file. Required.')
    flags.mark_flags_as_required(['kind', 'runs', 'out'])


def run() -> None:
    """Draws."""
    from smelt_jax.figures.arms import by_name

    given = flags.FLAGS
    arms = by_name(given.runs)
    draw = getattr(importlib.import_module(f'smelt_jax.figures.{given.kind}'), given.kind)
    draw(arms, given.out)
    print(f'{given.out}: {given.kind} of {", ".join(arms)}')
