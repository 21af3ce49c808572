"""Tables on a terminal."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


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
