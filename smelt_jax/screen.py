"""What verbs answer: tables on a terminal, and the same in files."""

import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from smelt_jax.storage.files import is_local, reach, write_atomically


@dataclasses.dataclass(frozen=True)
class Answer:
    """`tables` and then `lines` are printed, `data` is JSON. `trouble` is what is not as asked, '' if all is."""

    tables: list[Table]
    data: dict[str, Any]
    lines: list[str] = dataclasses.field(default_factory=list)
    trouble: str = ''


class Progress(Console):
    """What goes on, on stderr. When its reader has gone, the work goes on in silence."""

    def __init__(self) -> None:
        super().__init__(markup=False, file=sys.stderr)

    def on_broken_pipe(self) -> None:
        """Nothing is written there any more, by anybody."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def show(console: Console, tables: Sequence[Table]) -> None:
    """Prints tables, never narrower than what they hold, whatever the terminal: half a number is no number."""
    width, roomy = console.width, console.options.update(max_width=1000)
    console.width = max([width, *(console.measure(table, options=roomy).maximum for table in tables)])
    for table in tables:
        console.print(table)
    console.width = width


def markdown(table: Table) -> str:
    """A table of plain texts in Markdown, its title above."""
    rows: list[Sequence[Any]] = [[column.header for column in table.columns]]
    rows.append(['--:' if column.justify == 'right' else '---' for column in table.columns])
    rows += zip(*(column.cells for column in table.columns), strict=True)
    lines = ['| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in row) + ' |' for row in rows]
    return '\n'.join([f'**{table.title}**', '', *lines, ''])


def plain(data: Any) -> Any:
    """`data` with None for numbers that are not finite: JSON has no word for them."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def give(ask: Callable[[], Answer], question: str, json_file: str | None, markdown_file: str | None) -> None:
    """Asks, prints tables, then lines, and writes them to files if asked.

    Args:
      question: the command, which heads the Markdown.
      markdown_file: a file of its own, or `FILE.md#NAME`: what stands between `<!-- NAME -->` and `<!-- end of NAME -->` in
        a file that is there.

    Raises:
      ValueError: with the answer's trouble; or before it asks, of files that cannot be written, or have no such marks.
    """
    markdown_file, _, marks = (markdown_file or '').partition('#')
    if json_file and json_file == markdown_file:
        raise ValueError(f'--json and --markdown are both {json_file}; give each a file of its own')
    for flag, file in (('json', json_file), ('markdown', markdown_file)):
        check_place(flag, file)
    if marks:
        place_in(_text(markdown_file), marks, '', markdown_file)
    answer = ask()
    console = Console(markup=False)
    show(console, answer.tables)
    for line in answer.lines:
        console.print(line, highlight=False, soft_wrap=True)
    if json_file:
        reach(json_file).write_text(json.dumps(answer.data, indent=1) + '\n')
    if markdown_file:
        tables = [markdown(table) for table in answer.tables]
        lines = '\n'.join([*tables, *answer.lines])
        if marks:
            lines = place_in(_text(markdown_file), marks, f'    {question}\n\n{lines}', markdown_file)
            write_atomically(reach(markdown_file), lines)
        else:
            reach(markdown_file).write_text(f'# {question}\n\n{lines}\n')
    if answer.trouble:
        raise ValueError(answer.trouble)


def check_place(flag: str, file: str | None) -> None:
    """Raises ValueError if --flag=file cannot be written for want of its folder: before work starts that would be lost."""
    folder = reach(file or '.').parent
    # A bucket has no folders: what cannot be written there is found when it is written.
    if is_local(folder) and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ValueError(f'--{flag}={file}: {folder} is no folder that can be written; make it, or give another')


def place_in(document: str, name: str, text: str, file: str) -> str:
    """`document` with `text` between the marks of `name`. Raises ValueError, naming `file`, if they are not there."""
    begin, end = f'<!-- {name} -->', f'<!-- end of {name} -->'
    pattern = re.compile(f'{re.escape(begin)}.*?{re.escape(end)}', re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f'{file} has no {begin} … {end}; put these two lines where the table shall be')
    return pattern.sub(lambda _: f'{begin}\n\n{text}\n\n{end}', document, count=1)


def _text(file: str) -> str:
    path = reach(file)
    if not path.exists():
        raise ValueError(f'{path} is not there; without #NAME a new file is written')
    return path.read_text()
