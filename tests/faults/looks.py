"""What can be seen of a run from outside: its files, its process; and whether that is as it was promised."""

import hashlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import tensorstore

ENDS_WITHIN = 120  # seconds, of a command that is not stuck; the machine may have other work

Result = dict[str, object]  # name → what must be equal


class Lost(AssertionError):
    """Something that is promised did not hold."""


def require_equal(found: Result, expected: Result, what: str) -> None:
    """Raises Lost, naming what differs."""
    differ = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    if differ:
        raise Lost(f'{what}: {", ".join(differ[:3])}{" …" * (len(differ) > 3)} differ from the undisturbed run')


def ended(process: subprocess.Popen, within: float = ENDS_WITHIN) -> int:
    """Its exit code. Raises Lost if it does not end; then it is killed."""
    try:
        return process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Lost(f'still running after {within:.0f} s') from None


def arrays(checkpoint: Path) -> Result:
    """Every stored chunk of a checkpoint's arrays, read without Orbax and jax: equal bytes are equal arrays. Raises Lost."""
    found: Result = {}
    for item in ('params', 'optimizer'):
        try:
            store = tensorstore.KvStore.open(f'file://{checkpoint / item}/|ocdbt:').result()
            found |= {f'{item} {key.decode()}': digest(store.read(key).result().value) for key in store.list().result()}
        except Exception as error:
            raise Lost(f'{checkpoint / item} cannot be read: {str(error).splitlines()[0][:200]}') from None
    return found


def digest(data: bytes) -> str:
    """A short name of bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def until(condition: Callable[[], object], process: subprocess.Popen, within: float = ENDS_WITHIN) -> bool:
    """Waits; looks every millisecond. False if the process has ended first. Raises Lost if neither comes."""
    stop = time.monotonic() + within
    while not condition():
        if process.poll() is not None:
            return False
        if time.monotonic() > stop:
            process.kill()
            raise Lost(f'the moment to disturb it did not come within {within:.0f} s')
        time.sleep(0.001)
    return True


def lines(workdir: Path) -> int:
    """Of metrics.jsonl."""
    file = workdir / 'metrics.jsonl'
    return file.read_bytes().count(b'\n') if file.exists() else 0


def saved(workdir: Path) -> list[int]:
    """Steps whose checkpoints have their own name, ascending."""
    folder = workdir / 'checkpoints'
    return sorted(int(name) for name in (os.listdir(folder) if folder.exists() else ()) if name.isdecimal())


def unfinished(workdir: Path) -> list[str]:
    """Saves under way, or left so by a process that was killed."""
    folder = workdir / 'checkpoints'
    return [name for name in (os.listdir(folder) if folder.exists() else ()) if 'orbax-checkpoint-tmp' in name]
