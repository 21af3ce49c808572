"""Processes that are many: one of two of a run, one of the workers of a pack, two runs in one directory."""

import functools
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

from packs import sentences, write_jsonl
from runs_helper import free_port

from faults.looks import Lost, Result, ended, lines, require_equal, saved, until
from faults.moments import Running, phase
from faults.scenario import Scenario, Seen
from faults.world import Place

NEWS = 20.0  # seconds after which the others have ended, too


def pair(place: Place) -> list[subprocess.Popen]:
    """Two processes of one run; what they say goes to log-0 and log-1."""
    place.arm, port, found = 'two', free_port(), []
    for number in (0, 1):
        place.log = place.folder / f'log-{number}'
        joined = (f'--coordinator=localhost:{port}', f'--process_id={number}', '--process_count=2', '--peer_timeout=60')
        found.append(place.start('train', *joined))
    return found


def undisturbed(place: Place) -> Result:
    """What two processes come to, made once: sums over two devices are rounded otherwise than on one."""
    world = place.world
    if 'two' not in world.expected:
        other = world.place()
        _both_done(other, pair(other))
        world.expected['two'] = other.result('train')
    return world.expected['two']


def one_of_two(which: int, number: signal.Signals, place: Place, chance: random.Random) -> Seen:
    """A signal to one of them. SIGKILL: the other one names it, at once. SIGTERM: both save the same step and end so."""
    expected, both, updates = undisturbed(place), pair(place), chance.randint(1, 20)
    running = Running(place, 'train', both[0], chance)
    if not until(lambda: lines(place.trunk) >= updates, both[0]):
        raise Lost(f'a run of two processes ended undisturbed: {_said(place, 0)}')
    doing, sent = phase(running), time.monotonic()
    both[which].send_signal(number)
    codes = [ended(process, NEWS) for process in both]
    seconds, seen = time.monotonic() - sent, Seen()
    seen.add(doing, True, True, seconds)
    if number == signal.SIGKILL:
        other = 1 - which
        if codes[which] != -signal.SIGKILL or codes[other] != os.EX_TEMPFAIL:
            raise Lost(f'one of two was killed, and they ended with {codes}: {_said(place, other)}')
        # jax may have noticed, too, and have the last word.
        if f'smelt train: error: process {which} of 2 is gone' not in (place.folder / f'log-{other}').read_text():
            raise Lost(f'the other one did not name it: {_said(place, other)}')
    else:
        _require_same_end(place, number, codes)
    _both_done(place, pair(place))
    require_equal(place.result('train'), expected, 'two processes')
    return seen


def _require_same_end(place: Place, number: signal.Signals, codes: list[int]) -> None:
    """Raises Lost unless both say that they have saved the same step, and it is there."""
    if codes != [128 + number] * 2:
        raise Lost(f'{number.name} to one of two: they ended with {codes}: {_said(place, 0)} / {_said(place, 1)}')
    steps = [re.findall(r'at step (\d+), which is saved', _said(place, process)) for process in (0, 1)]
    if steps[0] != steps[1]:
        raise Lost(f'{number.name} to one of two: they say that the steps {steps} are saved')
    if lines(place.trunk) not in saved(place.trunk):
        raise Lost(f'{lines(place.trunk)} updates were made; {saved(place.trunk)} are saved')


def _both_done(place: Place, both: list[subprocess.Popen]) -> None:
    codes = [ended(process) for process in both]
    if codes != [0, 0]:
        raise Lost(f'two processes, run again, ended with {codes}: {_said(place, 0)} / {_said(place, 1)}')


def _said(place: Place, number: int) -> str:
    """The last line of one of two."""
    return (place.folder.joinpath(f'log-{number}').read_text(errors='replace').splitlines() or [''])[-1]


def two_runs(place: Place, chance: random.Random) -> Seen:
    """A second `smelt train` in the same workdir is refused, and the first does not notice."""
    first = place.stalled('train', chance.randint(3, 9))
    log, place.log = place.log, place.folder / 'second'
    place.run('train', code=1)
    if f'is in use by process {first.pid} on ' not in place.last_line():
        raise Lost(f'a second run in one workdir said {place.last_line()!r}')
    place.log = log
    (place.folder / 'slow').unlink()
    if code := ended(first):
        raise Lost(f'the first run ended with {code}, because a second one came: {place.last_line()}')
    seen = Seen()
    seen.add('steps', said=True)
    return seen


def two_at_once(place: Place, _: random.Random) -> Seen:
    """Two are started in the same moment: one at least does the work, whoever; what comes out is one run."""
    both = [place.start('train') for _ in range(2)]
    codes = sorted(ended(process) for process in both)
    if codes[0] != 0 or codes[1] not in (0, 1):
        raise Lost(f'two runs that were started at once ended with {codes}: {place.last_line()}')
    seen = Seen()
    seen.add('start')
    return seen


def worker_killed(place: Place, chance: random.Random) -> Seen:
    """A process that tokenizes is killed, as by a machine without memory: `pack` ends with an error, and does not wait."""
    world, large = place.world, place.world.folder / 'large.jsonl'
    more = (f'--config.pack.corpora=("jsonl:{large}",)',)
    if 'large pack' not in world.expected:
        write_jsonl(large, (f'{number} {text}' for number in range(8) for text in sentences(3000)))  # two parts
        other = world.place()
        other.run('pack', *more)
        world.expected['large pack'] = other.result('pack')
    process, seen = place.start('pack', *more), Seen()
    until(lambda: len(_children(process.pid)) == 2, process)
    time.sleep(chance.uniform(0.0, 0.6))
    for child in _children(process.pid)[-1:]:
        os.kill(child, signal.SIGKILL)
    sent, code = time.monotonic(), ended(process)
    if code:
        if code != 1 or not place.last_line().startswith('smelt pack: error: '):
            raise Lost(f'a worker was killed, and smelt pack ended with {code}: {place.last_line()}')
        seen.add('pack', said=True, seconds=time.monotonic() - sent)
    place.run('pack', *more)
    require_equal(place.result('pack'), world.expected['large pack'], 'the pack')
    return seen


def _children(pid: int) -> list[int]:
    """Its tokenizing processes: not the one that only watches over shared memory."""
    found = Path(f'/proc/{pid}/task/{pid}/children').read_text().split() if Path(f'/proc/{pid}').exists() else []
    return [int(child) for child in found if b'spawn_main' in _command(int(child))]


def _command(pid: int) -> bytes:
    try:
        return Path(f'/proc/{pid}/cmdline').read_bytes()
    except OSError:
        return b''


def scenarios() -> list[Scenario]:
    """One of two, of two runs, of the workers."""
    found = []
    for which in (0, 1):
        for number in (signal.SIGKILL, signal.SIGTERM):
            act = functools.partial(one_of_two, which, number)
            short = int((which, number) == (1, signal.SIGTERM))
            found.append(Scenario(f'{number.name} to one of two processes', act, (), 2, short))
    found.append(Scenario('A second run in one workdir', two_runs, ('train',), 1, 1))
    found.append(Scenario('Two runs started at once in one workdir', two_at_once, ('train',), 2))
    found.append(Scenario('SIGKILL to a worker of `smelt pack`', worker_killed, (), 3))
    return found
