"""What a process wants between two updates, and how all of them do it after the same one.

Of one process a wish is known at once. Of many, each gives its own to the update, which adds them up (`step.make_step`): all
read the same sums of the same update, one update later.
"""

import time

import jax
import numpy as np

from smelt_jax import stop
from smelt_jax.parallel import processes
from smelt_jax.parallel.devices import Devices
from smelt_jax.train.watch import Watch


class Wishes:
    """To stop, since a signal has come; to save, since `minutes` have passed."""

    def __init__(self, devices: Devices, minutes: float) -> None:
        self._devices, self._seconds = devices, minutes * 60
        self._many = jax.process_count() > 1
        self._saved, self._step = time.monotonic(), 0

    def saved(self, step: int) -> None:
        """A step, now. What was wished before is done."""
        self._saved, self._step = time.monotonic(), step

    def given(self) -> tuple[jax.Array, ...]:
        """The last argument of an update, if it has to have one."""
        if not self._many:
            return ()
        count = self._devices.count
        own_DX = np.tile(self._own(), (len(self._devices.local_rows(count)), 1))
        return (self._devices.batch(own_DX, count),)

    def heard(self, watch: Watch) -> tuple[bool, bool]:
        """Whether to stop, and whether to save, after the update that was started last."""
        to_stop, to_save = watch.wishes_X if self._many else self._own()
        return bool(to_stop), bool(to_save) and (not self._many or watch.looked > self._step)

    def _own(self) -> np.ndarray:
        due = self._seconds and processes.first() and time.monotonic() - self._saved > self._seconds
        return np.array([stop.asked() > 0, bool(due)], np.int32)
