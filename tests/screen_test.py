"""Tables keep their numbers on a narrow terminal, and find their place in a document."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from smelt_jax.screen import Answer, give, show


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


def answer() -> Answer:
    table = Table(title='one')
    table.add_column('x', justify='right')
    table.add_row('1')
    return Answer([table], {'x': 1}, ['a line'])


def test_markdown_goes_between_the_marks_of_its_name_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / 'page.md'
    file.write_text('before\n<!-- a -->\nold\n<!-- end of a -->\nbetween\n<!-- b -->\n<!-- end of b -->\nafter\n')
    for _ in range(2):  # the second time it finds what the first wrote
        give(answer, 'smelt x', None, f'{file}#b')
        text = file.read_text()
        assert text.startswith('before\n<!-- a -->\nold\n<!-- end of a -->\nbetween\n<!-- b -->\n')
        assert text.endswith('\n<!-- end of b -->\nafter\n')
        assert text.count('smelt x') == 1
        assert '| 1 |' in text


@pytest.mark.parametrize('marks', ['', '<!-- end of c -->\n<!-- c -->\n', '<!-- cc -->\n<!-- end of cc -->\n'])
def test_marks_that_are_not_there_are_named_before_anything_is_asked(tmp_path: Path, marks: str) -> None:
    file = tmp_path / 'page.md'
    file.write_text(marks)
    with pytest.raises(ValueError, match=r'page\.md has no <!-- c --> … <!-- end of c -->; put these two lines'):
        give(lambda: pytest.fail('asked'), 'smelt x', None, f'{file}#c')
    assert file.read_text() == marks
    with pytest.raises(ValueError, match='is not there'):
        give(answer, 'smelt x', None, f'{tmp_path}/none.md#c')
