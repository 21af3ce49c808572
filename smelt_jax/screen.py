"""What verbs answer: tables on a terminal, and the same in files."""

import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath
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


def give(
    ask: Callable[[], Answer],
    question: str,
    json_file: str | None,
    markdown_file: str | None,
    out_file: str | None = None,
) -> None:
    """Asks, prints tables, then lines, and writes them to files if asked.

    Args:
      question: the command, which heads the Markdown.
      markdown_file: a file of its own, or `FILE.md#NAME`: what stands between `<!-- NAME -->` and `<!-- end of NAME -->` in
        a file that is there.
      out_file: what `ask` itself writes, if it does.

    Raises:
      ValueError: with the answer's trouble; or before it asks, of files that cannot be written, are the same, or have no such
        marks.
    """
    page, sign, marks = (markdown_file or '').partition('#')
    if sign and not (page and marks):
        raise ValueError(f'--markdown={markdown_file}: write FILE.md#NAME, or FILE.md for a file of its own')
    check_places({'out': out_file, 'json': json_file, 'markdown': page})
    if marks:
        place_in(_text(page), marks, '', page)
    answer = ask()
    console = Console(markup=False)
    show(console, answer.tables)
    for line in answer.lines:
        console.print(line, highlight=False, soft_wrap=True)
    if json_file:
        write_atomically(reach(json_file), json.dumps(plain(answer.data), indent=1) + '\n')
    if page:
        tables = [markdown(table) for table in answer.tables]
        lines = '\n'.join([*tables, *answer.lines])
        own = f'# {question}\n\n{lines}\n'
        text = place_in(_text(page), marks, f'    {question}\n\n{lines}', page) if marks else own
        write_atomically(reach(page), text)
    if answer.trouble:
        raise ValueError(answer.trouble)


def check_places(files: Mapping[str, str | None]) -> None:
    """Raises ValueError if a --flag=file cannot be written, or two are the same: before work starts that would be lost."""
    seen: dict[epath.Path, str] = {}
    for flag, file in files.items():
        if not file:
            continue
        path = reach(file)
        if path in seen:
            raise ValueError(f'--{seen[path]} and --{flag} are both {file}; give each a file of its own')
        seen[path] = flag
        # A bucket has no folders: what cannot be written there is found when it is written.
        if not is_local(path):
            continue
        if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise ValueError(
                f'--{flag}={file}: {path.parent} is no folder that can be written; make it, or give another'
            )
        if path.is_dir():
            raise ValueError(f'--{flag}={file} is a folder; name a file in it')


def place_in(document: str, name: str, text: str, file: str) -> str:
    """`document` with `text` between the marks of `name`. Raises ValueError, naming `file`, if they are not there."""
    begin, end = f'<!-- {name} -->', f'<!-- end of {name} -->'
    pattern = re.compile(f'{re.escape(begin)}.*?{re.escape(end)}', re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f'{file} has no {begin} … {end}; put these two lines where the table shall be')
    if document.count(begin) > 1:
        raise ValueError(f'{file} has {begin} {document.count(begin)} times; leave one')
    return pattern.sub(lambda _: f'{begin}\n\n{text}\n\n{end}', document, count=1)


def _text(file: str) -> str:
    path = reach(file)
    if not path.exists():
        raise ValueError(f'{path} is not there; without #NAME a new file is written')
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} is no text in UTF-8 ({error}); save it as such') from None
