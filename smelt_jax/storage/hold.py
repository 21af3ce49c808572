"""Holding a folder: one process at a time. By a lock on a disk, by a lease in a bucket, which has no locks."""

import contextlib
import fcntl
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import NoReturn

from etils import epath

from smelt_jax.storage.files import is_local, naming, write_atomically

LEASE = 60.0  # seconds that a hold in a bucket is good for after it was renewed
RENEW = 10.0  # seconds between two times
SETTLE = 2.0  # seconds in which another that began at the same moment has written, too


@contextlib.contextmanager
def held(file: epath.Path, lost: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds what `file` stands for until the context ends; `file` is there as long, and its first line says who holds it.

    On a disk by flock: the hold goes when its process does. It reaches over machines where the file system's locks do: on NFS
    from version 4 on, or with its lock daemon; the file is opened for writing, without which NFS locks nothing.

    In a bucket by a lease (`leased`), which a killed process keeps for LEASE seconds.

    Raises:
      ValueError: somebody holds it, who is named.
      OSError: it cannot be written or locked.
    """
    with _locked(file) if is_local(file) else _leased(file, lost or _end):
        yield


@contextlib.contextmanager
def alone(file: epath.Path) -> Iterator[None]:
    """For a moment: others on this disk wait. In a bucket nobody waits for anybody."""
    if not is_local(file):
        yield
        return
    with naming(file), file.open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def holder(file: epath.Path) -> str:
    """Who holds it, in words that stay the same as long as they do; '' if nobody does."""
    try:
        return file.read_text().partition('\n')[0]
    except FileNotFoundError:
        return ''


@contextlib.contextmanager
def _locked(file: epath.Path) -> Iterator[None]:
    descriptor = _lock(file)
    try:
        with naming(file):
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f'{_me()}\n'.encode(), 0)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock(file: epath.Path) -> int:
    """An open file that is locked and still has its name. ValueError if another process has the lock."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with naming(file):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(file)):
                    return descriptor
            os.close(descriptor)  # who held it before took its name away after it was opened here
        except BlockingIOError:
            os.close(descriptor)
            raise _refused(file, holder(file), 'wait for it, or stop it') from None
        except BaseException:
            os.close(descriptor)
            raise


@contextlib.contextmanager
def _leased(file: epath.Path, lost: Callable[[str], None]) -> Iterator[None]:
    """A file of three lines: who, when it was renewed, and what no other process would write.

    A thread renews it every RENEW seconds. One that was not renewed for LEASE seconds has run out, and is taken over with a
    line on stderr. If that happens to a process that lives, or it cannot renew in time, the thread calls `lost` with a line
    that says so. The clocks of the machines must agree to LEASE - RENEW seconds. Of several that begin within SETTLE seconds
    the last to write has it.
    """
    mine = f'{_me()}\n{{}}\n{uuid.uuid4().hex}'
    released = threading.Event()
    thread = threading.Thread(target=_renew, args=(file, mine, released, lost), name=f'lease of {file}', daemon=True)
    try:
        _take(file, mine)
        thread.start()
        yield
    finally:
        released.set()
        if thread.is_alive():
            thread.join()
        with contextlib.suppress(Exception):  # of whatever kind the bucket's client raises: then it runs out by itself
            if _is(_read(file), mine):
                file.unlink(missing_ok=True)


def _take(file: epath.Path, mine: str) -> None:
    """Writes the lease. ValueError if another process has it."""
    if found := _read(file):
        age = time.time() - float(found[1])
        if age < LEASE:
            remedy = f'wait for it, or stop it; if it is dead, its hold runs out in {LEASE - age:.0f} seconds'
            raise _refused(file, found[0], remedy)
        print(f'{file.parent}: taken over from {found[0]}, not heard of for {age:.0f} seconds', file=sys.stderr)
    write_atomically(file, mine.format(time.time()))
    time.sleep(SETTLE)
    if not _is(found := _read(file), mine):
        raise _refused(file, found[0] if found else '', 'wait for it, or stop it')


def _renew(file: epath.Path, mine: str, released: threading.Event, lost: Callable[[str], None]) -> None:
    renewed = time.monotonic()
    while not released.wait(RENEW):
        try:
            found = _read(file)
            if found and not _is(found, mine):
                return lost(f'{file.parent} was taken over by {found[0]}')
            write_atomically(file, mine.format(time.time()))
            renewed = time.monotonic()
        except Exception as error:  # of whatever kind the bucket's client raises; the next time may do better
            if time.monotonic() - renewed > LEASE - RENEW:
                return lost(f'the hold of {file.parent} could not be renewed: {error}')


def _read(file: epath.Path) -> list[str]:
    """The lines of a lease; none if there is none. ValueError if it is no lease."""
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return []
    try:
        _, renewed, _ = lines
        float(renewed)
    except ValueError:
        raise ValueError(f'{file} is damaged: it holds {lines[:3]}; remove it if nobody uses {file.parent}') from None
    return lines


def _is(found: list[str], mine: str) -> bool:
    return bool(found) and found[-1] == mine.splitlines()[-1]


def _refused(file: epath.Path, who: str, remedy: str) -> ValueError:
    return ValueError(f'{file.parent} is in use by {who or "another process"}; {remedy}')


def _me() -> str:
    return f'process {os.getpid()} on {socket.gethostname()} since {time.strftime("%F %T")}'


def _end(message: str) -> NoReturn:
    print(f'{sys.argv[0]}: error: {message}; this process ends, before two write there', file=sys.stderr, flush=True)
    os._exit(os.EX_TEMPFAIL)  # not an exception: this is not the main thread
