"""SIGTERM and SIGINT: a program that is told to end keeps what it has done, says how to go on, and ends.

Where nothing would be lost the signal is an exception in the main thread, `Stopped`; a main thread that is busy elsewhere, as
in a compilation, gets GRACE_SECONDS. While there are results that are not on disk (`keep`), the signal is only noted:
whoever makes them looks at `asked`, saves, and raises `Stopped`. A second signal ends the process at once.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 10.0  # less than what a scheduler waits before it kills: 30 seconds, as a rule
TWICE_SECONDS = 1.0  # `timeout` and some schedulers send the same signal twice at once: that is one


class Stopped(BaseException):
    """A signal has ended the work; nothing that was done is lost. Its text is what the user reads last.

    Attributes:
      code: the exit code, 128 + the signal's number.
      together: all processes of the run stop, at this very point.
    """

    def __init__(self, number: int, where: str = '', together: bool = False) -> None:
        super().__init__(f'stopped by {signal.Signals(number).name}{where}; run the same command again to go on')
        self.code, self.together = 128 + number, together


def say(line: str) -> None:
    """A line on stderr; nothing, if nobody reads there any more: what is worth saying is not worth failing for."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


class _Ear:
    """What has been heard, and what is to be done about it."""

    def __init__(self) -> None:
        self.asked = 0
        self.keeping = False
        self.waiting = False
        self.heeded = False
        self.thrown: Stopped | None = None

    def heard(self, number: int, _: FrameType | None) -> None:
        self.asked = self.asked or number
        if not (self.keeping or self.heeded or self.thrown):
            stopped = Stopped(self.asked)
            self.thrown = None if self.waiting else stopped
            raise stopped

    def follow(self, line: socket.socket) -> None:
        """A thread of its own, which the system tells of a signal whatever the main thread does."""
        told = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                byte = line.recv(1)
                if not byte:
                    return
                if byte[0] in SIGNALS and not told:
                    self.asked, told = self.asked or byte[0], time.monotonic()
                    line.settimeout(0.1)
                    if self.keeping:
                        name = signal.Signals(self.asked).name
                        say(f'{sys.argv[0]}: {name}: what is done is saved first; a second one ends it at once')
                elif byte[0] in SIGNALS and time.monotonic() - told > TWICE_SECONDS:
                    self.end(', at once since it came twice')
            if told and not (self.keeping or self.heeded) and time.monotonic() - told > GRACE_SECONDS:
                self.end('')

    def end(self, how: str) -> None:
        stopped = Stopped(self.asked, how)
        say(f'\n{sys.argv[0]}: {stopped}')
        os._exit(stopped.code)


_ear: _Ear | None = None


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Inside, SIGTERM and SIGINT do what the module says. Of nested ones the outermost counts; outside the main thread it does
    nothing."""
    global _ear
    if _ear or threading.current_thread() is not threading.main_thread():
        yield
        return
    _ear = _Ear()
    inner, outer = socket.socketpair()
    outer.setblocking(False)
    threading.Thread(target=_ear.follow, args=(inner,), daemon=True).start()
    fd_before = signal.set_wakeup_fd(outer.fileno())
    heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # as nohup and shells have it
    before = {number: signal.signal(number, _ear.heard) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(fd_before)
        outer.close()
        _ear = None


def _before_fork() -> None:
    if _ear:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child is no longer on the parent's line


def _in_parent() -> None:
    if _ear:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _in_child() -> None:
    """A forked process ends by a signal, and its parent hears nothing of it."""
    if _ear:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """Inside, after `keep`, a signal is only noted. Getting out of it may take its time."""
    try:
        yield
    finally:
        if _ear:
            _ear.keeping, _ear.heeded = False, _ear.keeping and bool(_ear.asked)


def keep() -> None:
    """From here on there is something that is not on disk."""
    if _ear:
        _ear.keeping = True


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Inside, a signal is an exception even after `keep`: for waiting on what may never come."""
    if not _ear or not _ear.keeping:
        yield
        return
    _ear.keeping, _ear.waiting = False, True
    try:
        if _ear.asked:
            raise Stopped(_ear.asked)
        yield
    finally:
        _ear.keeping, _ear.waiting = True, False


def instead_of(error: BaseException) -> BaseException:
    """What has ended the work: the exception of a signal, if that came out as another one, as from the import of an extension
    or from a library that gives its errors names of its own; otherwise `error`."""
    return (_ear and _ear.thrown) or error


def asked() -> int:
    """The signal that has come, or 0."""
    return _ear.asked if _ear else 0
