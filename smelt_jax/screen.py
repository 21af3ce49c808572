"""Tables on a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def show(console: Console, tables: Sequence[Table]) -> None:
    """Prints tables, never narrower than what they hold, whatever the terminal: half a number is no number."""
    width, roomy = console.width, console.options.update(max_width=1000)
    console.width = max([width, *(console.measure(table, options=roomy).maximum for table in tables)])
    for table in tables:
        console.print(table)
    console.width = width
