"""Anneals a branch from a trunk's checkpoint, by cosine, over tokens the trunk has not seen at that step.

    smelt branch --trunk=runs/smelt --step=1000 --workdir=runs/smelt-1000

The first update has the trunk's learning rate at that step and reads the trunk's next row; moments and counts go on. Run
again, it goes on from its own last checkpoint. lineage.json names trunk, step and fingerprints.
"""

from absl import flags

from smelt_jax.cli.flags import (
    define_mesh,
    define_processes,
    define_strict_restore,
    define_workdir,
    given_mesh,
    join_processes,
)


def define_flags() -> None:
    """--trunk, --step, --tokens, --workdir, --mesh, --strict_restore, and how many processes find together."""
    flags.DEFINE_string('trunk', None, 'The run directory of the trunk. Required.')
    flags.DEFINE_integer('step', None, 'The step of the checkpoint to start from. Required.')
    flags.DEFINE_integer('tokens', None, "Tokens of the branch; the trunk's train.branch_tokens if not given.")
    define_workdir('The run directory of the branch.')
    define_mesh()
    define_processes()
    define_strict_restore()
    flags.mark_flags_as_required(['trunk', 'step'])


def run() -> None:
    """Anneals."""
    from smelt_jax.parallel import processes
    from smelt_jax.runs import RunDir
    from smelt_jax.train.branch import branch

    join_processes()
    given = flags.FLAGS
    tokens = RunDir(given.trunk).config().train.branch_tokens if given.tokens is None else given.tokens
    leaf = branch(given.trunk, given.step, given.workdir, tokens, given_mesh(), given.strict_restore)
    if processes.first():
        updates = leaf.lineage().stop - given.step
        print(f'{given.workdir}: annealed over {updates} updates (whole ones, {tokens:,} tokens or more)')
