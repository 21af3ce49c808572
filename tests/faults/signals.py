"""SIGTERM and SIGINT: the run saves what it has, says so, and is gone within seconds; a second signal ends it at once."""

import dataclasses
import functools
import random
import re
import signal
import time
from collections.abc import Callable

from faults import moments
from faults.looks import Lost, ended, lines, saved
from faults.moments import Moment, Running, handles, phase
from faults.scenario import Scenario, Seen
from faults.world import PINNED, Place

WITHIN = 15.0  # seconds; a few are promised, on a machine that does nothing else
AT_ONCE = 'at once since it came twice'
AGAIN = 'run the same command again to go on'


def signalled(moment: Moment, number: signal.Signals, twice: float, place: Place, chance: random.Random) -> Seen:
    """A signal at the moment, and again after `twice` seconds, if that is not 0."""
    place.prepare(moment.verb)
    return _signal(moment.start(place, chance), moment.name, moment.flags, number, twice)


def while_data_is_late(number: signal.Signals, place: Place, chance: random.Random) -> Seen:
    """A signal to a run that waits for a row, with updates made since the last checkpoint."""
    updates = chance.choice([5, 7, 11, 14, 18, 21, 23, 27])
    one_reader = (f'--config.data.prefetch={chance.randint(0, 1)}',)  # the loop itself, or a thread that it waits for
    running = Running(place, 'train', place.stalled('train', updates, *one_reader), chance)
    if phase(running) != 'steps':
        raise Lost(f'a run that waits for rows is seen in its {phase(running)}')
    return _signal(running, 'steps', (), number, 0.0, updates)


def _signal(
    running: Running, name: str, flags: tuple[str, ...], number: signal.Signals, twice: float, made: int = 0
) -> Seen:
    """`made`: the updates that are known to be made, if those that are logged may be fewer."""
    place, verb, folder = running.place, running.verb, running.folder
    doing, made = phase(running), made or lines(folder)
    sent = time.monotonic()
    running.process.send_signal(number)
    if twice:
        time.sleep(twice)
        running.process.send_signal(number)
    code = ended(running.process, WITHIN)
    seconds, seen = time.monotonic() - sent, Seen()
    if code:  # else it was done before
        if code != 128 + number:
            raise Lost(
                f'{verb} in its {doing}: {number.name} ended it with {code}, not {128 + number}: {place.last_line()}'
            )
        at_once = twice > 1 and AT_ONCE in place.last_line()
        seen.add(doing, doing == name, True, seconds)
        if not at_once:
            _require_promise(place, verb, number, made)
    (place.folder / 'slow').unlink(missing_ok=True)
    place.run(verb, *flags)
    return seen


def _require_promise(place: Place, verb: str, number: signal.Signals, made: int) -> None:
    """Raises Lost unless the last line says what it must, and what it says is so. `made`: updates that were made before."""
    folder, last = place.target(verb), place.last_line()
    saving = r'(?: at step (\d+),(?: the last,)? which is saved)?'
    match = re.fullmatch(rf'smelt {verb}: stopped by {number.name}{saving}; {AGAIN}', last)
    if not match:
        raise Lost(f'after {number.name} the last line of smelt {verb} was {last!r}')
    if verb in ('train', 'branch') and (made or lines(folder)):
        start, kept = PINNED if verb == 'branch' else 0, max(saved(folder), default=0)
        if lines(folder) < made:
            raise Lost(f'{made} updates were made before {number.name}, and {lines(folder)} are logged')
        if kept != lines(folder) + start or (match[1] and int(match[1]) != kept):
            raise Lost(f'{last!r}, but the last checkpoint is {kept}, the last line {lines(folder) + start}')


def paused(place: Place, chance: random.Random) -> Seen:
    """SIGSTOP, SIGCONT a second later: nothing happens."""
    running = moments.SAVE.start(place, chance)
    seen = Seen()
    seen.add(phase(running))
    running.process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    running.process.send_signal(signal.SIGCONT)
    if code := ended(running.process):
        raise Lost(f'paused for a second, it ended with {code}: {place.last_line()}')
    return seen


def _once_handled(draw: Callable) -> Callable:
    """The moment, but not before the command has come to handle SIGTERM: Python itself takes a while to start."""

    def both(running: Running) -> Callable[[], bool]:
        come = draw(running)
        return lambda: come() and handles(running, signal.SIGTERM)

    return both


def _reading(running: Running) -> Callable[[], bool]:
    seconds = running.random.uniform(0.5, 2.2)
    return lambda: running.older(seconds)


def scenarios() -> list[Scenario]:
    """Each signal at each phase; two of one kind; and the signals that are nobody's business."""
    found = []
    early = dataclasses.replace(moments.START, draw=_once_handled(moments.START.draw))
    reading = dataclasses.replace(moments.EVALUATE, draw=_once_handled(_reading))
    packing = dataclasses.replace(moments.PACK, draw=_once_handled(moments.PACK.draw))
    phases = (early, moments.COMPILE, moments.STEPS, moments.SAVE, moments.BRANCH, reading, packing)
    for number, often in ((signal.SIGTERM, 2), (signal.SIGINT, 1)):
        for moment in phases:
            line = f'{number.name}: `smelt {moment.verb}`, {moment.name}'
            act = functools.partial(signalled, moment, number, 0.0)
            short = int(
                (moment, number)
                in ((moments.COMPILE, signal.SIGTERM), (moments.SAVE, signal.SIGTERM), (packing, signal.SIGINT))
            )
            # Starting is many things; a signal in the middle of an import is another one each time.
            times = 6 if moment is early else often
            found.append(Scenario(line, act, (moment.verb,), times, short))
        waiting = functools.partial(while_data_is_late, number)
        found.append(
            Scenario(f'{number.name}: waiting for rows', waiting, ('train',), 2, int(number == signal.SIGTERM))
        )
        twice = functools.partial(signalled, moments.SAVE, number, 0.1)
        found.append(Scenario(f'{number.name}, and the same again within a second: one signal', twice, ('train',), 2))
        twice = functools.partial(signalled, moments.COMPILE, number, 1.3)
        found.append(Scenario(f'{number.name}, and again a second later: the end at once', twice, ('train',), 3))
    found.append(Scenario('SIGSTOP for a second in a save', paused, ('train',), 1))
    return found
