"""Tables of tasks, CSV files in a folder: FOLDER/CORE.csv is the group `core`, and so is any other table that lies there.

Columns: task, file, icl_type, num_fewshot (empty: 0), random_baseline (per cent), continuation_delimiter (empty: a space); and
where there are any: question_prelimiter, cot_delimiter, joint, normalise, shot_file, by_category. Others are not read. `\\n` in
a delimiter is a newline.
"""

import csv
import difflib
import fnmatch
import io
import re
from collections.abc import Callable, Iterator, Sequence

from etils import epath

from smelt_jax.screen import Progress
from smelt_jax.storage.files import naming, reach
from smelt_jax.tasks.task import KINDS, NORMALISATIONS, Task

# As llm-foundry calls them. What it takes to judge generated code is to run it, which nothing here does.
_KIND_OF = {kind: kind for kind in KINDS} | {'generation_task_with_answers': 'generation'}
_CODE = 'code_evaluation'
_NEEDED = ('task', 'file', 'icl_type')
# Published tables have no column to say this in.
_UNSAID = {'mmlu': {'shot_file': 'mmlu_dev.jsonl', 'by_category': 'true'}}
_UNNAMED = re.compile(r'[/\\:,*?\[\]\x00-\x1f]')  # of paths, lists and patterns
_TRUTHS = {'': False, 'false': False, '0': False, 'true': True, '1': True}
ALL, MADE_GROUP, HELDOUT = 'all', 'made', 'heldout'
MADE_SHOTS = 4
_MANY = 16  # tasks that an error does not list
_LONGEST = 120  # bytes of a name: files have 255
_NUMBER = re.compile(r'[0-9]+(\.[0-9]*)?|\.[0-9]+', re.ASCII)


def tasks_of(
    names: Sequence[str], folder: epath.Path, tell: Callable[[str], None] = lambda line: Progress().print(line)
) -> list[Task]:
    """The tasks that `names` name, each once, in that order.

    Args:
      names: of tasks, of groups (a table's file name without its end, in lower case; `all` tables; `made`), of generators
        (`made:dyck`, or `dyck` if no task is called so), or patterns of those of tasks and generators (`bigbench_*`).
      folder: where tables and their files are; need not be there for generators.
      tell: hears of rows that a group or a pattern holds and that are left out: those of code, and those that hold shots of
        other tasks. Asked for by its own name, the first is an error and the second a task.

    Raises:
      ValueError: one line, for a name that nothing has, a table that cannot be read, a file that is not there.
    """
    rows = _rows(folder) if folder.exists() else {}
    if not names:
        raise ValueError(f'no task is named; there are {_known(rows)}')
    chosen: dict[str, Task] = {}
    for name in names:
        for row in _matching(name, rows, folder):
            if isinstance(row, Task):
                chosen.setdefault(row.name, row)
            elif name == row['task'] and row['icl_type'] == _CODE:
                raise ValueError(
                    f'{row["task"]} is of kind {_CODE}: its answers are judged by running them, which is not done here; '
                    f'leave it out'
                )
            elif name == row['task']:
                chosen.setdefault(name, _task(row))
            elif reason := _left_out(row, rows):
                tell(f'{row["task"]} is left out of {name}: {reason}')
            else:
                chosen.setdefault(row['task'], _task(row))
    for task in chosen.values():
        for file in {task.file, task.shot_file} - {''}:
            if not is_made(task) and not any((folder / each).exists() for each in (file, f'{file}.gz')):
                raise ValueError(f'{folder / file} of task {task.name} is not there; bring it, or leave the task out')
    return list(chosen.values())


def task_folder(text: str) -> epath.Path:
    """The folder that --task_dir=TEXT names; '' is this one. Raises ValueError if it is none."""
    folder = reach(text or '.')
    if not folder.is_dir():
        raise ValueError(f'--task_dir={text} is no folder; give the one with the tables (CSV) and files of tasks')
    return folder


def is_made(task: Task) -> bool:
    """Whether its examples are generated, not read."""
    return task.file.startswith(f'{MADE_GROUP}:')


def _matching(name: str, rows: dict[str, dict[str, str]], folder: epath.Path) -> Iterator[dict[str, str] | Task]:
    if name in rows:
        yield rows[name]
        return
    if found := [row for row in rows.values() if name.lower() in (row['group'], ALL)]:
        yield from found
        return
    made = _made()
    if name == MADE_GROUP:
        yield from made.values()
    elif f'{MADE_GROUP}:{name.removeprefix("made:")}' in made:
        yield made[f'{MADE_GROUP}:{name.removeprefix("made:")}']
    elif matched := fnmatch.filter([*rows, *made], name):
        yield from (rows[each] if each in rows else made[each] for each in matched)
    elif not folder.exists():
        raise ValueError(f'{folder} is not there, and {name!r} is no generator; give the folder of the tasks')
    else:
        raise ValueError(f'there is no task {name!r}; there are {_known(rows, name)}')


def _known(rows: dict[str, dict[str, str]], name: str = '') -> str:
    """What there is: of many tasks those that are spelled like `name`."""
    groups, tasks = list(dict.fromkeys(row['group'] for row in rows.values())), [*rows, *_made()]
    like = difflib.get_close_matches(name, tasks, n=5)
    if not rows:
        what = f'the tasks {", ".join(tasks)}; others are in the folder that --task_dir=DIR names'
    elif len(tasks) <= _MANY:
        what = f'the tasks {", ".join(tasks)}'
    else:
        what = f'{len(tasks)} tasks' + (f', as {", ".join(like)}' if like else '')
    groups += [ALL, MADE_GROUP] if rows else [MADE_GROUP]
    return f'the group{"s" * bool(rows)} {", ".join(groups)} and {what}'


def _made() -> dict[str, Task]:
    """A task of each generator."""
    from smelt_jax.data import made

    return {
        f'made:{name}': Task(
            f'made:{name}', 'language_modeling', f'made:{name}', MADE_SHOTS, made.CHANCE[name], made.DELIMITER,
            joint=made.JOINT, group=MADE_GROUP,
        )
        for name in made.MADE
    }  # fmt: skip


def _left_out(row: dict[str, str], rows: dict[str, dict[str, str]]) -> str:
    """Why a row is no task of its group, or ''."""
    if row['icl_type'] == _CODE:
        return f'{_CODE} is not supported'
    users = [other['task'] for other in rows.values() if other['shot_file'] == row['file'] != other['file']]
    return f'it holds the shots of {", ".join(users)}' if users else ''


def _rows(folder: epath.Path) -> dict[str, dict[str, str]]:
    """Task → its row, of all tables; its `group` and `where` it stands are added."""
    rows: dict[str, dict[str, str]] = {}
    with naming(folder):
        files = sorted(folder.glob('*.csv'), key=str)
    groups: dict[str, epath.Path] = {}
    for file in files:
        other = groups.setdefault(file.stem.lower(), file)
        if other != file:
            raise ValueError(f'{other} and {file} are both the group {file.stem.lower()}; rename one')
        for row in _table(file):
            name = row['task']
            if name in rows:
                raise ValueError(f'{row["where"]} and {rows[name]["where"]} are both of task {name}; rename one')
            rows[name] = row
    for row in rows.values():
        if row['group'] in rows or row['group'] in (ALL, MADE_GROUP, HELDOUT):
            what = f'the task of {rows[row["group"]]["where"]}' if row['group'] in rows else 'something else'
            raise ValueError(f'{row["where"]}: the table is called {row["group"]}, as is {what}; rename its file')
    return rows


def _table(file: epath.Path) -> Iterator[dict[str, str]]:
    with naming(file):
        raw = file.read_bytes()
    try:
        lines = csv.reader(io.StringIO(raw.decode('utf-8-sig')), strict=True)
        head = [name.strip() for name in next(lines, [])]
        if missing := [name for name in _NEEDED if name not in head]:
            raise ValueError(f'{file} has no column {missing[0]}; a table of tasks has {", ".join(_NEEDED)} and others')
        if twice := [name for name in head if name and head.count(name) > 1]:
            raise ValueError(f'{file} has two columns {twice[0]!r}; rename one')
        for values in lines:
            where = f'{file}, line {lines.line_num}'
            if not any(value.strip() for value in values):
                continue
            if len(values) != len(head):
                raise ValueError(f'{where}: has {len(values)} values for {len(head)} columns; mend it')
            row = dict(zip(head, values, strict=True))
            row |= {name: row[name].strip() for name in _NEEDED} | {'group': file.stem.lower(), 'where': where}
            for name in _NEEDED:
                if not row[name]:
                    raise ValueError(f'{where}: {name} is empty; say it, or remove the line')
            if row['task'] in (ALL, MADE_GROUP, HELDOUT) or _UNNAMED.search(row['task']):
                raise ValueError(
                    f'{where}: a task cannot be called {row["task"]!r}, which means something else; rename it'
                )
            if len(row['task'].encode()) > _LONGEST:
                raise ValueError(
                    f'{where}: task {row["task"][:20]}… has a name of {len(row["task"].encode())} bytes; files are called '
                    f'by it: {_LONGEST} at most'
                )
            unsaid = {'shot_file': '', 'by_category': ''} | _UNSAID.get(row['task'], {})
            row |= {name: row.get(name, '').strip() or value for name, value in unsaid.items()}
            if row['icl_type'] != _CODE:
                _task(row)
            yield row
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f'{file} is no CSV file: {error}; mend it, or take it away') from None


def _task(row: dict[str, str]) -> Task:
    """Of a row. Raises ValueError, with the place and the column, for what has no meaning."""
    where, said = row['where'], {name: value.strip() for name, value in row.items()}
    kind, shots = said['icl_type'], said.get('num_fewshot') or '0'
    normalise, by_category = said.get('normalise') or 'token', said['by_category'].lower()
    for what, value, known in (
        ('icl_type', kind, _KIND_OF),
        ('normalise', normalise, NORMALISATIONS),
        ('by_category', by_category, _TRUTHS),
    ):
        if value not in known:
            raise ValueError(f'{where}: {what} is {value!r}; it is one of {", ".join(filter(None, known))}')
    if not (shots.isascii() and shots.isdecimal() and len(shots) < 10):
        raise ValueError(f'{where}: num_fewshot is {shots!r:.40}; it is a whole number, 0 or more')
    if said['file'].startswith(f'{MADE_GROUP}:'):
        raise ValueError(f'{where}: file is {said["file"]}; what is made is asked for by that name, and is in no table')
    return Task(
        name=said['task'],
        kind=_KIND_OF[kind],
        file=said['file'],
        shots=int(shots),
        chance=_chance(said, _KIND_OF[kind]),
        delimiter=_text(row.get('continuation_delimiter', '')) or ' ',
        question=_text(row.get('question_prelimiter', '')),
        joint=_text(row.get('joint', '')) or '\n',
        reasoning=_text(row.get('cot_delimiter', '')),
        normalise=normalise,
        by_category=_TRUTHS[by_category],
        shot_file=said['shot_file'],
        group=row['group'],
    )


def _chance(said: dict[str, str], kind: str) -> float:
    text = said.get('random_baseline') or said.get('chance_from_file')
    if not text and kind in ('multiple_choice', 'schema'):
        raise ValueError(f'{said["where"]}: random_baseline is empty; say what guessing scores, in per cent')
    if text and not _NUMBER.fullmatch(text):
        raise ValueError(f'{said["where"]}: random_baseline is {text!r}; it is a number, in per cent, as 40.3')
    chance = round(float(text or 0) / 100, 12)  # 40.3 is 0.403
    if not 0 <= chance < 1:
        raise ValueError(f'{said["where"]}: random_baseline is {text}; it is per cent, from 0 to below 100')
    return chance


def _text(cell: str) -> str:
    return cell.replace('\\n', '\n')
