"""The corpus every Python machine has: `local`.

    Code       source of the standard library
    Math/STEM  docstrings of the numeric packages that are installed, read as text and never imported
    Knowledge  Python's help topics, licence texts
    Web        long descriptions in package metadata, which are the packages' pages on the index

Sorted everywhere, so two runs on one machine give the same documents in the same order.
"""

import ast
import importlib.metadata
import inspect
import re
import sys
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

from smelt_jax.data.documents import Document, Tally, without_surrogates

NUMERIC_PACKAGES = ('numpy', 'scipy', 'jax', 'optax', 'flax', 'chex', 'sympy', 'pandas', 'sklearn', 'networkx')
# Tests are no prose; encodings and pydoc_data are tables; site-packages is other people's.
_NOT_LIBRARY = {'test', 'tests', 'idlelib', 'lib2to3', 'encodings', 'pydoc_data', 'site-packages', 'dist-packages'}
_NOT_PACKAGE = {'test', 'tests', '_vendor'}
_LICENCE = re.compile(r'(licen[cs]e|copying|notice)[^/]*$', re.IGNORECASE)
_TEXT_SUFFIXES = {'', '.txt', '.md', '.rst'}
_UNREADABLE = (OSError, SyntaxError, UnicodeError, ValueError, RecursionError)


def documents(tally: Tally) -> Iterator[Document]:
    """All of it. What cannot be read or parsed is counted in `tally.skipped`."""
    for document in _all(tally):
        text = without_surrogates(document.text, document.source, 'replace', tally)
        yield Document(text, document.domain, document.source)


def identity() -> dict[str, str]:
    """What the documents depend on: the versions of Python and of every installed package."""
    return {'local/python': sys.version} | {f'local/{name}': dist.version for name, dist in _distributions()}


def _all(tally: Tally) -> Iterator[Document]:
    for path in _python_files(Path(sysconfig.get_paths()['stdlib']), _NOT_LIBRARY):
        if text := _read_source(path, tally):
            yield Document(text, 'Code', 'python-stdlib')
    for package in NUMERIC_PACKAGES:
        for folder in _site_packages():
            for path in _python_files(folder / package, _NOT_PACKAGE):
                yield from _docstrings(path, folder, package, tally)
    yield from _topics()
    yield from _licences(tally)
    for name, distribution in _distributions():
        description = _description(distribution)
        if description is None:
            tally.skipped += 1
        elif description.strip() not in ('', 'UNKNOWN'):
            yield Document(f'{name}\n\n{description.strip()}\n', 'Web', 'package-metadata')


def _site_packages() -> list[Path]:
    paths = sysconfig.get_paths()
    return sorted({Path(paths['purelib']), Path(paths['platlib'])})


def _distributions() -> list[tuple[str, importlib.metadata.Distribution]]:
    """Installed distributions by name. Not this project: its texts change with every edit, its version does not."""
    found: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions(path=[str(path) for path in _site_packages()]):
        name = distribution.metadata['Name']
        if name and name.replace('-', '_').lower() != 'smelt_jax':
            found.setdefault(name.replace('-', '_').lower(), distribution)
    return sorted(found.items())


def _python_files(folder: Path, excluded: set[str]) -> list[Path]:
    if not folder.is_dir():
        return []
    paths = (path for path in folder.rglob('*.py') if not excluded.intersection(path.relative_to(folder).parts))
    return sorted(paths, key=str)


def _read_source(path: Path, tally: Tally) -> str:
    try:
        with tokenize.open(path) as file:  # honours the coding line
            return file.read()
    except _UNREADABLE:
        tally.skipped += 1
        return ''


def _docstrings(path: Path, root: Path, package: str, tally: Tally) -> Iterator[Document]:
    """One document for a module (its text and its functions'), one for each of its classes (and their methods)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # other people's invalid escapes are not this user's news
            tree = ast.parse(_read_source(path, tally))
    except _UNREADABLE:
        tally.skipped += 1
        return
    name = '.'.join(path.relative_to(root).with_suffix('').parts).removesuffix('.__init__')
    titled: list[tuple[ast.Module | ast.ClassDef, str]] = [(tree, name)]
    titled += [(item, f'{name}.{item.name}') for item in tree.body if isinstance(item, ast.ClassDef)]
    for node, title in titled:
        parts = [_docstring(node)] + [f'{_signature(item)}\n\n{_docstring(item)}' for item in _functions(node)]
        text = '\n\n\n'.join(part for part in parts if part)
        if text:
            yield Document(f'{title}\n\n{text}\n', 'Math/STEM', package)


def _functions(node: ast.Module | ast.ClassDef) -> list[ast.FunctionDef]:
    return [item for item in node.body if isinstance(item, ast.FunctionDef) and ast.get_docstring(item, clean=False)]


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    return inspect.cleandoc(ast.get_docstring(node, clean=False) or '')


def _signature(function: ast.FunctionDef) -> str:
    return f'{function.name}({ast.unparse(function.args)})'


def _topics() -> Iterator[Document]:
    from pydoc_data import topics  # a table of the standard library, worth its import only here

    for _, text in sorted(topics.topics.items()):
        yield Document(text, 'Knowledge', 'python-topics')


def _licences(tally: Tally) -> Iterator[Document]:
    library = Path(sysconfig.get_paths()['stdlib'])
    paths = [library / 'LICENSE.txt', library.parent / 'LICENSE.txt']
    for _, distribution in _distributions():
        files = (file for file in distribution.files or () if _LICENCE.search(str(file)))
        paths += sorted(Path(str(file.locate())) for file in files)
    for path in paths:
        if path.suffix.lower() in _TEXT_SUFFIXES and path.is_file():
            try:
                yield Document(path.read_text('utf-8'), 'Knowledge', 'licences')
            except _UNREADABLE:
                tally.skipped += 1


def _description(distribution: importlib.metadata.Distribution) -> str | None:
    try:
        metadata = distribution.metadata
        return metadata.get('Description') or str(metadata.get_payload())  # type: ignore[attr-defined]
    except _UNREADABLE:
        return None
