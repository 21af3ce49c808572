"""The formulas of communication are what compiled programs do: on eight CPU devices, and for TPUs that are not there."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from models import QUICK, TINY, edit
from topologies import devices_of

from smelt_jax.batch import Batch
from smelt_jax.parallel.collectives import collective_bytes
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.cost import update_bytes
from smelt_jax.parallel.devices import BATCH, Devices
from smelt_jax.train.config import LossConfig, OptimConfig
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import init_state
from smelt_jax.train.step import make_step

# Two layers a stack, since a loop of one turn is dissolved; wide enough that norms and counts, which no formula has, are few.
MODEL = edit(
    TINY, layers=6, loop__start=2, vocab=128, width=64, experts__count=8, experts__width=64, attention__head_dim=32
)
ROWS, LENGTH = 16, 128


def compiled(model, mesh, devices=None, options=None, length=LENGTH):
    """(text, memory) of the compiled step, from shapes alone."""
    devices, optim = Devices.of(mesh, devices), OptimConfig()
    state = devices.placed(lambda: init_state(model, optimizer(optim), 0))
    place = NamedSharding(devices.mesh, BATCH)
    ints, floats = (jax.ShapeDtypeStruct((ROWS, length), dtype, sharding=place) for dtype in (jnp.int32, jnp.float32))
    rate = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(devices.mesh, P()))
    step = make_step(model, LossConfig(), optim, devices)
    program = step.lower(state, Batch(ints, ints, ints, ints, floats), rate).compile(options)
    return collective_bytes(program.as_text(), devices.mesh), program.memory_analysis()


def by_axis(sent):
    """As `update_bytes` sorts them: what is added up at the end over copies, and what an axis does in every layer."""
    found = {'fsdp': 0.0, 'expert': 0.0, 'sum': 0.0}
    for (kind, axes), size in sent.items():
        found['sum' if kind == 'all-reduce' else '+'.join(axes)] += size
    return found


def assert_as_the_formula_says(model, sizes, sent, exchange, lanes=1, chunked=False):
    tokens = ROWS // 8 * LENGTH
    expected = update_bytes(model, *sizes, tokens=tokens, exchange=exchange, lanes=lanes, chunked=chunked)
    found = by_axis(sent)
    for axis, size in expected.items():
        assert found[axis] == pytest.approx(size, rel=0.05, abs=0.01 * max(expected.values())), (axis, sent)


@pytest.mark.parametrize(
    ('sizes', 'remat'),
    [((8, 1, 1), 'none'), ((1, 8, 1), 'layer'), ((1, 1, 8), 'none'), ((2, 2, 2), 'none'), ((2, 2, 2), 'layer')],
    ids=str,
)
def test_a_step_on_eight_devices(sizes, remat):
    model = edit(MODEL, remat=remat)
    sent, _ = compiled(model, MeshConfig(*sizes, exchange='gather'), options=QUICK)
    assert_as_the_formula_says(model, sizes, sent, 'gather')


@pytest.mark.parametrize('remat', ['none', 'layer'])
def test_tokens_exchanged_some_at_a_time_are_sent_once_more_and_no_more(remat):
    """For the backward pass; of a layer that is computed again nothing is sent a third time."""
    model, mesh = edit(MODEL, remat=remat), MeshConfig(1, 1, 8, exchange='gather', chunk_tokens=64)
    sent, _ = compiled(model, mesh, options=QUICK)
    assert_as_the_formula_says(model, (1, 1, 8), sent, 'gather', chunked=True)


@pytest.mark.parametrize(('remat', 'width', 'sizes'), [('none', 256, (2, 2, 2)), ('layer', 320, (2, 1, 4))])
def test_a_ragged_step_for_tpus(remat, width, sizes):
    model = edit(MODEL, dtype='bfloat16', remat=remat, width=width)
    # Else pieces of one collective stand in several places, beside other work, and cannot be told apart in the text.
    whole = {'xla_tpu_enable_async_collective_fusion': 'false'}
    sent, _ = compiled(model, MeshConfig(*sizes, exchange='ragged'), devices_of('v5e:2x4'), whole)
    assert any(kind == 'ragged-all-to-all' for kind, _ in sent)
    assert_as_the_formula_says(model, sizes, sent, 'ragged', lanes=256)


def test_temporary_memory_does_not_grow_with_the_number_of_experts():
    """At the same tokens and choices, beyond what the weights themselves take."""
    few, many = (
        edit(MODEL, dtype='bfloat16', remat='layer'),
        edit(MODEL, dtype='bfloat16', remat='layer', experts__count=64),
    )
    temporary = [
        compiled(model, MeshConfig(1, 1, 8, exchange='ragged'), devices_of('v5e:2x4'), length=512)[1].temp_size_in_bytes
        for model in (few, many)
    ]
    assert temporary[1] < 1.5 * temporary[0]
