"""Signals: an exception where nothing would be lost, a note where something would, the end if they come twice."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smelt_jax import stop

ROOT = Path(__file__).parents[1]
GO_ON = 'run the same command again to go on'

PROGRAM = """
import os, sys, threading, time
from smelt_jax import stop
sys.argv = ['smelt some']
stop.GRACE_SECONDS, stop.TWICE_SECONDS = 1.0, 0.3

def say(word):
    print(word, flush=True)

def work():
    BODY

try:
    with stop.listening():
        work()
except stop.Stopped as stopped:
    print('out', stopped, flush=True)
    sys.exit(stopped.code)
"""


class Program:
    """A process that runs `body`, and says `ready` when a signal may come."""

    def __init__(self, body: str) -> None:
        source = PROGRAM.replace('BODY', body.strip('\n').replace('\n', '\n    '))
        self.process = subprocess.Popen(
            [sys.executable, '-c', source], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == 'ready\n'

    def send(self, *numbers: int, apart: float = 0.0) -> tuple[int, str, str]:
        """Sends signals; returns the exit code and what was printed after `ready`."""
        for number in numbers:
            self.process.send_signal(number)
            time.sleep(apart)
        out, err = self.process.stdout.read(), self.process.stderr.read()
        return self.process.wait(20), out, err


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_is_an_exception_where_nothing_would_be_lost(number: signal.Signals, code: int) -> None:
    done = Program("""
try:
    say('ready'); time.sleep(15)
finally:
    say('tidy')
""").send(number)
    assert done == (code, f'tidy\nout stopped by {number.name}; {GO_ON}\n', '')


def test_it_is_noted_where_something_would_be_lost() -> None:
    done = Program("""
with stop.keeping():
    stop.keep()
    say('ready')
    while not stop.asked():
        time.sleep(0.01)
    time.sleep(1.5)  # more than the grace: saving takes its time
    say('saved')
time.sleep(1.5)
raise stop.Stopped(stop.asked(), ' at step 7, which is saved')
""").send(signal.SIGTERM)
    assert done[:2] == (143, f'saved\nout stopped by SIGTERM at step 7, which is saved; {GO_ON}\n')
    assert done[2] == 'smelt some: SIGTERM: what is done is saved first; a second one ends it at once\n'


def test_a_second_one_is_the_end() -> None:
    done = Program("""
with stop.keeping():
    stop.keep()
    say('ready'); time.sleep(15); say('never')
""").send(signal.SIGTERM, signal.SIGTERM, apart=0.6)
    assert done[:2] == (143, '')
    assert done[2].endswith(f'\nsmelt some: stopped by SIGTERM, at once since it came twice; {GO_ON}\n')


def test_the_same_one_twice_at_once_is_one() -> None:
    """`timeout` sends it to the process and to its group."""
    done = Program("""
with stop.keeping():
    stop.keep()
    say('ready'); time.sleep(1.0); say('saved')
raise stop.Stopped(stop.asked())
""").send(signal.SIGTERM, signal.SIGTERM, apart=0.05)
    assert done[:2] == (143, f'saved\nout stopped by SIGTERM; {GO_ON}\n')


def test_a_main_thread_that_does_not_end_gets_a_grace() -> None:
    """It is in a compiler, or something swallows the exception."""
    done = Program("""
for second in range(15):
    try:
        if not second:
            say('ready')
        time.sleep(1)
    except BaseException:
        pass
say('never')
""").send(signal.SIGINT)
    assert done == (130, '', f'\nsmelt some: stopped by SIGINT; {GO_ON}\n')


def test_waiting_can_be_interrupted_though_something_would_be_lost() -> None:
    done = Program("""
with stop.keeping():
    stop.keep()
    try:
        with stop.interruptible():
            say('ready'); time.sleep(15)
    except stop.Stopped:
        say(f'saving, {stop.asked()}'); time.sleep(1.5)
raise stop.Stopped(stop.asked())
""").send(signal.SIGTERM)
    assert done[:2] == (143, f'saving, 15\nout stopped by SIGTERM; {GO_ON}\n')


def test_what_came_before_waiting_interrupts_it_too() -> None:
    done = Program("""
with stop.keeping():
    stop.keep()
    say('ready')
    while not stop.asked():
        time.sleep(0.01)
    try:
        with stop.interruptible():
            say('never')
    except stop.Stopped:
        say('saving')
raise stop.Stopped(stop.asked())
""").send(signal.SIGTERM)
    assert done[1].startswith('saving\n')


def test_a_forked_process_ends_alone() -> None:
    """A pool ends its workers by SIGTERM; its owner hears nothing of it."""
    done = Program("""
import signal
child = os.fork()
if not child:
    time.sleep(15)
    os._exit(0)
os.kill(child, signal.SIGTERM)
ended = os.waitpid(child, 0)[1]
time.sleep(1.3)
say('ready')
say(f'{ended} {stop.asked()}')
""").send()
    assert done == (0, f'{int(signal.SIGTERM)} 0\n', '')


def test_it_is_known_under_another_name() -> None:
    """The import of an extension makes an ImportError of it."""
    done = Program("""
try:
    say('ready'); time.sleep(15)
except BaseException as stopped:
    error = ImportError('while initializing')
raise stop.instead_of(error)
""").send(signal.SIGTERM)
    assert done == (143, f'out stopped by SIGTERM; {GO_ON}\n', '')


def test_what_fails_while_saving_keeps_its_name() -> None:
    done = Program("""
with stop.keeping():
    stop.keep()
    try:
        with stop.interruptible():
            say('ready'); time.sleep(15)
    except stop.Stopped:
        pass
    try:
        raise OSError('no room')
    except OSError as error:
        say(stop.instead_of(error))
""").send(signal.SIGTERM)
    assert done[:2] == (0, 'no room\n')


def test_a_burst_is_one() -> None:
    """Whatever comes on the way out changes nothing of it."""
    code, out, err = Program("""
try:
    say('ready'); time.sleep(15)
finally:
    time.sleep(0.2)
    say('tidy')
""").send(*[signal.SIGTERM] * 12, apart=0.005)
    assert (code, out, err) == (143, f'tidy\nout stopped by SIGTERM; {GO_ON}\n', '')


def test_what_was_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nohup and shells have it for what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop.listening():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_everything_is_as_it_was() -> None:
    before = [signal.getsignal(number) for number in stop.SIGNALS]
    with stop.listening(), stop.listening():
        assert [signal.getsignal(number) for number in stop.SIGNALS] != before
        assert stop.asked() == 0
    assert [signal.getsignal(number) for number in stop.SIGNALS] == before
