"""Rules about files: their length, their docstrings, the verbs' shape, the lock files' lines."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ('smelt_jax', 'pallas_kernels', 'experiments', 'tests', 'launch')
LONGEST = 300  # about 250 is meant; past this a file has become two
LONGEST_VERB = 80
LOCK_LINE = re.compile(r'#.*|-r \w+\.txt|[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+')


def broken_files(root: Path) -> Iterator[str]:
    """One line for every file that is too long, says nothing about itself, or is a verb of another shape."""
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob('*.py')):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding='utf-8')
        tree, lines = ast.parse(text), text.count('\n')
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if lines > LONGEST:
            yield f'{name} has {lines} lines; {LONGEST} at most'
        if text.strip() and not ast.get_docstring(tree):
            yield f'{name} has no docstring'
        if path.parent == root / 'smelt_jax' / 'cli' and 'run' in functions:
            if lines > LONGEST_VERB:
                yield f'{name} has {lines} lines; a verb has {LONGEST_VERB} at most, and no logic'
            if 'define_flags' not in functions:
                yield f'{name} is a verb without define_flags()'


def broken_locks(folder: Path) -> Iterator[str]:
    """One line for every line of a lock file that is not `name==version`, and so would be another set tomorrow."""
    for path in sorted(folder.glob('*.txt')):
        for line in path.read_text().splitlines():
            if not LOCK_LINE.fullmatch(line):
                yield f'{path.name}: {line}'


def locked(name: str) -> dict[str, str]:
    """Package → version, of a lock file."""
    lines = (ROOT / 'launch' / 'lock' / name).read_text().splitlines()
    return {_canonical(line.split('==')[0]): line.split('==')[1] for line in lines if '==' in line and line[0] != '#'}


def required(argument: str) -> list[str]:
    """The package names in one list of setup.py, `install_requires` or the extra `dev`."""
    for node in ast.walk(ast.parse((ROOT / 'setup.py').read_text())):
        pairs: list[tuple[object, ast.expr]] = []
        if isinstance(node, ast.keyword):
            pairs = [(node.arg, node.value)]
        elif isinstance(node, ast.Dict):
            pairs = [(getattr(key, 'value', None), value) for key, value in zip(node.keys, node.values, strict=True)]
        for name, value in pairs:
            if name == argument:
                return [_canonical(re.split(r'[\[<>=;~! ]', line)[0]) for line in ast.literal_eval(value)]
    raise AssertionError(f'setup.py has no {argument}')


def _canonical(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


def test_files() -> None:
    assert list(broken_files(ROOT)) == []


def test_lock_files_pin_everything() -> None:
    assert list(broken_locks(ROOT / 'launch' / 'lock')) == []
    for name in ('tested', 'newest'):
        assert sorted(set(required('install_requires')) - locked(f'{name}.txt').keys()) == []
        assert sorted(set(required('dev')) - locked(f'{name}-dev.txt').keys()) == []


def test_lock_files_hold_the_two_sets() -> None:
    assert locked('tested.txt')['jax'] == '0.10.2'
    assert (0, 11) <= tuple(int(part) for part in locked('newest.txt')['jax'].split('.')[:2]) < (0, 13)


@pytest.mark.parametrize(
    ('name', 'text', 'complaint'),
    [
        ('smelt_jax/data/rows.py', '"""Rows."""\n' + 'x = 1\n' * 300, 'has 301 lines; 300 at most'),
        ('smelt_jax/data/rows.py', 'x = 1\n', 'has no docstring'),
        (
            'smelt_jax/cli/pack.py',
            '"""Packs."""\ndef define_flags(): ...\ndef run(): ...\n' + '\n' * 78,
            'has 81 lines',
        ),
        ('smelt_jax/cli/pack.py', '"""Packs."""\ndef run(): ...\n', 'is a verb without define_flags()'),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (line,) = broken_files(tmp_path)
    assert line.startswith(name)
    assert complaint in line


@pytest.mark.parametrize('line', ['jax', 'jax>=0.10', 'jax @ file:///home/me/jax', '--index-url https://here', '-e .'])
def test_a_line_that_pins_nothing_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / 'some.txt').write_text(f'# made\n-r other.txt\nnumpy==2.0\n{line}\n')
    assert list(broken_locks(tmp_path)) == [f'some.txt: {line}']
