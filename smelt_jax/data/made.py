"""Made-up text whose answers are known: a pair is a context and its one right continuation.

    dyck        Close: [ < ( ) =   → > ]      closers of what is open, innermost first, as in BIG-bench's task of this name
    copy        Copy: q x q =      → q x q    the letters once more
    arithmetic  12 + 7 =           → 19       sums and differences of operands of one or two digits, never below zero
    induction   Next: k f q m = k  → f        what followed this letter before; the letters before `=` all differ

`=` ends what is given: without it nothing says whether to close a bracket or to open one more.
Letters stand apart, so that a tokenizer of words has a token for each, and copying and induction are of one kind.

Laws: a context has one right continuation, which follows from it alone. A pair is held out or trained on by a hash of its text,
whatever the seed: no line of a training document is ever a held-out pair. The same arguments give the same text.
"""

import hashlib
import string
import zlib
from collections.abc import Callable

import numpy as np

MADE = ('dyck', 'copy', 'arithmetic', 'induction')
DELIMITER, JOINT = ' ', '\n'
DOCUMENTS, DOCUMENT_PAIRS = 8192, 24
# What guessing scores, of one who knows how long the answer is and which symbols it may have: any closers (dyck), letters
# (copy), numbers of as many digits (arithmetic), letters of the context but for the last (induction). Of the 256 pairs that
# evaluation takes; of pairs as they are drawn it is more, for of the short ones there are few different ones.
CHANCE = {'dyck': 0.0666, 'copy': 6.7e-6, 'arithmetic': 0.0218, 'induction': 0.1964}

_CLOSER = {'(': ')', '[': ']', '{': '}', '<': '>'}
_OPENERS = ''.join(_CLOSER)
_LETTERS = string.ascii_lowercase
_HELDOUT = 32  # of 256 hashes


def dyck(random: np.random.Generator, left: int = 4, closed: int = 6) -> tuple[str, str]:
    """1 to `left` brackets to be closed, and 0 to `closed` that are: shapes of equal numbers are equally probable."""
    depth, matched = 1 + random.integers(left), random.integers(closed + 1)
    steps = np.repeat([1, -1], [depth + matched, matched])
    while random.permuted(steps, out=steps).cumsum().min() < 0:
        pass
    stack: list[str] = []
    shown: list[str] = []
    for step in steps:
        if step > 0:
            opener = _OPENERS[random.integers(4)]
            shown.append(opener)
            stack.append(_CLOSER[opener])
        else:
            shown.append(stack.pop())
    return f'Close: {" ".join(shown)} =', ' '.join(stack[::-1])


def copy(random: np.random.Generator, shortest: int = 3, longest: int = 10) -> tuple[str, str]:
    """`shortest` to `longest` letters, of which some may be the same."""
    text = ' '.join(_LETTERS[i] for i in random.integers(26, size=random.integers(shortest, longest + 1)))
    return f'Copy: {text} =', text


def arithmetic(random: np.random.Generator) -> tuple[str, str]:
    """Operands of one digit and of two are equally probable; of a difference the larger one comes first."""
    a, b = (int(random.integers(10) if random.integers(2) else random.integers(10, 100)) for _ in range(2))
    if random.integers(2):
        return f'{a} + {b} =', str(a + b)
    return f'{max(a, b)} - {min(a, b)} =', str(abs(a - b))


def induction(random: np.random.Generator, shortest: int = 4, longest: int = 10) -> tuple[str, str]:
    """`shortest` to `longest` different letters, then one of them again, any but the last."""
    letters = [_LETTERS[i] for i in random.permutation(26)[: random.integers(shortest, longest + 1)]]
    asked = random.integers(len(letters) - 1)
    return f'Next: {" ".join(letters)} = {letters[asked]}', letters[asked + 1]


_MAKERS: dict[str, Callable[[np.random.Generator], tuple[str, str]]] = {
    'dyck': dyck,
    'copy': copy,
    'arithmetic': arithmetic,
    'induction': induction,
}


def is_heldout(context: str, continuation: str) -> bool:
    """Whether a pair is for evaluation, one in eight; otherwise it is for training."""
    return hashlib.blake2b(f'{context}{DELIMITER}{continuation}'.encode(), digest_size=1).digest()[0] < _HELDOUT


def pairs(name: str, count: int, seed: int, heldout: bool) -> list[tuple[str, str]]:
    """`count` different (context, continuation), all held out or none. More of them begin with the same ones.

    Raises:
      ValueError: no such name, or not as many different pairs.
    """
    if name not in MADE:
        raise ValueError(f'{name!r} is no made-up text; there are {", ".join(MADE)}')
    random = np.random.default_rng([zlib.crc32(name.encode()), seed])
    found: dict[tuple[str, str], None] = {}
    tries = 1000 + 100 * count
    while len(found) < count:
        if not tries:
            raise ValueError(f'{name} has fewer than {count} different pairs that are easily found; ask for fewer')
        tries -= 1
        pair = _MAKERS[name](random)
        if is_heldout(*pair) == heldout:
            found[pair] = None
    return list(found)


def document(name: str, index: int) -> str:
    """Training text: pairs joined as a prompt joins its examples. Each index has its own.

    Of every 4 DOCUMENT_PAIRS documents seven in eight have one pair; the others have 24, 12, 8, 6, 4, 4, 3, 3, 2, 2, 2, 2.
    Where the context is short, what is alike in it is found soon; what is learned there then serves long ones.
    """
    count = max(1, DOCUMENT_PAIRS // (1 + index % (4 * DOCUMENT_PAIRS)))
    shown = pairs(name, count, index, heldout=False)
    return JOINT.join(f'{context}{DELIMITER}{continuation}' for context, continuation in shown)


def asked(where: str) -> tuple[tuple[str, ...], int]:
    """`NAME[+NAME…][:DOCUMENTS]` → (names, documents of each). Raises ValueError."""
    names, colon, count = where.partition(':')
    unknown = [name for name in names.split('+') if name not in MADE]
    if unknown:
        raise ValueError(f'{unknown[0]!r} is no made-up text; there are {", ".join(MADE)}')
    if colon and not (count.isdecimal() and count.isascii() and int(count)):
        raise ValueError(f'{count!r} is no number of documents; write a whole one, at least 1')
    return tuple(names.split('+')), int(count) if colon else DOCUMENTS
