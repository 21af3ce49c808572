"""FLOPs counted from what jax traced agree with counts by hand, and with the budget's."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from models import edit, looped

from smelt_jax.aot.flops import Spread, count
from smelt_jax.aot.program import abstract_arguments, expected_spread
from smelt_jax.budget.accounting import budget_of
from smelt_jax.budget.attended import full_row
from smelt_jax.config import RunConfig
from smelt_jax.data.config import PackConfig, RowsConfig
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices
from smelt_jax.train.step import make_step

# One stack, visited twice. Many tokens an expert, and a width beside which the scores are little: blocks cost little.
WIDE = edit(looped(0, 4, 0, 2), width=512, vocab=512, attention__head_dim=32, experts__width=256, experts__count=2)
LENGTH, ROWS = 512, 16
PLAIN = Spread(own_experts=4, busy=1.0)


def counted(function, *shapes, spread=PLAIN):
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return count(jax.jit(function).trace(*arrays).jaxpr.jaxpr, spread)


def step_work(model, sizes=(1, 1, 1), accumulate=1):
    run = RunConfig(
        model=model,
        pack=PackConfig(row_tokens=LENGTH),
        data=RowsConfig(batch_rows=ROWS),
        mesh=MeshConfig(*sizes, exchange='gather'),
    )
    run = dataclasses.replace(run, optim=dataclasses.replace(run.optim, accumulate=accumulate))
    devices = Devices.of(run.mesh)
    traced = make_step(run.model, run.loss, run.optim, devices).trace(*abstract_arguments(run, devices))
    return count(traced.jaxpr.jaxpr, expected_spread(run, devices))


def model_flops(model):
    return budget_of(model, full_row(LENGTH)).train_flops


def test_a_product_counts_two_a_multiply_add_and_a_batch_counts() -> None:
    assert counted(jnp.dot, (3, 5), (5, 7)).total == 2 * 3 * 5 * 7
    assert counted(lambda a, b: jnp.einsum('bij,bjk->bik', a, b), (4, 3, 5), (4, 5, 7)).total == 4 * 2 * 3 * 5 * 7


def test_a_loop_counts_as_often_as_it_turns() -> None:
    def looped(a, b):
        return lax.scan(lambda x, _: (lax.fori_loop(0, 3, lambda i, y: y @ b, x), None), a, length=5)[0]

    assert counted(looped, (4, 4), (4, 4)).total == 5 * 3 * 2 * 4**3


def test_of_branches_the_dearest_counts() -> None:
    def branched(a, b):
        return lax.cond(a[0, 0] > 0, lambda: a @ b, lambda: a @ b @ b)

    assert counted(branched, (4, 4), (4, 4)).total == 2 * 2 * 4**3


def test_a_loop_cut_by_the_data_turns_as_its_list_has_room() -> None:
    def cut(a, b):
        rows_N = jnp.arange(10)
        used = jnp.sum(a > 0)

        def turn(n, y):
            return y + lax.dynamic_slice_in_dim(a, rows_N[n], 2) @ b

        with jax.named_scope('attention'):
            first = lax.fori_loop(0, used, turn, jnp.zeros((2, 4)))
        with jax.named_scope('experts'):
            return lax.fori_loop(0, used, turn, first)

    work = counted(cut, (16, 4), (4, 4), spread=Spread(own_experts=2, busy=0.5))
    one = 2 * 2 * 4 * 4
    assert work.by_part == {'attention': 10 * one, 'experts': (8 * 0.5 + 1) * one, 'head': 0}
    assert work.unknown == 0


def test_a_loop_that_says_nothing_counts_once_and_is_told() -> None:
    def until(a, b):
        return lax.while_loop(lambda x: x[0, 0] < 1, lambda x: x @ b, a)

    work = counted(until, (4, 4), (4, 4))
    assert (work.total, work.unknown) == (2 * 4**3, 1)


def test_a_kernel_counts_its_grid_or_what_it_says_of_itself() -> None:
    def kernel(a_ref, b_ref, y_ref):
        y_ref[...] = a_ref[...] @ b_ref[...]

    def called(estimate, scope='kernel'):
        @jax.named_scope(scope)
        def function(a, b):
            row = pl.BlockSpec((4, 4), lambda i: (i, 0))
            whole = pl.BlockSpec((4, 4), lambda i: (0, 0))
            return pl.pallas_call(
                kernel,
                grid=(3,),
                in_specs=[row, whole],
                out_specs=row,
                out_shape=jax.ShapeDtypeStruct((12, 4), jnp.float32),
                cost_estimate=estimate,
            )(a, b)

        return counted(function, (12, 4), (4, 4)).total

    assert called(None) == 3 * 2 * 4**3
    assert called(None, 'attention') == 2 * 2 * 4**3  # 6 of 9 pairs
    assert called(pl.CostEstimate(flops=7, transcendentals=0, bytes_accessed=0)) == 7


def test_a_plain_model_has_the_budgets_flops() -> None:
    """Within what blocks and flash attention cost: the hand count of these is exact."""
    work, budget = step_work(WIDE), model_flops(WIDE)
    tokens = ROWS * LENGTH
    assert work.again == 0
    assert work.by_part['head'] / tokens == pytest.approx(budget.head)
    # Blocks of 128 on and under the diagonal; scores once more in the backward pass: 7 products for 6.
    blocks = LENGTH // 128
    seen = blocks * (blocks + 1) / 2 * 128**2 / LENGTH
    attended = budget.attended * seen / full_row(LENGTH) * 7 / 6
    assert work.by_part['attention'] / tokens == pytest.approx(budget.projections + attended)
    # 8192 tokens · 2 choices in blocks of 512 rows, and half a block for each of 2 experts.
    experts = budget.experts * (1 + 2 * 256 / 16384)
    assert work.by_part['experts'] / tokens == pytest.approx(budget.router + experts)
    assert work.total / tokens == pytest.approx(budget.total, rel=0.06)


@pytest.mark.parametrize('sizes', [(1, 1, 1), (2, 2, 2)], ids=str)
def test_rematerialisation_costs_a_forward_pass(sizes) -> None:
    none, layer = (step_work(edit(WIDE, remat=remat), sizes) for remat in ('none', 'layer'))
    assert layer.total - layer.again == pytest.approx(none.total - none.again)
    # All of a layer's forward products, but of the experts' last one, whose result the gradient does not ask for.
    forward = model_flops(WIDE).non_embedding / 3 * ROWS * LENGTH
    assert 0.7 * forward < layer.again < 1.2 * forward


def test_devices_and_microbatches_share_the_same_work() -> None:
    whole = step_work(WIDE)
    assert step_work(WIDE, (1, 8, 1)).by_part['head'] == whole.by_part['head']
    assert step_work(WIDE, accumulate=2).by_part['attention'] == whole.by_part['attention']
