"""A run's training step, lowered and compiled from shapes alone, and what is known of it then."""

import dataclasses
import functools
import re
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from smelt_jax.aot.flops import Spread, Work, count
from smelt_jax.batch import Batch
from smelt_jax.config import RunConfig
from smelt_jax.parallel.devices import BATCH, Devices
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import TrainState, init_state
from smelt_jax.train.step import make_step

_REFUSED = re.compile(r'\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)')
_UNITS = {'K': 2.0**10, 'M': 2.0**20, 'G': 2.0**30, 'T': 2.0**40}


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device.

    Attributes:
      arguments: the training state and a batch.
      outputs: of which `aliased` lie where arguments lay.
      temporaries: set aside for what lives within a step, gaps between buffers included.
      code: of the program.
      peak: the most that lives at one time, arguments included, as the compiler says; 0 if it does not.
    """

    arguments: float
    outputs: float
    aliased: float
    temporaries: float
    code: float
    peak: float

    @property
    def total(self) -> float:
        """What a device has to have."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled step.

    Attributes:
      run: what it was compiled of.
      work: FLOPs of its products on all devices.
      arguments: bytes of state and batch on a device, before the compiler pads them.
      memory: None if the compiler refused it for want of memory.
      needs: bytes a device needs, by the compiler's account where it refused.
      text: its HLO; '' if there is none, or this jaxlib cannot write it, and `unreadable` says why.
      lower_seconds, compile_seconds: it took to trace and lower, and to compile.
    """

    run: RunConfig
    work: Work
    arguments: float
    memory: Memory | None
    needs: float
    text: str
    unreadable: str
    compile_seconds: float
    lower_seconds: float


def compile_step(run: RunConfig, devices: Devices) -> Program:
    """Traces, lowers and compiles the update of `run` for devices that need not be there; no array is made.

    Raises what jax raises, but where the compiler finds too little memory.
    """
    arguments = abstract_arguments(run, devices)
    start = time.perf_counter()
    traced = make_step(run.model, run.loss, run.optim, devices).trace(*arguments)
    lowered = traced.lower()
    lower_seconds = time.perf_counter() - start
    work = count(traced.jaxpr.jaxpr, expected_spread(run, devices))
    given = sum(_bytes_of(leaf) for leaf in jax.tree.leaves(arguments))
    return Program(run, work, given, *compiled_of(lowered), lower_seconds)


class Compiled(NamedTuple):
    """See `Program`."""

    memory: Memory | None
    needs: float
    text: str
    unreadable: str
    compile_seconds: float


def compiled_of(lowered: Any) -> Compiled:
    """Compiles, and takes a refusal for want of memory for an answer."""
    start = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        refusal = _REFUSED.search(str(error))
        if 'RESOURCE_EXHAUSTED' not in str(error) or not refusal:
            raise
        needs = float(refusal[1]) * _UNITS[refusal[2]]
        return Compiled(None, needs, '', 'the compiler refused the program', time.perf_counter() - start)
    seconds = time.perf_counter() - start
    memory = _memory(compiled)
    return Compiled(memory, memory.total, *_text(compiled), seconds)


def check_exchange(devices: Devices) -> None:
    """Raises ValueError if these devices have no ragged exchange: a program of nothing else tells in a second, the step after
    minutes."""
    group = devices.mesh.shape['expert']
    on_cpu = devices.mesh.devices.flat[0].platform == 'cpu'  # where it is emulated
    if group == 1 or on_cpu or exchange_of(devices) != 'ragged':
        return
    place = NamedSharding(devices.mesh, BATCH)
    rows = jax.ShapeDtypeStruct((devices.count * 16, 256), jnp.bfloat16, sharding=place)
    sizes = jax.ShapeDtypeStruct((devices.count * group,), jnp.int32, sharding=place)
    exchange = devices.each(functools.partial(lax.ragged_all_to_all, axis_name='expert'), BATCH, BATCH)
    try:
        jax.jit(exchange).lower(rows, rows, *(sizes,) * 4).compile()
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(
            f'mesh.exchange=ragged cannot be compiled for these devices ({first_line(error)}); '
            f'use --config.mesh.exchange=gather'
        ) from None


def first_line(error: Exception) -> str:
    """What a compiler says, without the rest of the program."""
    return str(error).splitlines()[0][:300]


def abstract_arguments(run: RunConfig, devices: Devices) -> tuple[TrainState, Batch, jax.ShapeDtypeStruct]:
    """Shapes, dtypes and places of what a step of `run` takes."""
    state = devices.placed(lambda: init_state(run.model, optimizer(run.optim), run.seed))
    shape, place = (run.data.batch_rows, run.pack.row_tokens), NamedSharding(devices.mesh, BATCH)
    ints, floats = (jax.ShapeDtypeStruct(shape, dtype, sharding=place) for dtype in (jnp.int32, jnp.float32))
    rate = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(devices.mesh, P()))
    return state, Batch(ints, ints, ints, ints, floats), rate


def expected_spread(run: RunConfig, devices: Devices) -> Spread:
    """What `flops` assumes, on this mesh: by `gather` a device sees the choices of its whole group; by `ragged` it has room
    for all of them, or for `mesh.buffer` times its own."""
    group = devices.mesh.shape['expert']
    ragged = exchange_of(devices) == 'ragged'
    room = min(devices.config.buffer or group, group) if ragged else group
    return Spread(run.model.experts.count // group, 1 / room)


def exchange_of(devices: Devices) -> str:
    """`ragged` or `gather`: how tokens come to experts here."""
    if devices.config.exchange != 'auto':
        return devices.config.exchange
    return 'gather' if devices.mesh.devices.flat[0].platform == 'cpu' else 'ragged'


def _bytes_of(leaf: jax.ShapeDtypeStruct) -> float:
    return float(np.prod(leaf.sharding.shard_shape(leaf.shape), dtype=float) * leaf.dtype.itemsize)


def _memory(compiled: jax.stages.Compiled) -> Memory:
    found: Any = compiled.memory_analysis()
    arguments = found.argument_size_in_bytes
    peak = float(found.peak_memory_in_bytes)
    # On CPU the field leaves the temporaries out; it says nothing then.
    says = peak >= arguments + found.temp_size_in_bytes / 10
    return Memory(
        float(arguments),
        float(found.output_size_in_bytes),
        float(found.alias_size_in_bytes),
        float(found.temp_size_in_bytes),
        float(found.generated_code_size_in_bytes),
        peak if says else 0.0,
    )


def _text(compiled: jax.stages.Compiled) -> tuple[str, str]:
    """The text, or why there is none: jaxlib 0.10 writes large TPU programs in a form that it cannot read itself."""
    try:
        return compiled.as_text() or '', ''
    except jax.errors.JaxRuntimeError as error:
        return '', f'this jaxlib cannot read what it wrote, jax ≥ 0.12 can ({first_line(error)})'
