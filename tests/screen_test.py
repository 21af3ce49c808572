"""Tables keep their numbers on a narrow terminal."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from smelt_jax.screen import show


@pytest.mark.parametrize('width', [20, 80, 200])
def test_no_cell_is_cut(width: int) -> None:
    table = Table(title='A title of several words')
    cells = [f'{10**i:,}' for i in range(9)]
    for cell in cells:
        table.add_column(f'a column\nfor {cell}')
    table.add_row(*cells)
    file = io.StringIO()
    show(Console(file=file, width=width), [table])
    row = next(line for line in file.getvalue().splitlines() if '│ 1 ' in line)
    assert [cell.strip() for cell in row.strip('│').split('│')] == cells
    assert '…' not in file.getvalue()
