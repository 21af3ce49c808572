"""Before a run of several processes starts: who is missing or does not fit is named, and strangers change nothing."""

import concurrent.futures
import socket
import time

import pytest
from runs_helper import free_port

from smelt_jax.parallel.rollcall import roll_call


def called(*calls: tuple[int, int]) -> list[str]:
    """What each of the processes (number, of how many) hears within a second: an error, or '' if all are there."""
    port = free_port()

    def one(call: tuple[int, int]) -> str:
        try:
            for peer in roll_call(f'localhost:{port}', *call, 1.0).values():
                peer.close()
        except ValueError as error:
            return str(error).replace(str(port), 'PORT')
        return ''

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(one, calls))


@pytest.mark.parametrize(
    ('calls', 'said'),
    [
        ([(0, 3), (1, 3), (2, 3)], ['', '', '']),
        ([(0, 4), (2, 4)], ['process 1, 3 of 4 did not come within 1 s; start it'] * 2),
        ([(2, 4)], ['process 0 does not answer at localhost:PORT for 1 s; start it']),
        ([(0, 2), (1, 3)], ['process 1 was started with --process_count=3, process 0 with 2'] * 2),
        ([(0, 3), (1, 3), (1, 3)], ['two processes were started with --process_id=1; ids go from 0 to 2'] * 3),
    ],
    ids=['all', 'two of four', 'not the first', 'another count', 'the same id'],
)
def test_who_is_missing_or_wrong_is_named_in_time(calls: list, said: list[str]) -> None:
    assert called(*calls) == said


@pytest.mark.parametrize('words', [b'GET / HTTP/1.0\r\n', b'', b'here 1\n', b'\xff\xfe\n'])
def test_a_stranger_at_the_port_changes_nothing(words: bytes) -> None:
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(roll_call, f'localhost:{port}', 0, 2, 20.0)
        while True:
            try:
                stranger = socket.create_connection(('localhost', port))
                break
            except OSError:
                time.sleep(0.01)
        with stranger:
            stranger.sendall(words)
        second = pool.submit(roll_call, f'localhost:{port}', 1, 2, 20.0)
        for peers in (first.result(), second.result()):
            for peer in peers.values():
                peer.close()


@pytest.mark.parametrize(
    ('coordinator', 'complaint'),
    [
        ('localhost:99999', 'expected HOST:PORT of process 0 with a port up to 65535'),
        ('localhost:0', 'expected HOST:PORT'),
        ('http://localhost:12', 'expected HOST:PORT'),
        ('nosuchhost.invalid:1234', 'nosuchhost.invalid is no host that is known here'),
    ],
)
def test_an_address_that_is_none_is_refused_at_once(coordinator: str, complaint: str) -> None:
    start = time.monotonic()
    with pytest.raises(ValueError, match=complaint):
        roll_call(coordinator, 1, 2, 100.0)
    assert time.monotonic() - start < 20


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(('', 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf'--coordinator=localhost:{port}: process 0 cannot listen there'):
            roll_call(f'localhost:{port}', 0, 2, 1.0)
