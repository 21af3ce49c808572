"""The sparse SwiGLU in plain XLA: tokens sorted by expert, worked through in blocks of one expert each.

A loop takes one block a turn: its token rows are gathered, both products and the activation run while the block is in the
cache, and the weighted result is added to the tokens' rows. No array of T·K rows of width D exists, forward or backward,
and nothing grows with the number of experts but the weights. The loop runs over the blocks that are there, so that an empty
expert costs nothing and one that gets every token is no special case.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels.blocks import Spans, spans
from pallas_kernels.routing import route

# Blocks of several hundred rows keep the matrix units busy; much larger ones waste rows at the end of each group.
MAX_BLOCK = 512
MIN_BLOCK = 32


def block_rows(slots: int, experts: int) -> int:
    """Rows of a block: a power of two near a quarter of the mean group, between MIN_BLOCK and MAX_BLOCK."""
    quarter = max(1, slots // (4 * experts))
    return min(MAX_BLOCK, max(MIN_BLOCK, 1 << (quarter - 1).bit_length()))


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def expert_ffn(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, rows):
    """See `pallas_kernels.expert_ffn.expert_ffn`. `rows`: of a block."""
    return _forward(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, rows)[0]


class _Block(NamedTuple):
    expert: jax.Array
    start: jax.Array
    slot_M: jax.Array
    valid_M: jax.Array


def _block(blocks: Spans, order_S: jax.Array, n: jax.Array, rows: int) -> _Block:
    """Block n. The last one of a group reaches into the next group: those rows are not `valid`."""
    start = blocks.start_N[n]
    slot_M = lax.dynamic_slice(order_S, (start,), (rows,))
    return _Block(blocks.expert_N[n], start, slot_M, jnp.arange(rows) < blocks.count_N[n])


def _rows(array_TD: jax.Array, token_M: jax.Array) -> jax.Array:
    return array_TD.at[token_M].get(mode='promise_in_bounds')


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _forward(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, rows):
    (tokens, width), choices = x_TD.shape, experts_TK.shape[1]
    experts, _, ffn_width = gate_EDF.shape
    slots = tokens * choices
    plan = route(experts_TK, experts)
    blocks = spans(plan.ends_E, slots, rows)
    order_S = jnp.pad(plan.order_S, (0, rows))  # so that the last block can be read whole
    weights_S = weights_TK.reshape(-1)

    def step(n, carry):
        y_TD, hidden_SG = carry
        block = _block(blocks, order_S, n, rows)
        token_M = block.slot_M // choices
        # Both products of the first layer as one, G = 2F wide: narrow experts leave a matrix unit idle otherwise.
        in_DG = jnp.concatenate([gate_EDF[block.expert], up_EDF[block.expert]], axis=1)
        hidden_MG = _dot(_rows(x_TD, token_M), in_DG)
        weight_M = jnp.where(block.valid_M, weights_S[block.slot_M], 0)
        act_MF = jax.nn.silu(hidden_MG[:, :ffn_width]) * hidden_MG[:, ffn_width:]
        act_MF = jnp.where(block.valid_M[:, None], act_MF * weight_M[:, None], 0)
        y_MD = _dot(act_MF.astype(x_TD.dtype), down_EFD[block.expert])
        # Rows past the end of the group are written too; the next group's own block overwrites them.
        hidden_SG = lax.dynamic_update_slice(hidden_SG, hidden_MG.astype(hidden_SG.dtype), (block.start, 0))
        return y_TD.at[token_M].add(y_MD, mode='promise_in_bounds'), hidden_SG

    y_TD = jnp.zeros((tokens, width), jnp.float32)
    hidden_SG = jnp.zeros((slots + rows, 2 * ffn_width), x_TD.dtype)
    y_TD, hidden_SG = lax.fori_loop(0, blocks.used, step, (y_TD, hidden_SG))
    return y_TD.astype(x_TD.dtype), (
        (x_TD, weights_TK, gate_EDF, up_EDF, down_EFD),
        (blocks, order_S, hidden_SG),
    )


def _backward(rows, residuals, dy_TD):
    (x_TD, weights_TK, gate_EDF, up_EDF, down_EFD), (blocks, order_S, hidden_SG) = residuals
    choices = weights_TK.shape[1]
    experts, width, ffn_width = gate_EDF.shape
    slots = weights_TK.size
    weights_S = weights_TK.reshape(-1)

    def step(n, carry):
        dx_TD, dweights_S, din_EDG, ddown_EFD = carry
        block = _block(blocks, order_S, n, rows)
        token_M, valid_M1 = block.slot_M // choices, block.valid_M[:, None]
        # Rows of other groups are zeroed, not multiplied by zero: they may hold anything, NaN too.
        x_MD = jnp.where(valid_M1, _rows(x_TD, token_M), 0)
        dy_MD = jnp.where(valid_M1, _rows(dy_TD, token_M), 0)
        hidden_MG = lax.dynamic_slice(hidden_SG, (block.start, 0), (rows, 2 * ffn_width))
        hidden_MG = jnp.where(valid_M1, hidden_MG, 0).astype(jnp.float32)
        gate_MF, up_MF = hidden_MG[:, :ffn_width], hidden_MG[:, ffn_width:]
        sigmoid_MF = jax.nn.sigmoid(gate_MF)
        silu_MF = gate_MF * sigmoid_MF
        act_MF = silu_MF * up_MF
        weight_M1 = jnp.where(valid_M1, weights_S[block.slot_M][:, None], 0)

        dact_MF = _dot(dy_MD, down_EFD[block.expert].T)
        dweight_M = jnp.sum(dact_MF * act_MF, axis=1)
        dact_MF = dact_MF * weight_M1
        dgate_MF = dact_MF * up_MF * (sigmoid_MF + silu_MF * (1 - sigmoid_MF))
        dhidden_MG = jnp.concatenate([dgate_MF, dact_MF * silu_MF], axis=1)
        dhidden_MG = dhidden_MG.astype(x_TD.dtype)
        in_DG = jnp.concatenate([gate_EDF[block.expert], up_EDF[block.expert]], axis=1)
        dx_MD = _dot(dhidden_MG, in_DG.T)

        ddown_FD = _dot((act_MF * weight_M1).astype(x_TD.dtype).T, dy_MD)
        din_DG = _dot(x_MD.T, dhidden_MG)
        return (
            dx_TD.at[token_M].add(dx_MD, mode='promise_in_bounds'),
            lax.dynamic_update_slice(dweights_S, dweight_M, (block.start,)),
            din_EDG.at[block.expert].add(din_DG),
            ddown_EFD.at[block.expert].add(ddown_FD),
        )

    carry = (
        jnp.zeros(x_TD.shape, jnp.float32),
        jnp.zeros(slots + rows, jnp.float32),
        jnp.zeros((experts, width, 2 * ffn_width), jnp.float32),
        jnp.zeros((experts, ffn_width, width), jnp.float32),
    )
    dx_TD, dweights_S, din_EDG, ddown_EFD = lax.fori_loop(0, blocks.used, step, carry)
    # Sorted order back to slots: every slot once, those without an expert with the zeros they were made with.
    dweights_TK = jnp.zeros(slots, jnp.float32).at[order_S[:slots]].set(dweights_S[:slots], unique_indices=True)
    return (
        dx_TD.astype(x_TD.dtype),
        dweights_TK.reshape(weights_TK.shape).astype(weights_TK.dtype),
        None,
        din_EDG[..., :ffn_width].astype(gate_EDF.dtype),
        din_EDG[..., ffn_width:].astype(up_EDF.dtype),
        ddown_EFD.astype(down_EFD.dtype),
    )


expert_ffn.defvjp(_forward, _backward)
