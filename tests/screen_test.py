"""Tables keep their numbers on a narrow terminal, and find their place in a document."""

import io
import json
import os
import subprocess
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from smelt_jax.screen import Answer, give, show
from smelt_jax.storage.files import reach, write_atomically


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
    file.write_text('<!-- c -->\n<!-- end of c -->\n' * 2)
    with pytest.raises(ValueError, match=r'page\.md has <!-- c --> 2 times; leave one'):
        give(lambda: pytest.fail('asked'), 'smelt x', None, f'{file}#c')
    with pytest.raises(ValueError, match='is not there'):
        give(answer, 'smelt x', None, f'{tmp_path}/none.md#c')
    file.write_bytes(b'\xe9')
    with pytest.raises(ValueError, match=r'page\.md is no text in UTF-8'):
        give(answer, 'smelt x', None, f'{file}#c')


@pytest.mark.parametrize(
    ('files', 'complaint'),
    [
        ({'json_file': 'folder'}, r'--json=.*folder is a folder; name a file in it'),
        ({'markdown_file': 'folder/'}, r'--markdown=.*folder/ is a folder'),
        ({'out_file': 'folder'}, r'--out=.*folder is a folder'),
        ({'markdown_file': 'page.md#'}, r'--markdown=.*page\.md#: write FILE\.md#NAME'),
        ({'markdown_file': '#name'}, r'--markdown=.*#name: write FILE\.md#NAME'),
        ({'json_file': 'a', 'markdown_file': 'a'}, r'--json and --markdown are both .*a; give each a file of its own'),
        ({'out_file': 'a', 'markdown_file': './a'}, r'--out and --markdown are both .*a; give each'),
        ({'out_file': 'page.md', 'markdown_file': 'page.md#a'}, r'--out and --markdown are both .*page\.md; give each'),
    ],
)
def test_places_that_cannot_be_written_are_named_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'page.md').write_text('<!-- a -->\n<!-- end of a -->\n')
    with pytest.raises(ValueError, match=complaint):
        give(lambda: pytest.fail('asked'), 'smelt x', **{'json_file': None, 'markdown_file': None, **files})
    assert (tmp_path / 'page.md').read_text() == '<!-- a -->\n<!-- end of a -->\n'


def test_json_knows_no_infinity(tmp_path: Path) -> None:
    give(lambda: Answer([], {'x': [float('inf'), {'y': float('nan')}]}), 'smelt x', f'{tmp_path}/a.json', None)
    assert json.loads((tmp_path / 'a.json').read_text()) == {'x': [None, {'y': None}]}


def test_what_is_no_file_of_its_own_is_written_to_and_stays(tmp_path: Path) -> None:
    (tmp_path / 'real.json').write_text('old')
    (tmp_path / 'link.json').symlink_to('real.json')
    give(answer, 'smelt x', f'{tmp_path}/link.json', None)
    assert (tmp_path / 'link.json').is_symlink()
    assert json.loads((tmp_path / 'real.json').read_text()) == {'x': 1}
    os.mkfifo(tmp_path / 'pipe')
    reader = subprocess.Popen(['cat', str(tmp_path / 'pipe')], stdout=subprocess.PIPE, text=True)
    write_atomically(reach(tmp_path / 'pipe'), 'through')
    assert reader.communicate(timeout=60)[0] == 'through'
    assert (tmp_path / 'pipe').is_fifo()
