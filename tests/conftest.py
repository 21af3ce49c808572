"""What every test stands on: eight CPU devices, no display, and `smelt`, which runs the command as a user does."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Before anybody imports jax. Subprocesses get an environment of their own, below.
DEVICES = '--xla_force_host_platform_device_count=8'
os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {DEVICES}'.strip()
os.environ['MPLBACKEND'] = 'agg'

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope='session')
def smelt() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `smelt ARGS` in a process of its own, on one CPU device: `smelt('pack', '--config=…', code=0, cwd=tmp_path)`.
    Asserts the exit code, `code`; None takes any. The result has stdout and stderr as text."""

    def run(
        *args: str, code: int | None = 0, cwd: Path = ROOT, timeout: float = 600, **env: str
    ) -> subprocess.CompletedProcess[str]:
        flags = os.environ['XLA_FLAGS'].replace(DEVICES, '').strip()
        environment = os.environ | {'XLA_FLAGS': flags, 'PYTHONPATH': str(ROOT), 'COLUMNS': '120'} | env
        done = subprocess.run(
            [sys.executable, '-m', 'smelt_jax', *args],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if code is not None:
            assert done.returncode == code, f'smelt {" ".join(args)}\n{done.stdout}\n{done.stderr}'
        return done

    return run
