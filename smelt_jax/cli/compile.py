"""Compiles a training step for hardware that is not there: bytes, FLOPs, collectives, and whether it fits.

    smelt compile --config=experiments/smelt.py:200m-s95-smelt --topology=v5p:4x4x4 --config.mesh.expert=8
    smelt compile --config=FILE:ARG --topology=v6e:8x8 --remat=auto --json=FILE

--topology is v4:AxBxC, v5e:AxB, v5p:AxBxC, v6e:AxB, tpu7x:AxBxC, h100:N or cpu:N; config.mesh says how its devices share the
work, config.mesh.slices how many of it there are. TPUs need libtpu (pip install -e .[tpu]), GPUs jax's CUDA plugin
(.[cuda]); neither needs the hardware, and no array is made. Rows are as long as those of config.data.pack, or as
config.pack.row_tokens says.

What does not fit ends with exit code 1 and the remedy to try first. --remat=auto compiles with the policy that computes
least again first, and takes the first one that fits.
"""

import sys

from absl import flags

from smelt_jax.cli.flags import FLAGS, define_config, run_config


def define_flags() -> None:
    """--config, --topology, --remat, --memory and where the answer goes."""
    define_config()
    flags.DEFINE_string('topology', None, 'The hardware, as v5e:16x16. Required.')
    flags.mark_flag_as_required('topology')
    flags.DEFINE_enum(
        'remat', '', ('', 'none', 'dots', 'layer', 'auto'), 'Instead of config.model.remat; auto tries them.'
    )
    flags.DEFINE_float('memory', 0.0, "GiB that a program has on a device; the chip's own if not given.", lower_bound=0)
    flags.DEFINE_string('json', None, 'A file for the result, as data.')
    flags.DEFINE_string('markdown', None, 'A file for the tables.')


def run() -> None:
    """Compiles, and answers."""
    from smelt_jax.aot.topology import Topology
    from smelt_jax.aot.units import GIB

    config = run_config()
    topology = Topology.of(FLAGS.topology, config.mesh.slices, FLAGS.memory * GIB)
    topology.prepare()  # before jax looks for devices

    from smelt_jax.aot.answers import answer
    from smelt_jax.screen import give

    give(lambda: answer(config, topology, FLAGS.remat), ' '.join(sys.argv), FLAGS.json, FLAGS.markdown)
