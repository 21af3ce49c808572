"""A file that lines are added to while others read it."""

import time

from etils import epath

from smelt_jax.storage.files import is_local, naming, write_atomically


class Lines:
    """Adds lines to a file, and keeps those that are there. Errors are OSErrors that name the file.

    On a disk a line is in the file when `add` returns. To what is in a bucket nothing can be added (gcsfs writes over it
    without a word), so there the whole is written anew: at an `add` when SECONDS have gone by since the last time, at
    `flush`, and at `close`. What must not be lost, e.g. lines of updates that a checkpoint is about to hold, is flushed.
    """

    SECONDS = 30.0

    def __init__(self, file: epath.Path) -> None:
        self._file = file
        with naming(file):
            if is_local(file) and file.exists():
                _end_whole(file)
            self._disk = file.open('a') if is_local(file) else None
            self._text = file.read_text() if self._disk is None and file.exists() else ''
            self._text = self._text[: self._text.rfind('\n') + 1]
        self._written, self._when = len(self._text), time.monotonic()

    def add(self, line: str) -> None:
        """Adds one line; its end is added to it."""
        if self._disk is not None:
            with naming(self._file):
                self._disk.write(line + '\n')
                self._disk.flush()
            return
        self._text += line + '\n'
        if time.monotonic() - self._when > self.SECONDS:
            self.flush()

    def flush(self) -> None:
        """Returns when all lines are in the file."""
        if self._disk is None and len(self._text) > self._written:
            write_atomically(self._file, self._text)
            self._written, self._when = len(self._text), time.monotonic()

    def close(self) -> None:
        """Flushes, and ends."""
        self.flush()
        if self._disk is not None:
            with naming(self._file):
                self._disk.close()


def _end_whole(file: epath.Path) -> None:
    """A last line that a killed process left unfinished is taken away: the next one would become part of it."""
    with open(file, 'r+b') as disk:
        data = disk.read()
        if data and not data.endswith(b'\n'):
            disk.truncate(data.rfind(b'\n') + 1)
