"""What `smelt compile` answers: whether a run fits on hardware that is not there, and what it would do there."""

import dataclasses
import math
import sys

import jax

from smelt_jax.aot.facts import Facts, facts_of
from smelt_jax.aot.program import check_exchange, compile_step, first_line
from smelt_jax.aot.report import as_dict, tables, tried_table
from smelt_jax.aot.topology import Topology
from smelt_jax.aot.units import size
from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import open_pack
from smelt_jax.parallel.devices import Devices
from smelt_jax.parallel.mesh import mesh_sizes
from smelt_jax.screen import Answer
from smelt_jax.train.checks import check, require_microbatches

POLICIES = ('none', 'dots', 'layer')  # of model.remat: what is computed again, from nothing to a whole layer


def answer(run: RunConfig, topology: Topology, remat: str = '') -> Answer:
    """Compiles the step of `run` for `topology` and says what is known of it.

    Args:
      remat: a policy instead of the config's; `auto` tries POLICIES in their order, and takes the first that fits.

    Raises:
      ValueError: the run does not fit the mesh, or the mesh not the topology, and nothing was compiled; or the compiler failed
        for another reason than too little memory.
    """
    run = _with_rows_of_its_pack(run)
    used = math.prod(mesh_sizes(run.mesh, topology.count))
    if used != topology.count:
        raise ValueError(
            f'--topology={topology.name} has {topology.count} devices, and config.mesh takes {used}; '
            f'set one of its sizes to -1, or name a topology of {used}'
        )
    devices = Devices.of(run.mesh, topology.devices())
    devices.check(run.model, data__batch_rows=run.data.batch_rows, heldout__batch_rows=run.heldout.batch_rows)
    require_microbatches(run, devices.count)
    check_exchange(devices)
    policies = POLICIES if remat == 'auto' else (remat or run.model.remat,)
    tried: list[Facts] = []
    for policy in policies:
        print(f'compiling for {topology.title}, remat={policy} …', file=sys.stderr, flush=True)
        changed = dataclasses.replace(run, model=dataclasses.replace(run.model, remat=policy))
        try:
            program = compile_step(changed, devices)
        except jax.errors.JaxRuntimeError as error:
            raise ValueError(f'the compiler for {topology.chip.title} failed: {first_line(error)}') from error
        tried.append(facts_of(program, devices, topology))
        if tried[-1].fits:
            break
    return _answer(tried, devices)


def _with_rows_of_its_pack(run: RunConfig) -> RunConfig:
    """Rows are as long as those of `data.pack`, if there is one, else as `pack.row_tokens` would make them."""
    if not run.data.pack:
        return run
    manifest = open_pack(run.data.pack)
    check(run, manifest)
    return dataclasses.replace(run, pack=dataclasses.replace(run.pack, row_tokens=manifest.row_tokens))


def _answer(tried: list[Facts], devices: Devices) -> Answer:
    facts = tried[-1]
    mesh = ' × '.join(f'{axis}={count}' for axis, count in facts.mesh.items())
    lines = [
        f'{facts.name} on {facts.topology}: {mesh}, {facts.rows} rows a device and microbatch, remat={facts.remat}',
        *facts.notes,
    ]
    shown = tables(facts)
    if len(tried) > 1:
        shown.insert(0, tried_table(tried))
    trouble = ''
    if not facts.fits:
        what = f'{facts.name} does not fit: it needs {size(facts.needs)} of {size(facts.limit)} a device'
        trouble = f'{what}; {facts.remedy}'
    elif facts.limit:
        lines.append(f'fits: {size(facts.needs)} of {size(facts.limit)} a device')
    data = as_dict(facts) | {'tried': [as_dict(each) for each in tried[:-1]]}
    return Answer(shown, data, lines, trouble)
