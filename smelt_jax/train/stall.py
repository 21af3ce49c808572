"""A run that no longer gets on says where it stands, and ends, instead of holding its machines for ever."""

import faulthandler
import os
import sys
import tempfile
import threading
import time

from etils import epath

from smelt_jax import stop

WRITE_SECONDS = 5.0


class Stall:
    """Ends the process if `at` is not called for some minutes, with the stack of every thread. Use as a context manager."""

    def __init__(self, minutes: float, file: epath.Path) -> None:
        """
        Args:
          minutes: that may pass; 0 is for ever.
          file: for the stacks, which go to stderr too.
        """
        self._seconds, self._file = minutes * 60, file
        self._where, self._waited = '', 0.0
        self._done = threading.Event()

    def __enter__(self) -> 'Stall':
        if self._seconds:
            threading.Thread(target=self._follow, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def at(self, where: str) -> None:
        """The run got on: it is `where` now. Counted from the first call."""
        self._where, self._waited = where, 0.0

    def _follow(self) -> None:
        tick = min(self._seconds / 4, 5)
        before = time.monotonic()
        while not self._done.wait(tick):
            now = time.monotonic()
            # A process that was suspended has not waited: nor has this thread of it ticked.
            self._waited += min(now - before, 2 * tick)
            before = now
            if self._where and self._waited > self._seconds:
                self._end()

    def _end(self) -> None:
        with tempfile.TemporaryFile('w+') as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            stacks = file.read()
        # The disk may be what does not answer.
        writer = threading.Thread(target=self._file.write_text, args=(stacks,), daemon=True)
        writer.start()
        writer.join(WRITE_SECONDS)
        stop.say(
            f'\n{stacks}\n{sys.argv[0]}: error: stalled for {self._seconds / 60:g} minutes (train.stall_minutes): '
            f'{self._where}. The stacks of all threads are above and in {self._file}; run again, to go on from the last '
            f'checkpoint'
        )
        # Not an exception: the main thread does not come back to hear of it.
        os._exit(os.EX_TEMPFAIL)
