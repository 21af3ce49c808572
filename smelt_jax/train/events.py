"""TensorBoard's files."""

import contextlib
import os
import tempfile
import time

from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from smelt_jax.storage.files import is_local, naming


class Events:
    """One file of events. Written by the thread that calls: tensorboardX has one of its own for that, and when a full disk
    ends it, the next value waits for ever. A bucket gets a copy of the file at each flush."""

    FLUSH_SECONDS = 30

    def __init__(self, folder: epath.Path, start: int) -> None:
        """`start`: TensorBoard shows no longer what an earlier process wrote of later steps."""
        self._folder = folder
        with contextlib.ExitStack() as stack, naming(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._local = folder if is_local(folder) else epath.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._writer = EventsWriter(os.path.join(self._local, 'events'), f'.{start}')
            self._write(start + 1, session_log=SessionLog(status=SessionLog.START))
            self._scratch = stack.pop_all()
        self._flushed = time.perf_counter()

    def add(self, step: int, values: dict[str, float]) -> None:
        """Values of a step."""
        with naming(self._folder):
            self._write(step, summary=Summary(value=[Summary.Value(tag=k, simple_value=v) for k, v in values.items()]))
            if time.perf_counter() - self._flushed > self.FLUSH_SECONDS:
                self.flush()

    def flush(self) -> None:
        """All of it is in the folder."""
        with naming(self._folder):
            self._writer.flush()
            self._copy()
            self._flushed = time.perf_counter()

    def close(self) -> None:
        """Flushes, and ends."""
        with self._scratch, naming(self._folder):
            self._writer.close()
            self._copy()

    def _copy(self) -> None:
        if self._local != self._folder:
            for file in self._local.iterdir():
                (self._folder / file.name).write_bytes(file.read_bytes())

    def _write(self, step: int, **content: SessionLog | Summary) -> None:
        self._writer.write_event(Event(wall_time=time.time(), step=step, **content))
