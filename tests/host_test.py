"""The allocator is told once or more, where there is one to tell."""

import subprocess
import sys
from pathlib import Path

import pytest

from smelt_jax import host

ROOT = Path(__file__).parents[1]
CODE = 'from smelt_jax.host import keep_freed_memory as keep; print([keep(), keep()])'


def test_it_can_be_told_twice_and_says_whether_it_listens() -> None:
    """In a process of its own: what is set stays set."""
    done = subprocess.run([sys.executable, '-c', CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout in ('[True, True]\n', '[False, False]\n')


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(f'{name}: cannot open shared object file')

    monkeypatch.setattr(host.ctypes, 'CDLL', no_library)  # a Linux without glibc
    assert host.keep_freed_memory() is False
    monkeypatch.setattr(host.sys, 'platform', 'darwin')
    assert host.keep_freed_memory() is False
