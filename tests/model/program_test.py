"""The program of a training step: what it never holds, and what its size does not depend on."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from models import QUICK, edit, looped

from pallas_kernels.expert_ffn_xla import block_rows
from smelt_jax.batch import Batch
from smelt_jax.train.config import LossConfig, OptimConfig
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.state import init_state
from smelt_jax.train.step import make_step


def arguments(model, rows, length):
    """Shapes of what a step takes."""
    state = jax.eval_shape(lambda: init_state(model, optimizer(OptimConfig()), seed=0))
    ints = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    floats = jax.ShapeDtypeStruct((rows, length), jnp.float32)
    return state, Batch(ints, ints, ints, ints, floats), jax.ShapeDtypeStruct((), jnp.float32)


def floats_of(jaxpr):
    """Shapes of every float array that a program makes, those of its inner programs included."""
    if isinstance(jaxpr, core.ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            if jnp.issubdtype(variable.aval.dtype, jnp.floating):
                yield variable.aval.shape
        for leaf in jax.tree.leaves(list(equation.params.values()), is_leaf=is_program):
            if is_program(leaf):
                yield from floats_of(leaf)


def is_program(leaf):
    return isinstance(leaf, core.Jaxpr | core.ClosedJaxpr)


def at_least(shapes, size):
    return {tuple(shape) for shape in shapes if math.prod(shape) >= size}


# Sizes at which nothing else is as large as what must not be: residuals of all layers and every parameter are smaller.
ROWS, LENGTH = 2, 64
TOKENS = ROWS * LENGTH
WIDE = edit(
    looped(1, 1, 0, visits=2),
    vocab=600,
    width=64,
    experts__count=9,
    experts__per_token=8,
    experts__width=8,
    remat='none',
)
LIMIT = TOKENS * WIDE.experts.per_token * WIDE.width
assert TOKENS * WIDE.vocab > LIMIT > WIDE.vocab * WIDE.width


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('remat', ['none', 'dots'])
def test_the_traced_step_holds_no_rows_of_all_choices_and_no_logits_of_all_tokens(dtype, remat):
    """No float array of T·K × D entries, nor of B·T × V: none at all of so many entries, forward or backward."""
    model = edit(WIDE, dtype=dtype, remat=remat)
    step = make_step(model, LossConfig(chunk_tokens=32), OptimConfig())
    shapes = list(floats_of(jax.make_jaxpr(step)(*arguments(model, ROWS, LENGTH))))
    assert not at_least(shapes, LIMIT)
    # The walk went to the bottom: into the loss's chunks, and the expert blocks inside the scans.
    assert (32, WIDE.vocab) in shapes
    assert (block_rows(8 * TOKENS, 9), 2 * WIDE.experts.width) in shapes


def test_the_walk_sees_what_it_must():
    def rows_of_all_choices(x_TD):
        def layer(x_TD, _):
            return jnp.sum(jnp.repeat(x_TD, 8, axis=0).reshape(-1, 8, x_TD.shape[1]), axis=1), None

        return jax.lax.scan(jax.checkpoint(layer), x_TD, length=2)[0]

    jaxpr = jax.make_jaxpr(jax.grad(lambda x: jnp.sum(rows_of_all_choices(x))))(np.ones((TOKENS, WIDE.width)))
    assert at_least(floats_of(jaxpr), LIMIT)


def test_the_compiled_step_holds_none_either():
    step = make_step(WIDE, LossConfig(chunk_tokens=32), OptimConfig())
    text = step.lower(*arguments(WIDE, ROWS, LENGTH)).compile(QUICK).as_text()
    shapes = [tuple(map(int, dims.split(','))) for dims in re.findall(r'\b(?:f|bf)\d+\[([\d,]+)\]', text)]
    assert (32, WIDE.vocab) in shapes
    assert not at_least(shapes, LIMIT)


def lowered(model):
    return make_step(model, LossConfig(), OptimConfig()).lower(*arguments(model, rows=2, length=16))


@pytest.mark.parametrize(
    'model',
    [
        pytest.param(looped(4, 8, 4, visits=1), id='16 layers'),
        pytest.param(looped(1, 2, 1, visits=3), id='3 visits'),
        pytest.param(looped(4, 8, 4, visits=3), id='16 layers, 3 visits'),
    ],
)
def test_the_lowered_step_is_of_the_size_of_4_layers_and_1_visit(model):
    """Lines of the program that is handed to the compiler (StableHLO): that is what depth and visits could inflate. What
    comes out of the compiler also depends on whether a stack has one layer, whose loop it then dissolves."""
    small = lowered(looped(1, 2, 1, visits=1)).as_text().count('\n')
    assert abs(lowered(model).as_text().count('\n') / small - 1) < 0.02


# A loop of one turn is no loop to the compiler: it dissolves it, and a stack of one layer becomes a smaller program
# than a stack of two. Kept as loops, 1 and 4 layers a stack, 1 and 3 visits are alike.
KEEP_LOOPS = {'xla_disable_hlo_passes': 'while-loop-simplifier,simplify-while-loops'}


def test_the_compiled_step_is_of_that_size_too_where_loops_of_one_turn_stay_loops():
    def size(model):
        return len(lowered(model).compile(QUICK | KEEP_LOOPS).as_text())

    small = size(looped(1, 2, 1, visits=1))
    assert abs(size(looped(4, 8, 4, visits=1)) / small - 1) < 0.1
    assert abs(size(looped(1, 2, 1, visits=3)) / small - 1) < 0.1
