"""SIGKILL: at every phase, once and again and again."""

import functools
import random
import signal
import time

from faults import moments
from faults.looks import Lost, ended
from faults.moments import Moment, phase
from faults.scenario import Scenario, Seen
from faults.world import VERBS, Place

# Seconds that a command takes at most, on a quiet machine: a kill comes within them.
LONGEST = {'pack': 1.2, 'train': 5.5, 'branch': 4.5, 'evaluate': 2.8}


def killed(moment: Moment, times: int, number: signal.Signals, place: Place, chance: random.Random) -> Seen:
    """Ended at the moment by a signal that nobody handles, `times` times in a row, then left alone."""
    seen = Seen()
    place.prepare(moment.verb)
    for _ in range(times):
        running = moment.start(place, chance)
        running.process.send_signal(number)
        if ended(running.process) == 0:  # it was done before
            break
        doing = phase(running)
        seen.add(doing, doing == moment.name)
    place.run(moment.verb, *moment.flags)
    return seen


def all_the_way(place: Place, chance: random.Random, each: int = 3) -> Seen:
    """From text to record: every command is killed at random and run again, `each` times, then left alone."""
    seen = Seen()
    for verb in VERBS:
        for left in range(each, -1, -1):
            process = place.start(verb)
            if left:
                time.sleep(chance.uniform(0.0, LONGEST[verb]))
                process.send_signal(signal.SIGKILL)
            code = ended(process)
            if code == 0:
                break
            if code != -signal.SIGKILL:
                raise Lost(f'smelt {verb}, run again after SIGKILL, ended with {code}: {place.last_line()}')
            running = moments.Running(place, verb, process, chance)
            seen.add(phase(running))
    return seen


def scenarios() -> list[Scenario]:
    """More than fifty kills; most of them while a checkpoint is saved."""
    found = []
    for moment, times, short in (
        (moments.START, 4, 0),
        (moments.COMPILE, 5, 1),
        (moments.STEPS, 6, 0),
        (moments.SAVE, 14, 1),
        (moments.ROTATION, 6, 1),
        (moments.BRANCH, 6, 1),
        (moments.EVALUATE, 5, 0),
        (moments.PACK, 8, 1),
    ):
        line = f'SIGKILL: `smelt {moment.verb}`, {moment.name}'
        found.append(Scenario(line, functools.partial(killed, moment, 1, signal.SIGKILL), (moment.verb,), times, short))
    again = functools.partial(killed, moments.SAVE, 5, signal.SIGKILL)
    found.append(Scenario('SIGKILL: five saves of one run', again, ('train',), 2))
    hung_up = functools.partial(killed, moments.SAVE, 1, signal.SIGHUP)
    found.append(Scenario('SIGHUP: `smelt train`, save', hung_up, ('train',), 2))
    found.append(Scenario('SIGKILL: every command from text to record, three times each', all_the_way, VERBS, 2))
    return found
