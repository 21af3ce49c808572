"""What the command line says of columns: arithmetic that makes one, and conditions that choose rows."""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from smelt_jax.law.reading import Frame

ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
CONDITION = re.compile(r'\s*(.+?)\s*(==|!=|<=|>=|=|<|>)\s*(.*?)\s*')
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    '<': operator.lt,
    '>': operator.gt,
    '<=': operator.le,
    '>=': operator.ge,
}


def numbers(frame: Frame, expression: str) -> np.ndarray:
    """float64 [n]: a column, or arithmetic of columns as N_once + N_rec or tokens / 1e9. What is the name of a column is
    that column, signs in it or not, as by_source.Code/a.loss; of several names the longest.

    Raises ValueError, naming the expression, column, row and value, for what is no number."""
    if expression in frame.columns:
        return _numbers(frame, expression)
    try:
        text, names = _without_signs(frame, expression)
        with np.errstate(all='ignore'):
            value = _evaluate(frame, ast.parse(text, mode='eval').body, names)
    except (SyntaxError, RecursionError):
        raise ValueError(f'{expression[:60]!r} is neither a column nor arithmetic of columns') from None
    except OverflowError:
        raise ValueError(f'{expression[:60]!r} has what is no number that a computer holds; write it as 1e9') from None
    return np.broadcast_to(np.asarray(value, np.float64), len(frame))


def _without_signs(frame: Frame, expression: str) -> tuple[str, dict[str, str]]:
    """The expression with a word in the place of each column's name, and word → name."""
    names = sorted((name for name in frame.columns if name[:1].isalpha() or name[:1] == '_'), key=len, reverse=True)
    words = {name: f'__{i}' for i, name in enumerate(names)}
    any_name = rf'(?<![\w.])({"|".join(map(re.escape, names)) or "(?!)"})(?![\w.])'
    return re.sub(any_name, lambda found: words[found[1]], expression), {word: name for name, word in words.items()}


def _evaluate(frame: Frame, node: ast.expr, names: Mapping[str, str]) -> Any:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return ARITHMETIC[type(node.op)](_evaluate(frame, node.left, names), _evaluate(frame, node.right, names))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(frame, node.operand, names)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return np.float64(node.value)  # whose 1 / 0 is inf and (-8) ** 0.5 nan, which columns may not be
    if isinstance(node, ast.Name | ast.Attribute):
        return _numbers(frame, names.get(ast.unparse(node), ast.unparse(node)))
    raise ValueError(f'{_with_signs(ast.unparse(node), names)!r} is no arithmetic of columns: + - * / ** and numbers')


def _with_signs(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r'\w+', lambda word: names.get(word[0], word[0]), text)


def _numbers(frame: Frame, name: str) -> np.ndarray:
    found = np.empty(len(frame))
    for i, value in enumerate(frame.column(name)):
        try:
            if isinstance(value, bool):  # of JSON; Python takes it for 0 or 1
                raise TypeError
            found[i] = float(value)
        except (TypeError, ValueError, OverflowError):
            shown, text = ('nothing', '') if value is None else (repr(value), value)
            raise ValueError(
                f'{frame.places[i]}: {name} is {shown}, not a number; mend it, or leave the row out with '
                f'--exclude={name}=={text}'
            ) from None
    return found


def columns_of(condition: str) -> list[str]:
    """The names of columns in a condition."""
    return [match[1] for match in map(CONDITION.fullmatch, condition.split(',')) if match]


def holds(frame: Frame, condition: str) -> np.ndarray:
    """bool [n]: where COLUMN OP VALUE holds, as R>8; with commas between, where all hold.

    OP is == != < > <= >=, and = for ==. Numbers are equal to 9 digits; what is no number is compared as text, and where a
    row has nothing as an empty one: loss== holds there.
    Raises ValueError, naming the condition.
    """
    found = np.ones(len(frame), bool)
    for part in condition.split(','):
        match = CONDITION.fullmatch(part)
        if not match:
            raise ValueError(f'{part!r} is no condition; write COLUMN==VALUE, or != < > <= >=')
        name, sign, text = match.groups()
        value = _number(text)
        if sign in COMPARE:
            if value is None:
                raise ValueError(f'{part!r}: {text!r} is no number to compare with')
            found &= COMPARE[sign](numbers(frame, name), value)
        else:
            same = np.array([_same(entry, text, value) for entry in frame.column(name)], bool)
            found &= ~same if sign == '!=' else same
    return found


def _same(entry: Any, text: str, value: float | None) -> bool:
    number = _number(entry)
    if value is None or number is None:
        return ('' if entry is None else str(entry)) == text
    return abs(number - value) <= 1e-9 * abs(value)


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def select(frame: Frame, where: Iterable[str], exclude: Iterable[str]) -> Frame:
    """The rows for which all of `where` hold and none of `exclude`. Raises ValueError if none is left."""
    for condition in where:
        frame = _left(frame, holds(frame, condition), f'--where={condition}')
    for condition in exclude:
        frame = _left(frame, ~holds(frame, condition), f'--exclude={condition}')
    return frame


def _left(frame: Frame, keep: np.ndarray, flag: str) -> Frame:
    if not keep.any():
        raise ValueError(f'{flag} leaves none of {len(frame)} rows; choose another condition')
    return frame.take(keep.tolist())


def renamed(entries: Iterable[str], wanted: Iterable[str], frame: Frame) -> dict[str, str]:
    """Name of the law → expression, of entries NAME=EXPRESSION or COLUMN=NAME, whichever way fits.

    Raises ValueError for an entry in which neither side, or either, is a name of the law."""
    names, found = list(wanted), {}
    for entry in entries:
        left, equals, right = (part.strip() for part in entry.partition('='))
        if not equals or not right:
            raise ValueError(f'--columns={entry}: write NAME=COLUMN, where the law has {", ".join(names)}')
        forth, back = left in names, right in names and left in frame.columns
        if forth and back and right in frame.columns and left != right:
            raise ValueError(f'--columns={entry}: both {left} and {right} are names of law and table; rename the table')
        if forth and (right in frame.columns or not back):
            name, expression = left, right
        elif back:
            name, expression = right, left
        else:
            raise ValueError(f'--columns={entry}: neither side is a name of the law, which has {", ".join(names)}')
        if name in found:
            raise ValueError(f'--columns={entry}: {name} is given twice')
        found[name] = expression
    return found
