"""Whether every process of a run has come. jax ends the program when one has not, and does not say which."""

import socket
import time

HERE = 'here'
PATIENCE_SECONDS = 5  # with somebody who has connected and says nothing


def address_of(coordinator: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT. Raises ValueError if it is no such thing, or nobody knows the host."""
    host, _, text = coordinator.rpartition(':')
    port = int(text) if text.isdecimal() else 0
    host = host[1:-1] if host.startswith('[') and host.endswith(']') else host
    if not host or not 0 < port < 2**16 or '/' in host:
        raise ValueError(
            f'--coordinator={coordinator}: expected HOST:PORT of process 0 with a port up to 65535, or auto'
        )
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise ValueError(
            f'--coordinator={coordinator}: {host} is no host that is known here ({error.strerror})'
        ) from None
    return host, port


def roll_call(
    coordinator: str, process_id: int, process_count: int, timeout_seconds: float
) -> dict[int, socket.socket]:
    """Returns when all processes have called. Process 0 listens at `coordinator`, and does not listen any more then.

    Returns:
      Process → the open connection to it: to all others in process 0, to process 0 in the others.

    Raises:
      ValueError: in every process that came, naming those that did not, or what does not fit.
    """
    host, port = address_of(coordinator)
    deadline = time.monotonic() + timeout_seconds
    if process_id == 0:
        return _listen(coordinator, port, process_count, deadline, timeout_seconds)
    return {0: _call(host, port, process_id, process_count, deadline, timeout_seconds)}


def _listen(
    coordinator: str, port: int, count: int, deadline: float, timeout_seconds: float
) -> dict[int, socket.socket]:
    present: dict[int, socket.socket] = {}
    try:
        server = socket.create_server(('', port))
    except OSError as error:
        raise ValueError(f'--coordinator={coordinator}: process 0 cannot listen there: {error.strerror}') from None
    with server:
        while len(present) < count - 1 and (left := deadline - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                peer, _ = server.accept()
            except TimeoutError:
                break
            number = _number_of(peer, min(left, PATIENCE_SECONDS))
            if number is None:  # somebody who is none of us
                peer.close()
                continue
            wrong = _what_does_not_fit(*number, count, present)
            if wrong:
                present[-1] = peer
                return _refuse(present, wrong)
            present[number[0]] = peer
    missing = [str(number) for number in range(1, count) if number not in present]
    if missing:
        return _refuse(
            present, f'process {", ".join(missing)} of {count} did not come within {timeout_seconds:g} s; start it'
        )
    for peer in present.values():
        peer.sendall(f'{HERE}\n'.encode())
    return present


def _number_of(peer: socket.socket, seconds: float) -> tuple[int, int] | None:
    """(process, of how many) as the caller says."""
    peer.settimeout(seconds)
    try:
        words = peer.makefile().readline(100).split()
    except (OSError, UnicodeDecodeError):
        return None
    if len(words) != 3 or words[0] != HERE or not (words[1].isdecimal() and words[2].isdecimal()):
        return None
    return int(words[1]), int(words[2])


def _what_does_not_fit(number: int, of: int, count: int, present: dict[int, socket.socket]) -> str:
    if of != count:
        return f'process {number} was started with --process_count={of}, process 0 with {count}'
    if number in present or number == 0:
        return f'two processes were started with --process_id={number}; ids go from 0 to {count - 1}'
    return ''


def _refuse(present: dict[int, socket.socket], why: str) -> dict[int, socket.socket]:
    for peer in present.values():
        peer.sendall(f'{why}\n'.encode())
        peer.close()
    raise ValueError(why)


def _call(host: str, port: int, number: int, count: int, deadline: float, timeout_seconds: float) -> socket.socket:
    while True:
        answer, peer = '', None
        try:
            peer = socket.create_connection((host, port), timeout=PATIENCE_SECONDS)
            peer.sendall(f'{HERE} {number} {count}\n'.encode())
            peer.settimeout(max(deadline - time.monotonic(), 0) + 10)
            answer = peer.makefile().readline().strip()
        except OSError:
            pass
        if answer == HERE and peer is not None:
            return peer
        if peer is not None:
            peer.close()
        if answer:
            raise ValueError(answer)
        if time.monotonic() > deadline:
            raise ValueError(f'process 0 does not answer at {host}:{port} for {timeout_seconds:g} s; start it')
        time.sleep(0.2)
