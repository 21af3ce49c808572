"""The FLOPs of a program's products, counted from what jax traced: loops as often as they turn.

XLA's own cost analysis counts a loop's body once and a kernel not at all. Here every product counts 2 FLOPs a multiply-add
(`smelt_jax.budget.accounting` counts the same way), a scan's as often as it turns, a kernel's as it says of itself, or grid
times body. What the compiler then merges or drops is not known yet.

Two loops turn as often as the data say. They are counted under an assumption (`Spread`):

- pairs of attention blocks: all of them, as with one document a row;
- blocks of the experts: every device gets as many choices as it makes, and half of each expert's last block is unused.

So do kernels with such grids, whose own estimates are of all that there is room for. Of an attention kernel without an
estimate those pairs of blocks count that lie on or under the diagonal; the last axis of its grid are blocks.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from jax.extend import core

AGAIN = 'rematted_computation'  # in the names of what a backward pass computes again
PARTS = ('attention', 'experts')

_INDEX = ('add', 'select_n', 'convert_element_type', 'broadcast_in_dim', 'reshape', 'squeeze', 'clamp', 'max', 'min')


@dataclasses.dataclass(frozen=True)
class Work:
    """FLOPs of products, on all devices together.

    Attributes:
      by_part: `attention`, `experts` (router included), and `head`: all else.
      again: of all of them, those computed a second time in the backward pass.
      unknown: loops and kernels that hold products, but do not say how often they turn: counted once.
    """

    by_part: dict[str, float]
    again: float
    unknown: int

    @property
    def total(self) -> float:
        """Of all parts."""
        return sum(self.by_part.values())


@dataclasses.dataclass(frozen=True)
class Spread:
    """The assumption above.

    Attributes:
      own_experts: of a device.
      busy: share of the choices a device has room for that it gets.
    """

    own_experts: int
    busy: float

    def turns(self, scopes: str, room: int) -> float:
        """Of a loop within these scopes that has room for so many."""
        if 'experts' not in scopes:
            return room
        full = max(room - self.own_experts, 0) * self.busy
        return full + min(self.own_experts, full) / 2

    def share(self, scopes: str) -> float:
        """Of the work that a kernel whose grid the data cut has room for."""
        return self.busy if 'experts' in scopes else 1.0

    def under_diagonal(self, scopes: str, blocks: int) -> float:
        """Of the pairs of blocks of attention, when all of a grid's are not: those in which a query sees a key."""
        return (blocks + 1) / (2 * blocks) if 'attention' in scopes else 1.0


def count(jaxpr: core.Jaxpr, spread: Spread) -> Work:
    """Counts a traced function's products, of all devices together."""
    found: dict[tuple[str, bool], float] = collections.defaultdict(float)
    unknown = 0
    for scopes, flops, known in _products(jaxpr, '', 1.0, spread):
        part = next((part for part in PARTS if part in scopes), 'head')
        found[part, AGAIN in scopes] += flops
        unknown += not known
    by_part = {part: found[part, False] + found[part, True] for part in (*PARTS, 'head')}
    return Work(by_part, sum(found[part, True] for part in by_part), unknown)


def _products(jaxpr: core.Jaxpr, scopes: str, times: float, spread: Spread) -> Iterator[tuple[str, float, bool]]:
    """(scopes, FLOPs, whether the turns of its loops are known) of every product."""
    for eqn in jaxpr.eqns:
        name, here = eqn.primitive.name, f'{scopes}/{eqn.source_info.name_stack}'
        if name in ('dot_general', 'ragged_dot', 'ragged_dot_general'):
            yield here, times * _product(eqn), True
        elif name == 'pallas_call':
            yield here, *_kernel(eqn, here, times, spread)
        elif name == 'scan':
            yield from _products(eqn.params['jaxpr'].jaxpr, here, times * eqn.params['length'], spread)
        elif name == 'cond':
            branches = [list(_products(branch.jaxpr, here, times, spread)) for branch in eqn.params['branches']]
            yield from max(branches, key=lambda branch: sum(flops for _, flops, _ in branch))
        elif name == 'while':
            body = eqn.params['body_jaxpr'].jaxpr
            room = _room(body, eqn.params['body_nconsts'])
            inner = times * (spread.turns(here, room) if room else 1.0)
            for where, flops, known in _products(body, here, inner, spread):
                yield where, flops, known and bool(room)
        else:
            devices = eqn.params['mesh'].size if name == 'shard_map' else 1
            for inside in core.jaxprs_in_params(eqn.params):
                yield from _products(inside, here, times * devices, spread)


def _product(eqn: core.JaxprEqn) -> float:
    """2 · result · contracted. Of a ragged product every row meets one group's matrix."""
    left, right, result = _shape(eqn.invars[0]), _shape(eqn.invars[1]), _shape(eqn.outvars[0])
    if eqn.primitive.name == 'dot_general':
        (contracted, _), _ = eqn.params['dimension_numbers']
        return 2.0 * math.prod(result) * math.prod(left[axis] for axis in contracted)
    numbers = eqn.params.get('ragged_dot_dimension_numbers')
    (contracted, _), _ = numbers.dot_dimension_numbers if numbers else (((1,), (1,)), ((), ()))
    if numbers and set(numbers.lhs_ragged_dimensions) & set(contracted):  # the gradient of the matrices
        return 2.0 * math.prod(left) * right[-1]
    return 2.0 * math.prod(result) * math.prod(left[axis] for axis in contracted)


def _kernel(eqn: core.JaxprEqn, scopes: str, times: float, spread: Spread) -> tuple[float, bool]:
    """FLOPs of a Pallas kernel: by its own estimate if it gives one, which of a grid that the data cut is the most."""
    grid = eqn.params['grid_mapping'].grid
    fixed = [size for size in grid if isinstance(size, int)]
    estimate = eqn.params.get('cost_estimate')
    if estimate is not None:
        return times * estimate.flops * (1.0 if len(fixed) == len(grid) else spread.share(scopes)), True
    inner = getattr(eqn.params['jaxpr'], 'jaxpr', eqn.params['jaxpr'])
    body = sum(flops for _, flops, _ in _products(inner, '', 1.0, spread))
    turns = math.prod(fixed) * (spread.under_diagonal(scopes, fixed[-1]) if fixed else 1.0)
    return times * turns * body, len(fixed) == len(grid)


def _room(body: core.Jaxpr, constants: int) -> int:
    """How often a loop can turn: the entries of the shortest list that it reads at its counter. 0 if there is none."""
    carried = dict(zip(body.invars[constants:], body.outvars, strict=True))
    at: set[Any] = {
        before
        for before, after in carried.items()
        for eqn in body.eqns
        if after in eqn.outvars and eqn.primitive.name == 'add' and before in eqn.invars and _shape(before) == ()
    }
    rooms = []
    for eqn in body.eqns:
        operands = [var for var in eqn.invars if not isinstance(var, core.Literal)]
        if eqn.primitive.name in ('dynamic_slice', 'gather') and at & set(operands[1:]):
            shape = _shape(operands[0])
            if len(shape) == 1 and shape[0] > 1 and operands[0] not in at:
                rooms.append(shape[0])
        elif eqn.primitive.name in _INDEX and at & set(operands) and math.prod(_shape(eqn.outvars[0])) == 1:
            at |= set(eqn.outvars)
    return min(rooms, default=0)


def _shape(var: Any) -> tuple[int, ...]:
    return var.aval.shape
