"""The sparse SwiGLU on GPUs, in Triton: token rows are gathered by the loads of the products that need them.

Forward: hidden numbers, tile by tile; their product with the third matrix; the weighted sum of a token's rows. Nothing is
kept for the backward pass but the arguments: it computes the hidden numbers again beside their gradients. Beside the T · K
rows of width F there is one array of T · K rows of width D at a time, between the last product and the sum over a token's rows.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from pallas_kernels.blocks import spans
from pallas_kernels.choice import one_by_one
from pallas_kernels.dtypes import check_dtype
from pallas_kernels.gpu import tiles
from pallas_kernels.gpu.grouped_matmul import block_rows as block_rows
from pallas_kernels.gpu.grouped_matmul import check_rows, outer_rows, products
from pallas_kernels.gpu.moves import weighted_rows
from pallas_kernels.routing import route

COLUMNS = 64  # of the hidden width, where two or three sums are held at once


@functools.partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def expert_ffn(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, rows, interpret):
    """See `pallas_kernels.expert_ffn.expert_ffn`. `rows`: of a block. `interpret`: on a CPU."""
    run = functools.partial(_run_forward, rows=rows, interpret=interpret)
    return one_by_one(run, x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD)


def _forward(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, rows, interpret):
    arguments = (x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD)
    return expert_ffn(*arguments, rows, interpret), arguments


def _backward(rows, interpret, residuals, dy_TD):
    run = functools.partial(_run_backward, rows=rows, interpret=interpret)
    dx_TD, dweights_TK, *dexperts = one_by_one(run, *residuals, dy_TD)
    return dx_TD, dweights_TK, None, *dexperts


expert_ffn.defvjp(_forward, _backward)


def _routed(x_TD, experts_TK, experts, rows):
    """The plan, its blocks, each sorted slot's token, and each slot's place; -1 for a slot that uses no expert."""
    check_dtype('GPU', x_TD.dtype)
    check_rows(rows)
    plan = route(experts_TK, experts)
    blocks = spans(plan.ends_E, experts_TK.size, rows)
    inverse_S = plan.inverse_S
    place_TK = jnp.where(inverse_S < plan.ends_E[-1], inverse_S, -1).reshape(experts_TK.shape)
    return plan, blocks, plan.order_S // experts_TK.shape[1], place_TK


def _run_forward(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, *, rows, interpret):
    experts, _, ffn_width = gate_EDF.shape
    _, blocks, token_S, place_TK = _routed(x_TD, experts_TK, experts, rows)
    columns, depth = _sides(x_TD, ffn_width)
    act_SF = tiles.call(
        functools.partial(_hidden_kernel, rows, columns, depth),
        (tiles.count(ffn_width, columns), blocks.expert_N.size),
        jax.ShapeDtypeStruct((token_S.size, ffn_width), x_TD.dtype),
        warps=4,
        interpret=interpret,
        name='expert_ffn_hidden',
    )(blocks.expert_N, blocks.start_N, blocks.count_N, token_S, x_TD, gate_EDF, up_EDF)
    y_SD = products([(act_SF, down_EFD)], blocks, transposed=False, rows=rows, interpret=interpret)
    return weighted_rows(y_SD, place_TK, weights_TK.astype(jnp.float32), interpret)


def _run_backward(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, dy_TD, *, rows, interpret):
    """Gradients of all arguments but the choices."""
    experts, _, ffn_width = gate_EDF.shape
    plan, blocks, token_S, place_TK = _routed(x_TD, experts_TK, experts, rows)
    slots, dtype = token_S.size, x_TD.dtype
    columns, depth = _sides(x_TD, ffn_width)
    parts = tiles.count(ffn_width, columns)
    rows_SF = jax.ShapeDtypeStruct((slots, ffn_width), dtype)
    weight_S = weights_TK.reshape(-1)[plan.order_S].astype(jnp.float32)
    act_SF, dgate_SF, dup_SF, dweight_JS = tiles.call(
        functools.partial(_hidden_gradient_kernel, rows, columns, depth),
        (parts, blocks.expert_N.size),
        (rows_SF, rows_SF, rows_SF, jax.ShapeDtypeStruct((parts, slots), jnp.float32)),
        warps=8 if rows >= 128 else 4,
        interpret=interpret,
        name='expert_ffn_hidden_gradient',
    )(blocks.expert_N, blocks.start_N, blocks.count_N, token_S, weight_S, x_TD, dy_TD, gate_EDF, up_EDF, down_EFD)
    pairs = [(dgate_SF, gate_EDF), (dup_SF, up_EDF)]
    dx_SD = products(pairs, blocks, transposed=True, rows=rows, interpret=interpret)
    dx_TD = weighted_rows(dx_SD, place_TK, jnp.ones(place_TK.shape, jnp.float32), interpret)
    dweights_TK = jnp.where(place_TK >= 0, jnp.sum(dweight_JS, axis=0)[jnp.maximum(place_TK, 0)], 0)
    slot_S = jnp.arange(slots, dtype=jnp.int32)
    outer = functools.partial(outer_rows, ends_E=plan.ends_E, rows=rows, interpret=interpret)
    dgate_EDF, dup_EDF = (outer(x_TD, token_S, d_SF, slot_S) for d_SF in (dgate_SF, dup_SF))
    ddown_EFD = outer(act_SF, slot_S, dy_TD, token_S)
    return (
        dx_TD,
        dweights_TK.astype(weights_TK.dtype),
        *(gradient.astype(dtype) for gradient in (dgate_EDF, dup_EDF, ddown_EFD)),
    )


def _sides(x_TD: jax.Array, ffn_width: int) -> tuple[int, int]:
    """Of the hidden width, and of the part of a token's row that a turn takes."""
    columns = COLUMNS if x_TD.dtype == jnp.bfloat16 else COLUMNS // 2
    return tiles.tile(ffn_width, columns), tiles.tile(x_TD.shape[1], tiles.depth(x_TD.dtype))


def _block(rows, block, expert_ref, start_ref, count_ref, token_ref):
    """A block's expert, its rows, which of them are there, and their tokens."""
    row_M = start_ref[block] + lax.iota(jnp.int32, rows)
    there_M = lax.iota(jnp.int32, rows) < count_ref[block]
    token_M = tiles.load_vector(token_ref, row_M, there_M)
    return expert_ref[block], row_M, there_M, token_M


def _hidden_kernel(rows, columns, depth, expert_ref, start_ref, count_ref, token_ref, x_ref, gate_ref, up_ref, act_ref):
    part, block = pl.program_id(0), pl.program_id(1)

    @pl.when(count_ref[block] > 0)
    def _() -> None:
        expert, row_M, there_M, token_M = _block(rows, block, expert_ref, start_ref, count_ref, token_ref)
        column_C = tiles.indices(part, columns)

        def step(turn, sums):
            gate_MC, up_MC = sums
            inner_I = tiles.indices(turn, depth)
            x_MI = tiles.load(x_ref, token_M, inner_I, there_M)
            gate_MC += tiles.dot(x_MI, tiles.load(gate_ref, inner_I, column_C, expert=expert))
            up_MC += tiles.dot(x_MI, tiles.load(up_ref, inner_I, column_C, expert=expert))
            return gate_MC, up_MC

        zeros = jnp.zeros((rows, columns), jnp.float32)
        gate_MC, up_MC = lax.fori_loop(0, tiles.count(x_ref.shape[1], depth), step, (zeros, zeros))
        tiles.store(act_ref, row_M, column_C, gate_MC * jax.nn.sigmoid(gate_MC) * up_MC, there_M)


def _hidden_gradient_kernel(
    rows,
    columns,
    depth,
    expert_ref,
    start_ref,
    count_ref,
    token_ref,
    weight_ref,
    x_ref,
    dy_ref,
    gate_ref,
    up_ref,
    down_ref,
    act_ref,
    dgate_ref,
    dup_ref,
    dweight_ref,
):
    part, block = pl.program_id(0), pl.program_id(1)

    @pl.when(count_ref[block] > 0)
    def _() -> None:
        expert, row_M, there_M, token_M = _block(rows, block, expert_ref, start_ref, count_ref, token_ref)
        column_C = tiles.indices(part, columns)

        def step(turn, sums):
            gate_MC, up_MC, dact_MC = sums
            inner_I = tiles.indices(turn, depth)
            x_MI = tiles.load(x_ref, token_M, inner_I, there_M)
            gate_MC += tiles.dot(x_MI, tiles.load(gate_ref, inner_I, column_C, expert=expert))
            up_MC += tiles.dot(x_MI, tiles.load(up_ref, inner_I, column_C, expert=expert))
            dy_MI = tiles.load(dy_ref, token_M, inner_I, there_M)
            dact_MC += tiles.dot(dy_MI, tiles.load(down_ref, column_C, inner_I, expert=expert), 1, 1)
            return gate_MC, up_MC, dact_MC

        zeros = jnp.zeros((rows, columns), jnp.float32)
        turns = tiles.count(x_ref.shape[1], depth)
        gate_MC, up_MC, dact_MC = lax.fori_loop(0, turns, step, (zeros, zeros, zeros))
        weight_M1 = tiles.load_vector(weight_ref, row_M, there_M)[:, None]
        sigmoid_MC = jax.nn.sigmoid(gate_MC)
        silu_MC = gate_MC * sigmoid_MC
        act_MC = silu_MC * up_MC
        dweight_M = jnp.sum(dact_MC * act_MC, axis=1)
        triton.store(dweight_ref.at[part, row_M], dweight_M, mask=there_M)
        dact_MC *= weight_M1
        dgate_MC = dact_MC * up_MC * (sigmoid_MC + silu_MC * (1 - sigmoid_MC))
        for ref, value_MC in ((act_ref, act_MC * weight_M1), (dgate_ref, dgate_MC), (dup_ref, dact_MC * silu_MC)):
            tiles.store(ref, row_M, column_C, value_MC, there_M)
