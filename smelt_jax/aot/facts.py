"""What is known of a compiled step on a topology."""

import dataclasses

from smelt_jax.aot.flops import Work
from smelt_jax.aot.program import Memory, Program, exchange_of
from smelt_jax.aot.remedy import advice, remedies_of
from smelt_jax.aot.temporaries import Temporary, instructions, largest
from smelt_jax.aot.topology import Topology
from smelt_jax.budget.accounting import budget_of
from smelt_jax.budget.attended import full_row
from smelt_jax.parallel.collectives import collective_bytes
from smelt_jax.parallel.cost import update_bytes
from smelt_jax.parallel.devices import Devices

LANES = 256  # numbers that a TPU pads a sent row of bfloat16 to a multiple of
_Key = tuple[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Attributes:
    name, topology, remat, mesh: of the run, the hardware, the policy, the sizes by axis.
      rows: of a microbatch on a device.
      tokens: of an update, all devices together.
      needs: bytes a device needs; `limit`: what it has, 0 if that is not known; `limit_source`: where that is from.
      arguments: bytes of state and batch on a device, without padding.
      memory: in parts; None if the compiler refused the program.
      work: FLOPs of an update; `model_flops`: of a token, by part, as the budget counts them.
      collectives: (kind, axes) → bytes that a device receives in an update, and `formula` by axis.
      collectives_read: whether they could be read.
      temporaries, instructions: of the program's text; empty and 0 without one.
      notes: what a reader has to know, a sentence each.
      remedy: what to try first if it does not fit; '' if it does.
    """

    name: str
    topology: str
    remat: str
    mesh: dict[str, int]
    rows: int
    tokens: int
    needs: float
    limit: float
    limit_source: str
    arguments: float
    memory: Memory | None
    work: Work
    model_flops: dict[str, float]
    collectives: dict[_Key, float]
    collectives_read: bool
    formula: dict[str, float]
    temporaries: list[Temporary]
    instructions: int
    lower_seconds: float
    compile_seconds: float
    notes: list[str]
    remedy: str

    @property
    def fits(self) -> bool:
        """Into the device's memory, as far as that is known."""
        return self.memory is not None and (not self.limit or self.needs <= self.limit)

    @property
    def sent_by_axis(self) -> dict[str, float]:
        """`collectives`, sorted as `formula` is."""
        found: dict[str, float] = {}
        for key, sent in self.collectives.items():
            axis = self.axis_of(key)
            found[axis] = found.get(axis, 0.0) + sent
        return found

    @staticmethod
    def axis_of(key: _Key) -> str:
        """Where a collective is in the formulas: what copies add up at the end is `sum`, the rest is an axis's. Over `fsdp`
        alone a compiler may add up everywhere where sums were to be scattered, for twice the bytes."""
        kind, axes = key
        return 'sum' if kind == 'all-reduce' and axes != ('fsdp',) else '+'.join(axes)


def facts_of(program: Program, devices: Devices, topology: Topology) -> Facts:
    """All that can be said."""
    run, sizes = program.run, dict(devices.mesh.shape)
    exchange, length = exchange_of(devices), run.pack.row_tokens
    rows = run.data.batch_rows // devices.count // run.optim.accumulate
    notes = [
        'FLOPs: products alone, rows of one document each, choices spread evenly over devices, half a block of each '
        "expert unused; scores computed twice by flash attention and what kernels pad are the program's alone",
    ]
    if program.work.unknown:
        notes.append(f'FLOPs: {program.work.unknown} products in loops of unknown length are counted once')
    collectives, read = {}, False
    if program.text:
        try:
            collectives, read = collective_bytes(program.text, devices.mesh), True
        except ValueError as error:
            notes.append(f'collectives: not readable: {error}')
    else:
        notes.append(f'collectives and temporaries: not readable: {program.unreadable}')
    on_tpu = topology.chip.platform == 'tpu' and run.model.dtype == 'bfloat16'
    flops = budget_of(run.model, full_row(length)).train_flops
    excess = program.needs - topology.memory
    remedy = ''
    if program.memory is None or (topology.memory and excess > 0):
        remedies = remedies_of(run, sizes, exchange, program.arguments, program.needs, excess)
        remedy = advice(remedies, excess)
    return Facts(
        name=run.name,
        topology=topology.title,
        remat=run.model.remat,
        mesh=sizes,
        rows=rows,
        tokens=run.data.batch_rows * length,
        needs=program.needs,
        limit=topology.memory,
        limit_source=topology.memory_source,
        arguments=program.arguments,
        memory=program.memory,
        work=program.work,
        model_flops={
            'attention': flops.projections + flops.attended,
            'experts': flops.router + flops.experts,
            'head': flops.head,
        },
        collectives=collectives,
        collectives_read=read,
        formula=update_bytes(
            run.model,
            sizes['replica'],
            sizes['fsdp'],
            sizes['expert'],
            tokens=rows * length,
            exchange=exchange,
            accumulate=run.optim.accumulate,
            lanes=LANES if on_tpu and exchange == 'ragged' else 1,
            chunked=run.mesh.chunk_tokens > 0,
        ),
        temporaries=largest(program.text) if program.text else [],
        instructions=instructions(program.text),
        lower_seconds=program.lower_seconds,
        compile_seconds=program.compile_seconds,
        notes=notes,
        remedy=remedy,
    )
