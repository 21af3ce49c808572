"""The largest arrays that a compiled program makes in a device's memory, by the name of what makes them: from its text."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator

_HEAD = re.compile(r'^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{')
_MADE = re.compile(r'^ *(ROOT )?%?([\w.\-]+) = (.*)')
_ARRAY = re.compile(r'\b([a-z]\w*)\[([\d,]*)\](?:\{([\d,]*)(?::([^{}]*))?\})?')
_BELOW = re.compile(r'(?:body|condition|true_computation|false_computation)=%?([\w.\-]+)')
_BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
_CALLED = re.compile(r'(?:to_apply|calls)=%?([\w.\-]+)')
_NAMED = re.compile(r'op_name="([^"]*)"')
_TILE = re.compile(r'T\(([\d,]+)\)')

# What makes no array of its own: it is, or will be, another instruction's.
_NOTHING = {
    'parameter', 'tuple', 'get-tuple-element', 'bitcast', 'constant', 'while', 'conditional', 'call', 'opt-barrier',
    'after-all', 'add-dependency', 'async-update',
}  # fmt: skip
_SAME = {'get-tuple-element', 'bitcast', 'copy', 'copy-done', 'opt-barrier'}  # of its operand
_NOISE = {'shard_map', 'while', 'body', 'eval_jaxpr', 'checkpoint', 'closed_call', 'cond', 'branch_1_fun', 'pjit'}
_BITS = {'pred': 8, 'token': 0, 'bf16': 16, 'c64': 64, 'c128': 128}


@dataclasses.dataclass(frozen=True)
class Temporary:
    """Arrays of one shape that a program makes.

    Attributes:
      shape: with its dtype, `f32[1024,512]`.
      bytes: of one of them as it lies in memory, padding to the layout's tiles included.
      makers: instructions that make one; many of them may take turns in the same place.
      name: of one of them: pass, scopes and operation.
    """

    shape: str
    bytes: float
    makers: int
    name: str


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    types: str
    opcode: str
    rest: str
    root: bool


def largest(text: str, most: int = 10) -> list[Temporary]:
    """The `most` largest shapes of arrays that lie in a device's main memory, largest first.

    Not counted: what exists inside a fusion alone or in a chip's scratch memory, arguments, and results.

    Args:
      text: `compiled.as_text()`.
    """
    entry, computations = _computations(text)
    found: dict[str, list[tuple[float, bool, _Instruction, str]]] = collections.defaultdict(list)
    for name in _in_memory(entry, computations):
        results = _results(computations[name]) if name == entry else set()
        for made in computations[name]:
            if made.opcode in _NOTHING or made.opcode.endswith('-start') or made.name in results:
                continue
            for shape, size in _arrays(made.types):
                found[shape].append((size, '/' in _named(made), made, name))
    # The largest layout of a shape; among those of it, one that says where it is from.
    chosen = {shape: max(makers, key=lambda maker: maker[:2]) for shape, makers in found.items()}
    shapes = sorted(chosen, key=lambda shape: -chosen[shape][0])[:most]
    return [
        Temporary(shape, size, len(found[shape]), _named(made) if says else _used(made, computations[where]))
        for shape in shapes
        for size, says, made, where in [chosen[shape]]
    ]


def instructions(text: str) -> int:
    """How many instructions a program has."""
    return text.count(' = ')


def _computations(text: str) -> tuple[str, dict[str, list[_Instruction]]]:
    """The name of the entry, and the instructions of every computation."""
    found: dict[str, list[_Instruction]] = {}
    entry = name = ''
    for line in text.splitlines():
        if head := _HEAD.match(line):
            name = head[2]
            found[name] = []
            entry = name if head[1] else entry
        elif name and (made := _MADE.match(line)):
            types, rest = _type_of(made[3])
            opcode = re.match(r'[\w\-]+', rest)
            found[name].append(_Instruction(made[2], types, opcode[0] if opcode else '', rest, bool(made[1])))
    return entry, found


def _type_of(text: str) -> tuple[str, str]:
    """Splits `type opcode(…` behind the type, which is a tuple in parentheses or has no space in it."""
    if not text.startswith('('):
        types, _, rest = text.partition(' ')
        return types, rest
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == '(') - (letter == ')')
        if not depth:
            return text[: at + 1], text[at + 2 :]
    return text, ''


def _in_memory(entry: str, computations: dict[str, list[_Instruction]]) -> list[str]:
    """The computations whose arrays are buffers: the entry, and what loops, branches and calls run."""
    found, ahead = [], [entry]
    while ahead:
        name = ahead.pop()
        if name in found or name not in computations:
            continue
        found.append(name)
        for made in computations[name]:
            ahead += _BELOW.findall(made.rest)
            ahead += [branch.strip(' %') for group in _BRANCHES.findall(made.rest) for branch in group.split(',')]
            if made.opcode == 'call':
                ahead += _CALLED.findall(made.rest)
    return found


def _results(entry: list[_Instruction]) -> set[str]:
    """Instructions of the entry that make what the program gives back."""
    by_name = {made.name: made for made in entry}
    ahead = [made.name for made in entry if made.root]
    found: set[str] = set()
    while ahead:
        name = ahead.pop()
        made = by_name.get(name)
        if made is None or name in found:
            continue
        found.add(name)
        if made.opcode in _SAME or (made.root and made.opcode == 'tuple'):
            ahead += re.findall(r'%([\w.\-]+)', made.rest.partition('metadata=')[0])
    return found


def _arrays(types: str) -> Iterator[tuple[str, float]]:
    """(shape, bytes) of the arrays in a type that lie in main memory."""
    for kind, dims, order, layout in _ARRAY.findall(types):
        if 'S(' in layout:  # scratch memory, or the host's
            continue
        sizes = [int(size) for size in dims.split(',')] if dims else []
        physical = [sizes[int(axis)] for axis in reversed(order.split(','))] if order else list(sizes)
        if tile := _TILE.search(layout):
            for at, size in enumerate(reversed([int(size) for size in tile[1].split(',')]), start=1):
                if at <= len(physical):
                    physical[-at] = -(-physical[-at] // size) * size
        bits = _BITS.get(kind) or int(re.sub(r'^[a-z]+(\d+).*', r'\1', kind) if re.search(r'\d', kind) else 0)
        yield f'{kind}[{dims}]', math.prod(physical) * bits / 8


def _named(made: _Instruction) -> str:
    """Pass, scopes and operation of an instruction, short; '' if the program does not say."""
    named = _NAMED.search(made.rest)
    if not named:
        return ''
    words = []
    for word in named[1].partition(';')[0].split('/')[1:]:  # of several that were merged, the first
        if word.startswith(('transpose(', 'jvp(')):
            word = 'backward' if word.startswith('transpose(') else 'forward'
        elif word == 'rematted_computation':
            word = 'again'
        if word not in _NOISE and not word.startswith('jit('):
            words.append(word)
    return '/'.join(words) or made.name


def _used(made: _Instruction, computation: list[_Instruction]) -> str:
    """An instruction whose name says nothing: its own one, and what it is for."""
    wanted = made.name
    for later in computation[computation.index(made) + 1 :]:
        if re.search(rf'%{re.escape(wanted)}[,)]', later.rest.partition('metadata=')[0]):
            if '/' in (name := _named(later)):
                return f'{made.name} for {name}'
            if later.opcode not in (*_SAME, 'tuple'):
                break
            wanted = later.name
    return _named(made) or made.name
