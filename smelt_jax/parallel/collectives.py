"""What a compiled program sends between devices: read from its text, loops counted as often as they turn."""

import collections
import itertools
import math
import re

import numpy as np
from jax.sharding import Mesh

from smelt_jax.parallel.mesh import AXES

KINDS = ('all-gather', 'all-reduce', 'reduce-scatter', 'ragged-all-to-all', 'all-to-all', 'collective-permute')
_BYTES = {'pred': 1, 's8': 1, 'u8': 1, 'bf16': 2, 'f16': 2, 's32': 4, 'u32': 4, 'f32': 4, 's64': 8, 'f64': 8}
_HEAD = re.compile(r'^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{')
_MADE = re.compile(r'^ *(?:ROOT )?%?([\w.\-]+) = (\S+) ')
_OPERATION = re.compile(rf'= (.*?) ({"|".join(KINDS)})(-start)?\(%?([\w.\-]*)')
_CALLED = re.compile(r'(?:body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)')
_BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
_CONDITION = re.compile(r'condition=%?([\w.\-]+)')
_CONSTANT = re.compile(r'%([\w.\-]+) = s32\[\]\S* constant\((\d+)\)')
_COMPARED = re.compile(r'ROOT .* compare\(.*?%([\w.\-]+), .*?%([\w.\-]+)\), direction=LT')
_CHANNEL = re.compile(r'channel_id=(\d+)')
_CHAIN = re.compile(r'chain_id="(\d+)"')
_TURNS = re.compile(r'known_trip_count\W+n\W+(\d+)')

_Key = tuple[str, tuple[str, ...]]
Sent = dict[_Key, float]


def collective_bytes(text: str, mesh: Mesh) -> Sent:
    """(kind, axes of the mesh) → bytes that one device receives when the program runs once.

    Of n devices, an all-gather brings (n − 1)/n of its result, a reduce-scatter as much of its operand, an all-reduce twice
    that of its operand (as rings do it), a collective-permute all of it; a ragged-all-to-all at most (n − 1)/n of its operand,
    which is counted here.

    Args:
      text: `compiled.as_text()` of a program over `mesh`.

    Raises:
      ValueError: a collective is in a loop whose number of turns the program does not say, or over devices that are no axes.
    """
    groups = _groups_of(mesh)
    own: dict[str, list[tuple[str, _Key, float]]] = {}  # computation → channel, kind and axes, bytes of its collectives
    inner: dict[
        str, list[tuple[str, str, str]]
    ] = {}  # computation → those it calls: name, turns if they are said, condition
    limits: dict[str, dict[str, float]] = {}  # computation → its whole constants, and ROOT: what it compares with
    types: dict[str, str] = {}  # instruction → what it gives
    name = entry = ''
    for line in text.splitlines():
        if head := _HEAD.match(line):
            name = head[1]
            own[name], inner[name], limits[name] = [], [], {}
            entry = name if line.startswith('ENTRY') else entry
        elif name:
            if made := _MADE.match(line):
                types[made[1]] = made[2]
            if operation := _OPERATION.search(line):
                axes = _axes(line, mesh, groups)
                # A TPU's reduce-scatter is written as an all-reduce of which each device takes a slice.
                kind = 'reduce-scatter' if name.startswith('all-reduce-scatter') else operation[2]
                devices = math.prod(mesh.shape[axis] for axis in axes)
                channel = _CHANNEL.search(line)
                # Channel 1 is that of all which have none of their own.
                number = channel[1] if channel and channel[1] != '1' else f'{name} {len(own[name])}'
                number = f'chain {chain[1]}' if (chain := _CHAIN.search(line)) else number
                result = _brought(operation[1], operation[2]) if operation[3] else operation[1]
                size = _received(operation[2], result, types.get(operation[4], ''), devices)
                own[name].append((number, (kind, axes), size / 2 if kind != operation[2] else size))
            if constant := _CONSTANT.search(line):
                limits[name][constant[1]] = float(constant[2])
            if compared := _COMPARED.search(line):
                limits[name]['ROOT'] = next((limits[name][n] for n in compared.groups() if n in limits[name]), math.nan)
            called = _CALLED.findall(line)
            called += [branch.strip(' %') for group in _BRANCHES.findall(line) for branch in group.split(',')]
            turns, condition = _TURNS.search(line), _CONDITION.search(line)
            said = turns[1] if turns else '' if ' while(' in line else '1'
            inner[name] += [(other, said, condition[1] if condition else '') for other in called]
    constant_of = {condition: values.get('ROOT', math.nan) for condition, values in limits.items()}
    turned = {
        caller: [
            (other, float(said) if said else constant_of.get(condition, math.nan)) for other, said, condition in calls
        ]
        for caller, calls in inner.items()
    }
    found: Sent = collections.defaultdict(float)
    # A collective that runs beside other work has parts in several places, all of one channel: it counts where it starts.
    # A TPU's parts may be in a loop that comes between, also one of unknown turns: they are of one chain.
    for number, sizes in _by_channel(entry, 1.0, own, turned).items():
        known = [(key, size) for key, size in sizes if not math.isnan(size)]
        if not known:
            raise ValueError(f'{sizes[0][0]} is in a loop whose number of turns is not known')
        key, size = (min if number.startswith('chain') else max)(known, key=lambda part: part[1])
        found[key] += size
    return {key: size for key, size in found.items() if size}


def _by_channel(name: str, times: float, own: dict, inner: dict) -> dict[str, list[tuple[_Key, float]]]:
    """Channel → where it is used below a computation that runs so many times: what, and bytes."""
    found: dict[str, list[tuple[_Key, float]]] = collections.defaultdict(list)
    for channel, key, size in own.get(name, ()):
        found[channel].append((key, times * size))
    calls: dict[str, float] = collections.defaultdict(float)
    for other, turns in inner.get(name, ()):
        calls[other] += turns
    for other, turns in calls.items():
        for channel, sizes in _by_channel(other, times * turns, own, inner).items():
            found[channel] += sizes
    return found


def _received(kind: str, result: str, operand: str, devices: int) -> float:
    if kind == 'collective-permute':
        return max(_sizes(result))
    size = sum(_sizes(result))
    if kind == 'ragged-all-to-all':  # the smaller side of the two: the other may have room for the worst case
        size = min(_sizes(result)[:2] + _sizes(operand))
    if kind == 'reduce-scatter':
        size *= devices
    return float(size * (devices - 1) / devices * (2 if kind == 'all-reduce' else 1))


def _brought(types: str, kind: str) -> str:
    """Of the type of what starts a collective, the part that it brings: operands stand before it, in a tuple if there are
    several. An all-reduce has none, or both in a tuple."""
    if not types.startswith('((' if kind == 'all-reduce' else '('):
        return types
    depth, ends = 0, []
    for at, letter in enumerate(types[:-1]):
        depth += (letter in '([{') - (letter in ')]}')
        if letter == ',' and depth == 1:
            ends.append(at)
    return types[ends[0] + 1 : ends[1] if len(ends) > 1 else -1] if ends else types


def _sizes(types: str) -> list[float]:
    """Bytes of the arrays in the text of a type."""
    found = re.findall(r'\b([a-z]+\d*)\[([\d,]*)\]', types)
    return [_BYTES[kind] * math.prod(_numbers(dims)) if dims else float(_BYTES[kind]) for kind, dims in found]


def _groups_of(mesh: Mesh) -> dict[frozenset[frozenset[int]], tuple[str, ...]]:
    """Sets of devices that exchange → the axes along which they lie. The ids are places in the mesh."""
    ids = np.arange(mesh.size).reshape(mesh.devices.shape)
    found = {}
    for count in range(1, len(AXES) + 1):
        for axes in itertools.combinations(AXES, count):
            if all(mesh.shape[axis] > 1 for axis in axes):
                last = [AXES.index(axis) for axis in axes]
                rest = [i for i in range(len(AXES)) if i not in last]
                members = ids.transpose(rest + last).reshape(-1, math.prod(mesh.shape[axis] for axis in axes))
                found[frozenset(frozenset(map(int, row)) for row in members)] = axes
    return found


def _axes(line: str, mesh: Mesh, groups: dict[frozenset[frozenset[int]], tuple[str, ...]]) -> tuple[str, ...]:
    """The axes over which a collective goes, whatever notation its groups of devices have."""
    if pairs := re.search(r'source_target_pairs=\{(.*?)\}\}', line):
        return _axes_of_pairs(np.array([pair.split(',') for pair in re.findall(r'(\d+,\d+)', pairs[1])], int), mesh)
    if 'replica_groups={}' in line:
        members = np.arange(mesh.size)[None]
    elif written := re.search(r'replica_groups=\{(\{[\d,{} ]*\})\}', line):
        members = np.array([row.split(',') for row in re.findall(r'\{([\d,]+)\}', written[1])], int)
    elif iota := re.search(r'replica_groups=\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)', line):
        members = _ids(iota[2]).reshape(_numbers(iota[1]))
    elif named := re.search(r'replica_groups=mesh\[(.*?)\],?(?: device_ids=\((.*?\)?)\))? \{(.*?)\}', line):
        names, sizes = zip(*re.findall(r"'(\w+)'=(\d+)", named[1]), strict=True)
        ids = (_ids(named[2]) if named[2] else np.arange(mesh.size)).reshape([int(size) for size in sizes])
        chosen = [names.index(name) for name in re.findall(r"'(\w+)'", named[3])]
        rest = [i for i in range(len(names)) if i not in chosen]
        members = ids.transpose(rest + chosen).reshape(-1, math.prod(int(sizes[i]) for i in chosen))
    else:
        raise ValueError(f'no groups of devices in: {line.strip()[:200]}')
    key = frozenset(frozenset(map(int, row)) for row in members)
    if key not in groups:
        raise ValueError(f'devices that are no axes of the mesh exchange: {line.strip()[:200]}')
    return groups[key]


def _axes_of_pairs(pairs_N2: np.ndarray, mesh: Mesh) -> tuple[str, ...]:
    """The axes along which senders and receivers differ."""
    sender, receiver = (np.stack(np.unravel_index(ids, mesh.devices.shape)) for ids in pairs_N2.T)
    return tuple(axis for axis, differ in zip(AXES, np.any(sender != receiver, axis=1), strict=True) if differ)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(',')]


def _ids(text: str) -> np.ndarray:
    """[2,4]T(1,0): the numbers from 0 on in that shape, transposed."""
    shape, order = text.partition('T')[::2]
    dims = _numbers(shape.strip('[]'))
    ids = np.arange(math.prod(dims)).reshape(dims)
    return ids.transpose(_numbers(order.strip('()'))) if order else ids
