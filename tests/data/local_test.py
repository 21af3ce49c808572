"""The corpus that is on every machine."""

import sys
from pathlib import Path

import pytest

from smelt_jax.data import corpora, local
from smelt_jax.data.documents import Document, Tally

MODULE = '''
"""Adds."""
LIMIT = 1

def add(a: int, b=LIMIT, *rest):
    """Sum of
        all."""

def silent(): pass

class Adder(object):
    """Adds later."""

    def __call__(self, x):
        """Now."""

class Silent: pass
'''


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a standard library of two files and a package `numpy`."""
    files: dict[str, str | bytes] = {
        'lib/a.py': 'A = 1\n',
        'lib/b.py': b'# -*- coding: latin-1 -*-\n# \xe9\n',
        'lib/broken.py': b'\xff\xfe\n',
        'lib/test/c.py': 'C = 1\n',
        'lib/LICENSE.txt': 'Do as you like.\n',
        'site/numpy/__init__.py': MODULE,
        'site/numpy/broken.py': 'def (:\n',
        'site/numpy/tests/t.py': '"""Test."""\n',
        'site/thing-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n\nA thing – for you.\n',
        'site/thing-1.0.dist-info/RECORD': 'thing-1.0.dist-info/LICENSE,,\nthing/license.py,,\n',
        'site/thing-1.0.dist-info/LICENSE': 'Do as I like.\n',
        'site/thing/license.py': 'L = 1\n',
        'site/smelt_jax-9.dist-info/METADATA': 'Metadata-Version: 2.1\nName: smelt_jax\nVersion: 9\n\nOurselves.\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    paths = {'stdlib': tmp_path / 'lib', 'purelib': tmp_path / 'site', 'platlib': tmp_path / 'site'}
    monkeypatch.setattr('sysconfig.get_paths', lambda: {name: str(path) for name, path in paths.items()})
    return tmp_path


def test_each_kind_of_text_has_its_domain(small: Path) -> None:
    tally = Tally()
    found = [document for document in local.documents(tally) if document.source != 'python-topics']
    assert found == [
        Document('A = 1\n', 'Code', 'python-stdlib'),
        Document('# -*- coding: latin-1 -*-\n# é\n', 'Code', 'python-stdlib'),
        Document('numpy\n\nAdds.\n\n\nadd(a: int, b=LIMIT, *rest)\n\nSum of\nall.\n', 'Math/STEM', 'numpy'),
        Document('numpy.Adder\n\nAdds later.\n\n\n__call__(self, x)\n\nNow.\n', 'Math/STEM', 'numpy'),
        Document('Do as you like.\n', 'Knowledge', 'licences'),
        Document('Do as I like.\n', 'Knowledge', 'licences'),
        Document('thing\n\nA thing – for you.\n', 'Web', 'package-metadata'),
    ]
    assert tally.skipped == 2


def test_identity_is_the_versions_of_all_but_ourselves(small: Path) -> None:
    assert corpora.identity(['local']) == {'local/python': sys.version, 'local/thing': '1.0'}


def test_this_machine_has_every_domain_and_says_the_same_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, 'NUMERIC_PACKAGES', ('optax',))
    before = set(sys.modules)
    first, second = (list(local.documents(Tally())) for _ in range(2))
    assert first == second
    assert 'optax' not in {name.split('.')[0] for name in set(sys.modules) - before}  # read, not imported
    assert {document.domain for document in first} == {'Code', 'Math/STEM', 'Knowledge', 'Web'}
    code = sum(len(document.text) for document in first if document.domain == 'Code')
    assert code > 5_000_000
    assert not any('smelt_jax' in document.text for document in first if document.domain == 'Web')
