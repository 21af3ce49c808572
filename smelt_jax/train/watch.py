"""Looks at the metrics of every update: logs, and says when something is not as it should be.

What it says goes to incidents.jsonl too: lines {step, kind, time, …} of the kinds

    skipped   loss or gradient was no finite number, the update was left out (optim.skip_nonfinite)
    spike     the loss stands out from those before (train.spike)
    damaged   a checkpoint was incomplete or did not come back as it was saved, and the one before was taken
    stopped   by a signal
    resumed   from a checkpoint
    nonfinite loss, gradient or parameters were no finite number, and the run ended
"""

import collections
import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import jax
import numpy as np

from smelt_jax.train.config import TrainConfig
from smelt_jax.train.report import Report, Silence
from smelt_jax.train.step import Metrics

WINDOW = 64  # losses that a spike is held against, and at least a quarter of them
SIGMA = 1.4826  # standard deviations in a median absolute deviation, of a normal distribution


class NonFiniteError(ValueError):
    """The loss or the gradient is not a number any more. The last checkpoint is from before."""


class Watch:
    """Follows updates, each looked at while the next one runs."""

    def __init__(
        self,
        report: Report | Silence,
        train: TrainConfig,
        skip_nonfinite: int,
        stop: int,
        tokens: int,
        rows_of: Callable[[int], np.ndarray],
        skipped: int = 0,
    ) -> None:
        """
        Args:
          report: where lines go.
          train: of the run.
          skip_nonfinite: updates that may be left out in a row.
          stop: the last step.
          tokens: of a batch.
          rows_of: the rows of the whole batch of the update that leads to a step.
          skipped: updates left out in a row before the first one.
        """
        self._report, self._train, self._most = report, train, skip_nonfinite
        self._stop, self._tokens = stop, tokens
        self._rows_of, self._skipped = rows_of, skipped
        self._followed: tuple[int, Metrics] | None = None
        self._finite: dict[str, float] = {}
        self._spikes = Spikes(train.spike)
        self._changed = 0  # the last step whose update was not left out
        self.looked = 0  # the last step that was looked at
        self.wishes_X = np.zeros(2, np.int32)

    def follow(self, step: int, metrics: Metrics) -> None:
        """An update was started that leads to `step`."""
        self._followed = (step, metrics)

    def look(self) -> None:
        """Waits for the followed update, if it was not looked at yet. Raises NonFiniteError."""
        if self._followed is None:
            return
        step, metrics = self._followed
        self._followed = None
        found, self.looked = jax.device_get(metrics), step
        self.wishes_X = found.pop('wishes_X', self.wishes_X)
        values = {name: float(value) for name, value in found.items()}
        fine = math.isfinite(values['loss']) and math.isfinite(values['grad_norm'])
        if fine:
            self._finite, self._skipped, self._changed = values, 0, step
            if told := self._spikes.told(values['loss']):
                self._incident(step, 'spike', f'loss {values["loss"]:.4f}, {told}', values)
        else:
            self._leave_out(step, f'loss {values["loss"]}, gradient norm {values["grad_norm"]}', values)
        self._report.step(step, self._tokens)
        if step % self._train.log_every == 0 or step == self._stop:
            self._report.log(step, {**values, 'tokens_seen': step * self._tokens})

    def require_finite(self, finite: bool, step: int) -> None:
        """Raises NonFiniteError if an update from a finite loss and gradient led to numbers that are none."""
        if not finite:
            self._end(self._changed or step, 'its update made parameters or moments that are not finite')

    def _leave_out(self, step: int, what: str, values: dict[str, float]) -> None:
        self._skipped += 1
        if self._skipped > self._most:
            self._end(step, what + (f', and {self._most} before it were skipped' if self._most else ''))
        self._incident(step, 'skipped', f'{what}; skipped, {self._skipped} of at most {self._most} in a row', values)

    def _incident(self, step: int, kind: str, text: str, values: dict[str, float]) -> None:
        self._report.incident(step, kind, text, {'rows': self._rows_of(step).tolist(), **values})

    def _end(self, step: int, what: str) -> NoReturn:
        rows = self._rows_of(step).tolist()
        self._report.incident(step, 'nonfinite', what, {'rows': rows, **self._finite}, say=False)
        before = ', '.join(
            f'{name} {self._finite[name]:.4g}' for name in ('loss', 'grad_norm', 'lr') if name in self._finite
        )
        raise NonFiniteError(
            f'step {step}: {what}. Nothing of it is saved. Look at the rows of its batch, {rows}; or go on past it with '
            f'optim.skip_nonfinite; another optim.peak_lr is another run, in a workdir of its own. '
            f'Last finite metrics: {before or "none"}'
        )


class Spikes:
    """Losses that stand out from the last WINDOW ones, by median and median absolute deviation."""

    def __init__(self, sigmas: float) -> None:
        self._sigmas = sigmas
        self._losses: collections.deque[float] = collections.deque(maxlen=WINDOW)
        self._high = False

    def told(self, loss: float) -> str:
        """What there is to say of the next loss: '' unless a spike begins."""
        before = np.array(self._losses)
        self._losses.append(loss)
        if not self._sigmas or len(before) < WINDOW // 4:
            return ''
        median = float(np.median(before))
        deviation = SIGMA * float(np.median(np.abs(before - median)))
        was_high, self._high = self._high, loss > median + self._sigmas * deviation
        if self._high and not was_high:
            return f'against a median of {median:.4f} with a deviation of {deviation:.4f} over {len(before)} updates'
        return ''


def skipped_before(incidents: Sequence[dict], step: int) -> int:
    """Updates left out in a row, up to the one that led to `step`."""
    steps = {line['step'] for line in incidents if line['kind'] == 'skipped'}
    count = 0
    while step - count in steps:
        count += 1
    return count
