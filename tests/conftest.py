"""What every test stands on: eight CPU devices, no display, and `smelt`, which runs the command as a user does. Some
fixtures that tests of whole runs share."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Before anybody imports jax. Subprocesses get an environment of their own, below.
DEVICES = '--xla_force_host_platform_device_count=8'
os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {DEVICES}'.strip()
os.environ['MPLBACKEND'] = 'agg'
# A shell has it ignored by what it runs in the background, and commands that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

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


@pytest.fixture(scope='session')
def tiny_pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up text of five sources, packed as bytes in rows of 32 tokens. Nobody writes there."""
    from runs_helper import make_pack

    return make_pack(tmp_path_factory.mktemp('tiny'))


@pytest.fixture(scope='module')
def quick() -> Iterator[None]:
    """Programs compiled here are not optimised: that would take longer than it saves."""
    with _quick():
        yield


@pytest.fixture(scope='session')
def trunk(tiny_pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of runs_helper.RUN on `tiny_pack`: 12 updates, checkpoints after 5, 10, 11, 12. Nobody writes there."""
    from runs_helper import RUN, edit

    from smelt_jax.train.loop import train

    with _quick():
        return Path(train(edit(RUN, data__pack=str(tiny_pack)), str(tmp_path_factory.mktemp('runs') / 'trunk')).path)


@pytest.fixture(scope='module', autouse=True)
def programs_go_with_their_file() -> Iterator[None]:
    """A compiled program takes memory maps, of which a process may have 65,530: the compiler aborts for want of them."""
    yield
    if 'jax' in sys.modules:
        import jax

        jax.clear_caches()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB of its own."""
    folder = tmp_path / 'disk'
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b'tmpfs', str(folder).encode(), b'tmpfs', 0, b'size=4m'):
        pytest.skip(f'no disk can be mounted here: {os.strerror(ctypes.get_errno())}')
    yield folder
    libc.umount2(str(folder).encode(), 2)


@contextlib.contextmanager
def _quick() -> Iterator[None]:
    import jax

    before = jax.config.read('jax_disable_most_optimizations')
    jax.config.update('jax_disable_most_optimizations', True)
    try:
        yield
    finally:
        jax.config.update('jax_disable_most_optimizations', before)


@pytest.fixture(scope='session')
def quick_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that do not optimise what they compile, and that find what another one compiled."""
    return {
        'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
        'JAX_COMPILATION_CACHE_DIR': str(tmp_path_factory.mktemp('compiled')),
        'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
    }
