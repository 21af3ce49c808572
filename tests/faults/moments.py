"""When something happens to a process: moments that can be seen from outside, and what it was doing then."""

import dataclasses
import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from faults.looks import Lost, lines, saved, unfinished, until
from faults.world import KEEP, PINNED, Place


@dataclasses.dataclass
class Running:
    """A command that is to be disturbed."""

    place: Place
    verb: str
    process: subprocess.Popen
    random: random.Random
    began: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def folder(self) -> Path:
        """What it writes."""
        return self.place.target(self.verb)

    def older(self, seconds: float) -> bool:
        """Whether it has run for so long."""
        return time.monotonic() - self.began > seconds


@dataclasses.dataclass(frozen=True)
class Moment:
    """A phase of a command.

    Attributes:
      name: of the phase; `phase` says it of a process that is in it.
      verb: of the command.
      draw: a condition that, as soon as it holds, ends the waiting; chance is in it.
      late: then it is waited on for a time between 0 and so many seconds.
      flags: of the command, so that the phase takes long enough.
      cold: whether nothing compiled may be found.
    """

    name: str
    verb: str
    draw: Callable[[Running], Callable[[], bool]]
    late: float = 0.0
    flags: tuple[str, ...] = ()
    cold: bool = False

    def start(self, place: Place, chance: random.Random) -> Running:
        """Starts the command and returns at the moment. Raises Lost if it ends before."""
        cold = {'JAX_COMPILATION_CACHE_DIR': str(place.folder / 'cold')} if self.cold else {}
        running = Running(place, self.verb, place.start(self.verb, *self.flags, **cold), chance)
        come = until(self.draw(running), running.process)
        if come:
            time.sleep(chance.uniform(0, self.late))
        elif running.process.returncode:
            raise Lost(f'smelt {self.verb} ended with {running.process.returncode} undisturbed: {place.last_line()}')
        return running


def phase(running: Running) -> str:
    """What a process was doing, from what it has left; of a living one, what it is doing."""
    folder = running.folder
    if running.verb == 'pack':
        return 'done' if (folder / 'manifest.json').exists() else 'pack' if (folder / '.packing').exists() else 'start'
    if running.verb == 'evaluate':
        return 'done' if (folder / 'records.jsonl').exists() else 'evaluate'
    if not (folder / 'holder').exists():
        return 'done' if saved(folder) else 'start'
    if unfinished(folder):
        return 'save'
    if len([step for step in saved(folder) if step != PINNED]) > KEEP or any(_torn(folder, s) for s in saved(folder)):
        return 'rotation'
    return 'steps' if lines(folder) else 'compile'


def handles(running: Running, signal: int) -> bool:
    """Whether it has come so far that it handles a signal itself. Linux alone tells; elsewhere it is taken for granted."""
    if not Path('/proc/self/status').exists():
        return True
    try:
        status = Path(f'/proc/{running.process.pid}/status').read_text()
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith('SigCgt'))
    return bool(int(caught.split()[1], 16) >> (signal - 1) & 1)


def _torn(folder: Path, step: int) -> bool:
    names = os.listdir(folder / 'checkpoints' / str(step))
    return not {'params', 'optimizer', '_CHECKPOINT_METADATA'} <= set(names)


def _start(running: Running) -> Callable[[], bool]:
    seconds = running.random.uniform(0.0, 1.6)
    return lambda: running.older(seconds)


def _compile(running: Running) -> Callable[[], bool]:
    return lambda: (running.folder / 'holder').exists()


def _steps(running: Running) -> Callable[[], bool]:
    number = running.random.randint(1, 6)  # soon the pinned step is saved
    return lambda: lines(running.folder) >= number


def _save(running: Running) -> Callable[[], bool]:
    number = running.random.randint(1, 24 if running.verb == 'train' else 7)
    return lambda: lines(running.folder) >= number and bool(unfinished(running.folder))


def _rotation(running: Running) -> Callable[[], bool]:
    number = running.random.randint(0, 4)
    return lambda: (
        len([step for step in saved(running.folder) if step != PINNED]) > KEEP and lines(running.folder) > 12 + number
    )


def _evaluate(running: Running) -> Callable[[], bool]:
    seconds = running.random.uniform(0.0, 2.2)
    return lambda: running.older(seconds)


def _pack(running: Running) -> Callable[[], bool]:
    return lambda: (running.folder / '.packing').exists()


RARE = ('--config.train.save_every=1000',)  # but the pinned step and the last are saved
OFTEN = ('--config.train.save_every=1',)
START = Moment('start', 'train', _start)
COMPILE = Moment('compile', 'train', _compile, late=4.0, cold=True)
STEPS = Moment('steps', 'train', _steps, flags=RARE)
SAVE = Moment('save', 'train', _save, late=0.12)
ROTATION = Moment('rotation', 'train', _rotation, flags=OFTEN)
BRANCH = Moment('save', 'branch', _save, late=0.12)
EVALUATE = Moment('evaluate', 'evaluate', _evaluate)
PACK = Moment('pack', 'pack', _pack, late=0.6)

MOMENTS = (START, COMPILE, STEPS, SAVE, ROTATION, BRANCH, EVALUATE, PACK)
