"""Where metrics go: metrics.jsonl, TensorBoard, the terminal."""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from typing import Any

import rich.progress

from smelt_jax.runs import RunDir
from smelt_jax.screen import Progress
from smelt_jax.storage.lines import Lines
from smelt_jax.train.events import Events

CLOCK_KEYS = ('tokens_per_second', 'mfu', 'seconds')


class Report:
    """Writes a line a log step and shows progress. Use as a context manager."""

    def __init__(self, run_dir: RunDir, label: str, start: int, stop: int, flops_per_token: float, peak: float) -> None:
        """
        Args:
          run_dir: of the run; lines of steps after `start` are dropped, since they are made again.
          label: shown before the progress.
          start, stop: the first step and the end.
          flops_per_token: training FLOPs of the model per token.
          peak: FLOP/s of the machine.
        """
        run_dir.forget_metrics_after(start)
        self._flops_per_token, self._peak = flops_per_token, peak
        self._lines, self._incidents = Lines(run_dir.metrics_file), Lines(run_dir.incidents_file)
        self._events = Events(run_dir.tensorboard, start)
        console = Progress()
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn('{task.description}', markup=False),
            rich.progress.BarColumn(bar_width=20),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn('{task.fields[note]}', markup=False),
            rich.progress.TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._plain = None if console.is_terminal else console
        self._task = self._bar.add_task(label, total=stop, completed=start, note='compiling')
        self._label, self._stop = label, stop
        self._began = time.perf_counter()
        self._clock: float | None = None
        self._clock_tokens = 0.0
        self._last_plain = 0.0

    def __enter__(self) -> 'Report':
        self._bar.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._bar.stop()
        # What failed once fails again: the first error is the one to see.
        with contextlib.suppress(OSError) if kind else contextlib.nullcontext():
            self._lines.close()
            self._incidents.close()
            self._events.close()

    def start_clock(self) -> None:
        """Compilation is over: speed is counted from here."""
        self._clock, self._clock_tokens = time.perf_counter(), 0.0

    def step(self, step: int, tokens: float) -> None:
        """An update is done that read `tokens` tokens."""
        self._clock_tokens += tokens
        self._bar.update(self._task, completed=step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """A line of metrics, with the speed since the last one; it is null as long as nothing but compiling was timed."""
        now = time.perf_counter()
        speed = None if self._clock is None else self._clock_tokens / (now - self._clock)
        line = {
            'step': step,
            **_json(metrics),
            'tokens_per_second': speed,
            'mfu': None if speed is None else speed * self._flops_per_token / self._peak,
            'seconds': now - self._began,
        }
        if self._clock is not None:
            self._clock, self._clock_tokens = now, 0.0
        self._lines.add(json.dumps(line))
        self._events.add(step, {key: value for key, value in line.items() if key != 'step' and value is not None})
        note = f'loss {metrics["loss"]:.4f}'
        if speed is not None:
            note += f'  {speed:,.0f} tokens/s  MFU {line["mfu"]:.2f}'
        self._bar.update(self._task, note=note)
        if self._plain and (now - self._last_plain > 10 or step == self._stop):
            self._last_plain = now
            self._plain.print(f'{self._label}  step {step}/{self._stop}  {note}', highlight=False)

    def flush(self) -> None:
        """All lines are in their files: those of updates that a checkpoint is about to hold would not be made again."""
        self._lines.flush()
        self._incidents.flush()
        self._events.flush()

    def incident(
        self, step: int, kind: str, text: str, values: Mapping[str, Any] | None = None, say: bool = True
    ) -> None:
        """A line of incidents.jsonl, shown too if `say`. Kinds: see `train/watch.py`."""
        line = {'step': step, 'kind': kind, 'time': time.strftime('%FT%T%z'), 'text': text, **_json(values or {})}
        self._incidents.add(json.dumps(line))
        if say:
            (self._plain or self._bar.console).print(
                f'{self._label}  step {step}: {text}', highlight=False, soft_wrap=True
            )


class Silence:
    """A report of nothing: of many processes one reports."""

    def __enter__(self) -> 'Silence':
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start_clock(self) -> None:
        """Nothing."""

    def step(self, step: int, tokens: float) -> None:
        """Nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""

    def incident(
        self, step: int, kind: str, text: str, values: Mapping[str, Any] | None = None, say: bool = True
    ) -> None:
        """Nothing."""


def _json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without numbers that JSON has no word for: they become null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
