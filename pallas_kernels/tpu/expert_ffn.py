"""The sparse SwiGLU on TPUs: a block of one expert's rows a turn, fetched row by row while the block before is computed.

Forward and backward are one kernel each. Nothing is kept for the backward pass but the arguments: hidden numbers are computed
again there, when their block's rows are at hand. Experts that are too large for the fast memory are worked through in J parts
of their width F; each part makes its own rows, and the sum over a token's choices is one over the parts, too.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.blocks import Blocks, cut
from pallas_kernels.choice import one_by_one
from pallas_kernels.routing import route
from pallas_kernels.tpu import expert_ffn_block
from pallas_kernels.tpu import rows as moved
from pallas_kernels.tpu.moves import gather_sum
from pallas_kernels.tpu.words import to_words, word_count

LANES = 128
VMEM_BYTES = 54 * 2**20  # of 64 MiB (v5p) or 128 MiB (v5e, v6e)
MIN_ROWS, MAX_ROWS = 16, 256


def block_rows(slots: int, experts: int) -> int:
    """Rows of a block by rule of thumb: near the mean group, a power of two between 16 and MAX_ROWS."""
    mean = max(1, slots // experts)
    return min(MAX_ROWS, max(MIN_ROWS, 1 << (mean - 1).bit_length()))


def check_rows(rows: int) -> None:
    """Raises ValueError for rows that make no tile."""
    if rows % 16:
        raise ValueError(f'block_rows={rows} are not divisible by 16, the rows of a bfloat16 tile')


def parts_of(rows: int, width: int, ffn_width: int, dtype: jnp.dtype) -> int:
    """J, the fewest parts of an expert's width that the backward pass has room for."""
    item = jnp.dtype(dtype).itemsize
    for parts in range(1, -(-ffn_width // LANES) + 1):
        part = _part_width(ffn_width, parts)
        weights = 3 * width * part * (2 * item + 2 * 4 + 4)  # two buffers, two of the gradients, and one product
        buffers = rows * word_count(width, dtype) * 4 * (2 * 2 + 2) + rows * width * 4 * 4 + rows * part * 4 * 8
        if weights + buffers <= VMEM_BYTES:
            return parts
    raise ValueError(
        f'experts of {width=} need more than {VMEM_BYTES} bytes of a TPU at {rows=}; use fewer rows a block'
    )


def rows_that_fit(rows: int, width: int, ffn_width: int, dtype: jnp.dtype) -> int:
    """`rows`, or as many halvings of them as wide experts leave room for."""
    while rows > MIN_ROWS:
        try:
            parts_of(rows, width, ffn_width, dtype)
            break
        except ValueError:
            rows //= 2
    return rows


def _part_width(ffn_width: int, parts: int) -> int:
    return ffn_width if parts == 1 else -(-ffn_width // (parts * LANES)) * LANES


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


def _run_forward(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, *, rows, interpret):
    blocks, parts, gate_EDF, up_EDF, down_EFD = _prepared(x_TD, experts_TK, gate_EDF, up_EDF, down_EFD, rows)
    width, dtype = x_TD.shape[1], x_TD.dtype
    words = word_count(width, dtype)
    shapes = _Shapes(blocks, parts, width, gate_EDF.shape[2], dtype, interpret)
    y_JSW = shapes.call(
        expert_ffn_block.forward,
        inputs=[to_words(x_TD)],
        vectors=[],
        weights=[gate_EDF, up_EDF, down_EFD],
        outputs=[(shapes.rows_spec(words), shapes.rows_shape(words))],
        products=3,
        choices=experts_TK.shape[1],
    )[0]
    return _combined(y_JSW, blocks, weights_TK, width, dtype, interpret)


def _run_backward(x_TD, weights_TK, experts_TK, gate_EDF, up_EDF, down_EFD, dy_TD, *, rows, interpret):
    """Gradients of all arguments but the choices."""
    given = gate_EDF, up_EDF, down_EFD
    blocks, parts, *weights = _prepared(x_TD, experts_TK, *given, rows)
    width, ffn_width, dtype = x_TD.shape[1], gate_EDF.shape[2], x_TD.dtype
    words = word_count(width, dtype)
    shapes = _Shapes(blocks, parts, width, weights[0].shape[2], dtype, interpret)
    weight_N1M = weights_TK.reshape(-1)[blocks.slot_NM][:, None].astype(jnp.float32)
    dx_JSW, dweight_JN1M, dgate_EDF, dup_EDF, ddown_EFD = shapes.call(
        expert_ffn_block.backward,
        inputs=[to_words(x_TD), to_words(dy_TD)],
        vectors=[weight_N1M],
        weights=weights,
        outputs=[
            (shapes.rows_spec(words), shapes.rows_shape(words)),
            (shapes.vector_spec(parts), shapes.vector_shape(parts)),
            *((shapes.weight_spec(weight), jax.ShapeDtypeStruct(weight.shape, jnp.float32)) for weight in weights),
        ],
        products=9 + 2,
        choices=experts_TK.shape[1],
    )
    dx_TD = _combined(dx_JSW, blocks, jnp.ones_like(weights_TK), width, dtype, interpret)
    place_TK = blocks.place_S.reshape(weights_TK.shape)
    dweights_TK = jnp.where(place_TK >= 0, jnp.sum(dweight_JN1M, axis=0).reshape(-1)[jnp.maximum(place_TK, 0)], 0)
    used_E11 = jnp.zeros(gate_EDF.shape[0], bool).at[experts_TK.reshape(-1)].set(True, mode='drop')[:, None, None]
    # No block has come by where nobody chose an expert: what lies there was never written.
    dgate_EDF, dup_EDF = (jnp.where(used_E11, d, 0)[:, :, :ffn_width] for d in (dgate_EDF, dup_EDF))
    ddown_EFD = jnp.where(used_E11, ddown_EFD, 0)[:, :ffn_width]
    gradients = (dweights_TK, dgate_EDF, dup_EDF, ddown_EFD)
    return dx_TD, *(gradient.astype(like.dtype) for gradient, like in zip(gradients, (weights_TK, *given), strict=True))


def _prepared(x_TD, experts_TK, gate_EDF, up_EDF, down_EFD, rows):
    experts, width, ffn_width = gate_EDF.shape
    check_rows(rows)
    parts = parts_of(rows, width, ffn_width, x_TD.dtype)
    room = parts * _part_width(ffn_width, parts) - ffn_width
    gate_EDF, up_EDF = (jnp.pad(weight, ((0, 0), (0, 0), (0, room))) for weight in (gate_EDF, up_EDF))
    down_EFD = jnp.pad(down_EFD, ((0, 0), (0, room), (0, 0)))
    return cut(route(experts_TK, experts), rows), parts, gate_EDF, up_EDF, down_EFD


def _combined(rows_JSW, blocks: Blocks, weights_TK, width, dtype, interpret):
    """The weighted sum of a token's rows, over choices and parts."""
    parts, slots, words = rows_JSW.shape
    place_TK = blocks.place_S.reshape(weights_TK.shape)
    place_TJK = jnp.where(place_TK[:, None] >= 0, place_TK[:, None] + slots * jnp.arange(parts)[:, None], -1)
    weights_TJK = jnp.broadcast_to(weights_TK[:, None], place_TJK.shape)
    tokens = weights_TK.shape[0]
    return gather_sum(
        rows_JSW.reshape(-1, words),
        width,
        place_TJK.reshape(tokens, -1),
        weights_TJK.reshape(tokens, -1),
        dtype,
        interpret,
    )


class _Shapes:
    """What both kernels have in common: a grid of (part of the width, block), and where their arrays lie on it."""

    def __init__(
        self, blocks: Blocks, parts: int, width: int, ffn_width: int, dtype: jnp.dtype, interpret: bool
    ) -> None:
        self.blocks, self.parts, self.width, self.ffn_width = blocks, parts, width, ffn_width
        self.dtype, self.interpret = dtype, interpret
        self.count, self.rows = blocks.slot_NM.shape

    def rows_spec(self, words: int) -> pl.BlockSpec:
        return pl.BlockSpec((1, self.rows, words), lambda j, n, *_: (j, n, 0))

    def rows_shape(self, words: int) -> jax.ShapeDtypeStruct:
        dtype = jnp.float32 if self.dtype == jnp.float32 else jnp.uint32
        return jax.ShapeDtypeStruct((self.parts, self.count * self.rows, words), dtype)

    def vector_spec(self, parts: int = 0) -> pl.BlockSpec:
        if not parts:
            return pl.BlockSpec((1, 1, self.rows), lambda j, n, *_: (n, 0, 0))
        return pl.BlockSpec((1, 1, 1, self.rows), lambda j, n, *_: (j, n, 0, 0))

    def vector_shape(self, parts: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((parts, self.count, 1, self.rows), jnp.float32)

    def weight_spec(self, weight: jax.Array) -> pl.BlockSpec:
        """The block's expert, a part of its width."""
        part = self.ffn_width // self.parts
        if weight.shape[2] == self.width and weight.shape[1] == self.ffn_width:
            return pl.BlockSpec((1, part, self.width), lambda j, n, expert_N, *_: (expert_N[n], j, 0))
        return pl.BlockSpec((1, self.width, part), lambda j, n, expert_N, *_: (expert_N[n], 0, j))

    def call(self, kernel, inputs, vectors, weights, outputs, products, choices):
        blocks = self.blocks
        token_N1M = blocks.slot_NM[:, None] // choices
        specs, shapes = zip(*outputs, strict=True)
        flops = 2 * blocks.place_S.size * self.width * self.ffn_width * products
        moved_bytes = sum(array.size * array.dtype.itemsize for array in (*inputs, *weights))
        return pl.pallas_call(
            functools.partial(kernel, self.width),
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=2,
                # As many blocks as there are: the arrays are for the worst case.
                grid=(self.parts, blocks.used),
                in_specs=[
                    *moved.index_specs(self.rows, 1, self.count),
                    *(self.vector_spec() for _ in vectors),
                    *(self.weight_spec(weight) for weight in weights),
                    *(pl.BlockSpec(memory_space=pl.ANY) for _ in inputs),
                ],
                out_specs=specs,
                scratch_shapes=moved.scratch(self.rows, inputs[0].shape[1], inputs[0].dtype, len(inputs)),
            ),
            out_shape=shapes,
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=('arbitrary', 'arbitrary'), vmem_limit_bytes=VMEM_BYTES + 8 * 2**20
            ),
            cost_estimate=pl.CostEstimate(
                flops=flops, bytes_accessed=moved_bytes, transcendentals=blocks.place_S.size * self.ffn_width
            ),
            interpret=self.interpret,
            name=f'expert_ffn_{kernel.__name__}',
        )(blocks.expert_N, blocks.count_N, token_N1M, token_N1M, *vectors, *weights, *inputs)
