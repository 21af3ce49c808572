"""The rule of the rooms: a file imports from rooms above it in the data's way, never below, and there are no circles.

`ALLOWED` is the rule. A room that needs another one is a change to docs/architecture.md first.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ('smelt_jax', 'pallas_kernels', 'experiments')

# Room → what it may import of ours: a room, or one module of it. Itself always. `X.config` are the settings of room X.
SETTINGS = {'data.config', 'model.config', 'train.config', 'evaluate.config', 'parallel.config'}
MODEL_SIDE = {
    'batch',
    'storage',
    'config',
    'runs',
    'version',
    'host',
    'stop',
    'screen',
    'data',
    'model',
    'budget',
    'parallel',
} | SETTINGS
ALLOWED: dict[str, set[str]] = {
    'version': set(),
    'batch': set(),
    'host': set(),
    'stop': set(),
    'pallas_kernels': set(),
    'storage': set(),
    'screen': {'storage'},
    'data': {'batch', 'version', 'storage'},
    'model': {'batch', 'pallas_kernels'},
    'budget': {'model.config', 'screen', 'storage'},
    'parallel': {'model', 'pallas_kernels', 'budget'},
    'config': SETTINGS,
    'runs': {'config', 'version', 'storage'},
    'train': MODEL_SIDE,
    'aot': MODEL_SIDE | {'train'},
    'tasks': {'data', 'storage', 'version', 'screen'},
    'generate': MODEL_SIDE | {'train'},
    'evaluate': MODEL_SIDE | {'train', 'tasks', 'generate'},
    'probe': MODEL_SIDE | {'train', 'evaluate'},
    'law': {'runs', 'version', 'storage', 'screen'},
    'figures': {'runs', 'version', 'storage', 'law', 'tasks.means'},
    'sweep': MODEL_SIDE | {'train', 'evaluate', 'law', 'figures'},
    'bench': MODEL_SIDE | {'train', 'tasks', 'evaluate', 'generate', 'pallas_kernels'},
    'experiments': {'config', 'budget'} | SETTINGS,
    'cli': MODEL_SIDE
    | {'train', 'aot', 'tasks', 'generate', 'evaluate', 'probe', 'law', 'figures', 'sweep', 'bench', 'experiments'}
    | {'pallas_kernels'},
    '__main__': {'cli'},
}

# Rooms in whose files no import of jax, or of what is built on it, stands; and those that import it by no detour either.
JAX = {'jax', 'jaxlib', 'flax', 'optax', 'orbax'}
STATES_NO_JAX = (
    'version',
    'batch',
    'storage',
    'host',
    'stop',
    'screen',
    'data',
    'tasks',
    'budget',
    'config',
    'runs',
    'law',
    'figures',
    'experiments',
)
LOADS_NO_JAX = (
    'version',
    'batch',
    'storage',
    'host',
    'screen',
    'budget',
    'config',
    'runs',
    'law',
    'figures',
    'experiments',
)
KNOWS_ML_COLLECTIONS = ('smelt_jax/config.py', 'smelt_jax/cli/flags.py', 'experiments/')
KNOWS_LM_EVAL = 'smelt_jax/evaluate/harness.py'


def modules(root: Path) -> dict[str, Path]:
    """Dotted name → file, of every module of ours."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob('*.py')):
            parts = path.relative_to(root).with_suffix('').parts
            found['.'.join(parts[:-1] if parts[-1] == '__init__' else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """What a file imports, anywhere in it: modules of ours by their full name, others by their first word."""
    package = name if path.name == '__init__.py' else name.rpartition('.')[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = '.'.join(package.split('.')[: len(package.split('.')) - node.level + 1]) if node.level else ''
            origin = '.'.join(part for part in (base, node.module) if part)
            inner = {f'{origin}.{alias.name}' for alias in node.names}
            found |= (inner & known.keys()) or {origin}
            if inner - known.keys():
                found.add(origin)
    return {name if name.split('.')[0] in PACKAGES else name.split('.')[0] for name in found}


def room(name: str) -> str:
    """smelt_jax.data.rows → data; smelt_jax.config → config; experiments.quickstart → experiments."""
    parts = name.split('.')
    return parts[1] if parts[0] == 'smelt_jax' and len(parts) > 1 else parts[0]


def broken_imports(root: Path) -> Iterator[str]:
    """One line for every import that the rule forbids."""
    known = modules(root)
    for name, path in known.items():
        here, where = room(name), path.relative_to(root).as_posix()
        if name == 'smelt_jax':
            allowed = {'version', 'train.load'}
        elif here in ALLOWED:
            allowed = ALLOWED[here] | {here}
        else:
            yield f'{where}: {here} is no room; the rooms are {", ".join(ALLOWED)}'
            continue
        for other in sorted(imports(name, path, known)):
            if other.split('.')[0] in PACKAGES:
                inside = other.removeprefix('smelt_jax.')
                if other != 'smelt_jax' and not ({inside, room(other)} & allowed):
                    yield f'{where}: {here} may not import {inside}'
            elif other in JAX and here in STATES_NO_JAX:
                yield f'{where}: {here} does without jax, and imports {other}'
            elif other in JAX - {'jax'} and here == 'pallas_kernels':
                yield f'{where}: pallas_kernels imports jax alone, not {other}'
            elif other == 'lm_eval' and where != KNOWS_LM_EVAL:
                yield f'{where}: only {KNOWS_LM_EVAL} imports lm_eval, which is an extra'
            elif other == 'ml_collections' and not where.startswith(KNOWS_ML_COLLECTIONS):
                yield f'{where}: only {", ".join(KNOWS_ML_COLLECTIONS)} know ml_collections'


def circles(root: Path) -> list[str]:
    """Every circle of modules that import each other, as `a → b → a`."""
    known = modules(root)
    graph = {name: sorted(imports(name, path, known) & (known.keys() - {name})) for name, path in known.items()}
    found: list[str] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            found.append(' → '.join([*path[path.index(name) :], name]))
        elif name not in done:
            for other in graph[name]:
                visit(other, [*path, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return found


def test_imports_follow_the_datas_way() -> None:
    assert list(broken_imports(ROOT)) == []


def test_no_circles() -> None:
    assert circles(ROOT) == []


def test_the_rule_itself_has_no_circles() -> None:
    above: dict[str, set[str]] = {name: set() for name in ALLOWED}
    for _ in ALLOWED:
        for name, others in ALLOWED.items():
            rooms = {other for other in others if '.' not in other}
            above[name] = rooms.union(*(above[other] for other in rooms))
    assert [name for name in ALLOWED if name in above[name]] == []


def test_every_room_that_does_without_jax_loads_without_it() -> None:
    names = [name for name in modules(ROOT) if room(name) in LOADS_NO_JAX]
    code = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert 'jax' not in sys.modules, f'{name} imports jax, by whatever way'
"""
    done = subprocess.run([sys.executable, '-c', code, *names], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# The tests of the tests: a made-up tree with one fault each.


def tree(root: Path, **files: str) -> Path:
    """Files by `package__room__module`."""
    for name, text in files.items():
        path = root / (name.replace('__', '/') + '.py')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ('name', 'text', 'complaint'),
    [
        ('smelt_jax__data__rows', 'from smelt_jax.train import loop', 'data may not import train'),
        ('smelt_jax__data__rows', 'import smelt_jax.model.config', 'data may not import model.config'),
        ('smelt_jax__data__rows', 'from ..model import config', 'data may not import model'),
        ('smelt_jax__data__rows', 'def late():\n  import optax', 'data does without jax, and imports optax'),
        ('smelt_jax__budget__grid', 'from smelt_jax.model import transformer', 'budget may not import model'),
        ('smelt_jax__model__block', 'import smelt_jax.cli.flags', 'model may not import cli.flags'),
        ('smelt_jax__law__fit', 'from jax import numpy', 'law does without jax, and imports jax'),
        ('smelt_jax__model__block', 'from ml_collections import ConfigDict', 'know ml_collections'),
        (
            'smelt_jax__evaluate__answer',
            'from lm_eval.api import model',
            'harness.py imports lm_eval, which is an extra',
        ),
        ('smelt_jax__attic__old', '', 'attic is no room'),
        ('pallas_kernels__routing', 'import flax.linen', 'pallas_kernels imports jax alone, not flax'),
        ('pallas_kernels__routing', 'import smelt_jax.batch', 'pallas_kernels may not import batch'),
        ('experiments__new', 'from smelt_jax.train import loop', 'experiments may not import train'),
    ],
)
def test_a_forbidden_import_is_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (line,) = broken_imports(tree(tmp_path, **{name: text}))
    assert complaint in line
    assert line.startswith(name.replace('__', '/') + '.py: ')


def test_allowed_imports_are_silent(tmp_path: Path) -> None:
    made = tree(
        tmp_path,
        smelt_jax__budget__accounting='from smelt_jax.model.config import ModelConfig\nimport numpy',
        smelt_jax__model__config='import dataclasses',
        smelt_jax__model__experts='import jax\nfrom pallas_kernels import expert_ffn\nfrom . import config',
        smelt_jax__config='from ml_collections import ConfigDict\nfrom smelt_jax.model import config',
        pallas_kernels__expert_ffn='import jax',
    )
    assert list(broken_imports(made)) == []
    assert circles(made) == []


def test_a_circle_is_named(tmp_path: Path) -> None:
    made = tree(
        tmp_path,
        smelt_jax__law__fit='from smelt_jax.law import frontier',
        smelt_jax__law__frontier='def late():\n  from smelt_jax.law.fit import fit',
    )
    assert circles(made) == ['smelt_jax.law.fit → smelt_jax.law.frontier → smelt_jax.law.fit']
