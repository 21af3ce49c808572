"""Disks that are full, and folders that cannot be written."""

import ctypes
import functools
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

from runs_helper import fill

from faults import moments
from faults.looks import Lost, ended, saved
from faults.moments import Moment, phase
from faults.scenario import Scenario, Seen, Skip
from faults.world import Place

READ_ONLY, BIND, REMOUNT, DETACH = 1, 4096, 32, 2  # of mount(2)
NO_ROOM = 'No space left on device|no room for the checkpoint|could not be written'


def filled(moment: Moment, said: str, place: Place, chance: random.Random) -> Seen:
    """The disk fills up at the moment. The command ends and says so; when there is room again, it goes on."""
    filler = _small_disk(place) / 'filler'
    running = moment.start(place, chance)
    doing, before = phase(running), saved(running.folder)
    fill(filler)
    code = ended(running.process)
    seen = Seen()
    if code:  # else all was written before
        _require_line(place, said, code)
        seen.add(doing, doing == moment.name, True)
    if before and not saved(running.folder):
        raise Lost(f'a full disk took the checkpoints {before}')
    filler.unlink()
    place.run(moment.verb, *moment.flags)
    return seen


def full_from_the_start(verb: str, place: Place, _: random.Random) -> Seen:
    """No byte is free when the command starts."""
    filler = _small_disk(place) / 'filler'
    place.prepare(verb)
    fill(filler)
    _require_line(place, 'No space left on device', place.run(verb, code=None))
    filler.unlink()
    place.run(verb)
    seen = Seen()
    seen.add('start', said=True)
    return seen


def read_only(verb: str, place: Place, _: random.Random) -> Seen:
    """The folder that the command writes is read-only; then it is not."""
    target = place.target(verb)
    if verb == 'train':
        place.halfway()
    place.prepare(verb)
    target.mkdir(exist_ok=True)
    _mount(place, target, target, None, BIND)
    _mount(place, target, target, None, BIND | REMOUNT | READ_ONLY)
    _require_line(place, 'Read-only file system', place.run(verb, code=None))
    place.after.close()
    place.run(verb)
    seen = Seen()
    seen.add('start', said=True)
    return seen


def read_only_input(verb: str, place: Place, _: random.Random) -> Seen:
    """What the command only reads can be read-only: a reader writes nothing there."""
    source = place.world.reference.pack if verb == 'train' else place.world.reference.trunk
    mine = place.pack if verb == 'train' else place.trunk
    mine.mkdir()
    _mount(place, source, mine, None, BIND)
    _mount(place, mine, mine, None, BIND | REMOUNT | READ_ONLY)
    place.run(verb)
    seen = Seen()
    seen.add('whole command')
    return seen


def immutable(place: Place, chance: random.Random) -> Seen:
    """checkpoints/ cannot be changed any more, in the middle of a run, not even by root."""
    running = moments.SAVE.start(place, chance)
    folder = place.trunk / 'checkpoints'
    if not shutil.which('chattr') or subprocess.run(['chattr', '+i', folder], capture_output=True).returncode:
        running.process.kill()
        ended(running.process)
        raise Skip('chattr +i is not possible here')
    place.after.callback(subprocess.run, ['chattr', '-i', folder], capture_output=True)
    doing, code = phase(running), ended(running.process)
    if code == 0:
        raise Lost('checkpoints/ could not be changed, and smelt train ended with 0')
    _require_line(place, 'Operation not permitted|could not be written|Permission denied', code)
    place.after.close()
    place.run('train')
    seen = Seen()
    seen.add(doing, True, True)
    return seen


def gone(place: Place, chance: random.Random) -> Seen:
    """Somebody removes the run directory while it is written. The command ends; run again, it starts anew."""
    running = moments.SAVE.start(place, chance)
    doing = phase(running)
    for _ in range(100):
        shutil.rmtree(place.trunk, ignore_errors=True)
        if not place.trunk.exists():
            break
    if code := ended(running.process):
        _require_line(place, '.', code)
    # Somebody removed it: what this process has made anew is not all there.
    shutil.rmtree(place.trunk, ignore_errors=True)
    place.run('train')
    seen = Seen()
    seen.add(doing, True, bool(code))
    return seen


def _require_line(place: Place, said: str, code: int) -> None:
    """Raises Lost unless the command ended with 1 and a line that says it."""
    if code != 1 or not any(re.match(rf'smelt \w+: error: .*({said})', line) for line in place.said().splitlines()):
        raise Lost(f'ended with {code}, and said {place.last_line()!r}, not: {said}')


def _small_disk(place: Place) -> Path:
    """Lets pack, trunk and leaf of a place be on a disk of 6 MB of its own; what the command says goes elsewhere."""
    disk = place.folder / 'disk'
    disk.mkdir()
    _mount(place, Path('tmpfs'), disk, b'tmpfs', 0, b'size=6m')
    place.pack, place.trunk, place.leaf = disk / 'pack', disk / 'trunk', disk / 'leaf'
    return disk


def _mount(
    place: Place, source: Path, target: Path, kind: bytes | None, flags: int, options: bytes | None = None
) -> None:
    """Mounts until the place is done with. Raises Skip where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(source), os.fsencode(target), kind, flags, options):
        raise Skip(f'nothing can be mounted here: {os.strerror(ctypes.get_errno())}')
    if not flags & REMOUNT:
        place.after.callback(libc.umount2, os.fsencode(target), DETACH)


def scenarios() -> list[Scenario]:
    """A disk that fills up at each phase, or is full, and folders that cannot be written."""
    found = []
    metrics = 'metrics.jsonl: No space left|tensorboard: No space left|events.*: No space left'
    for moment, said, times, short in (
        (moments.SAVE, NO_ROOM, 3, 1),
        (moments.STEPS, metrics, 2, 0),
        (moments.PACK, 'cannot write .*: No space left on device; make room', 2, 1),
        (moments.BRANCH, NO_ROOM, 1, 0),
    ):
        act = functools.partial(filled, moment, said)
        found.append(Scenario(f'Full disk: `smelt {moment.verb}`, {moment.name}', act, (moment.verb,), times, short))
    for verb in ('train', 'evaluate', 'pack'):
        act = functools.partial(full_from_the_start, verb)
        found.append(Scenario(f'Full disk: `smelt {verb}`, from the start', act, (verb,)))
        act = functools.partial(read_only, verb)
        found.append(Scenario(f'Read-only folder: `smelt {verb}`', act, (verb,)))
    for verb in ('train', 'branch'):
        act = functools.partial(read_only_input, verb)
        found.append(Scenario(f'Read-only input: `smelt {verb}`', act, (verb,)))
    found.append(Scenario('checkpoints/ made immutable in a save', immutable, ('train',)))
    found.append(Scenario('The run directory removed in a save', gone, ('train',)))
    return found
