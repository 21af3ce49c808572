"""Examples as they lie in files, JSON Lines, plain or .gz:

    multiple_choice    {query, choices, gold}
    schema             {context_options, continuation, gold}
    language_modeling  {context, continuation}
    generation         {context, answer, aliases, chain_of_thought}, the last two if there are any

and a `category` if there is one. Other fields are not read, nor are blank lines. Texts stay as they are.
"""

import dataclasses
import gzip
import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Any

from etils import epath

from smelt_jax.storage.files import naming
from smelt_jax.tasks.example import Example
from smelt_jax.tasks.tables import is_made
from smelt_jax.tasks.task import Task

MADE_EXAMPLES = 256


def examples(task: Task, folder: epath.Path, seed: int = 0) -> list[Example]:
    """Those of a task, in the file's order. `seed` is of those that are made, and held out from training whatever it is.

    Raises ValueError, one line, with the file and the line, for what is no example.
    """
    if is_made(task):
        from smelt_jax.data import made

        pairs = made.pairs(task.file.partition(':')[2], MADE_EXAMPLES, seed, heldout=True)
        return [Example((context,), (continuation,)) for context, continuation in pairs]
    return _read(task, folder / task.file)


def shot_pool(task: Task, folder: epath.Path) -> list[Example] | None:
    """What shots are drawn from, if the task has a file for that; None if they come from the task's own examples."""
    return _read(task, folder / task.shot_file) if task.shot_file else None


def fingerprint(task: Task, examples: Sequence[Example], pool: Sequence[Example] | None = None) -> str:
    """12 hex digits of all that decides the scores: every text, how they are laid out, what is compared with what."""
    said = dataclasses.asdict(task)
    del said['file'], said['group']  # where it lies
    content = json.dumps([said, examples, pool], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _read(task: Task, file: epath.Path) -> list[Example]:
    packed = file.parent / f'{file.name}.gz'
    if not file.exists() and packed.exists():
        file = packed
    with naming(file):
        raw = file.read_bytes()
    try:
        text = (gzip.decompress(raw) if file.name.endswith('.gz') else raw).decode('utf-8-sig')
    except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f'{file} is no text: {error}; bring it anew') from None
    found = []
    for number, line in enumerate(text.split('\n'), start=1):
        if line.strip():
            try:
                found.append(_example(task.kind, json.loads(line)))
            except ValueError as error:
                raise ValueError(f'{file}, line {number}: is no JSON, {error}; mend it, or remove the line') from None
            except RecursionError:
                raise ValueError(f'{file}, line {number}: is nested too deep; mend it, or remove the line') from None
            except _Wrong as wrong:
                raise ValueError(f'{file}, line {number}: {wrong}; mend it, or remove the line') from None
    if not found:
        raise ValueError(f'{file} has no examples; bring it anew, or leave task {task.name} out')
    return found


class _Wrong(Exception):
    """What is wrong with a row."""


def _example(kind: str, row: Any) -> Example:
    if not isinstance(row, dict):
        raise _Wrong('is no JSON object')
    category = _string(row, 'category') if 'category' in row else ''
    if kind == 'multiple_choice':
        choices = _strings(row, 'choices', least=2)
        gold = _gold(row, len(choices))
        if choices[gold] in choices[:gold]:
            raise _Wrong(f'choice {choices.index(choices[gold])} is the text of the gold one, {gold}')
        return Example((_string(row, 'query'),), choices, gold, category=category)
    if kind == 'schema':
        contexts = _strings(row, 'context_options', least=2)
        return Example(contexts, (_filled(row, 'continuation'),), _gold(row, len(contexts)), category=category)
    if kind == 'language_modeling':
        return Example((_string(row, 'context'),), (_filled(row, 'continuation'),), category=category)
    if kind == 'generation':
        answer = _filled(row, 'answer')
        aliases = _strings(row, 'aliases', least=0) if 'aliases' in row else ()
        reasoning = _string(row, 'chain_of_thought') if 'chain_of_thought' in row else ''
        answers = tuple(dict.fromkeys((answer, *aliases)))
        return Example((_string(row, 'context'),), (answer,), 0, answers, reasoning, category)
    raise ValueError(f'{kind=} is none of those that are read')


def _field(row: dict[str, Any], name: str) -> Any:
    if name not in row:
        raise _Wrong(f'has no {name}')
    return row[name]


def _string(row: dict[str, Any], name: str) -> str:
    return _text(_field(row, name), name)


def _filled(row: dict[str, Any], name: str) -> str:
    text = _string(row, name)
    if not text.strip():
        raise _Wrong(f'{name} is empty')
    return text


def _strings(row: dict[str, Any], name: str, least: int) -> tuple[str, ...]:
    """Texts that are not empty. One of white space alone may be a choice, in a question about white space."""
    values = _field(row, name)
    if not isinstance(values, list):
        raise _Wrong(f'{name} is {values!r:.60}, not a list')
    if len(values) < least:
        raise _Wrong(f'{name} has {len(values)}, not {least} or more')
    texts = tuple(_text(value, f'{name}[{i}]') for i, value in enumerate(values))
    for i, text in enumerate(texts):
        if not text:
            raise _Wrong(f'{name}[{i}] is empty')
    return texts


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _Wrong(f'{name} is {value!r:.60}, not a text')
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Wrong(f'{name} has half a surrogate pair, which is no character') from None
    return value


def _gold(row: dict[str, Any], count: int) -> int:
    gold = _field(row, 'gold')
    if not isinstance(gold, int) or isinstance(gold, bool):
        raise _Wrong(f'gold is {gold!r:.60}, not a whole number')
    if not 0 <= gold < count:
        raise _Wrong(f'gold is {gold}, and there are candidates 0 to {count - 1}')
    return gold
