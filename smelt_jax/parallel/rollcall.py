"""Whether every process of a run has come. jax ends the program when one has not, and does not say which."""

import socket
import time

HERE = 'here'


def roll_call(coordinator: str, process_id: int, process_count: int, timeout_seconds: float) -> None:
    """Returns when all processes have called. Process 0 listens at `coordinator`, and leaves the port free again.

    Raises:
      ValueError: in every process that came, naming those that did not.
    """
    host, _, port = coordinator.rpartition(':')
    if not host or not port.isdecimal():
        raise ValueError(f'--coordinator={coordinator}: expected HOST:PORT of process 0, or auto')
    deadline = time.monotonic() + timeout_seconds
    if process_id == 0:
        _listen(int(port), process_count, deadline, timeout_seconds)
    else:
        _call(host, int(port), process_id, deadline, timeout_seconds)


def _listen(port: int, process_count: int, deadline: float, timeout_seconds: float) -> None:
    present: dict[int, socket.socket] = {}
    try:
        with socket.create_server(('', port)) as server:
            while len(present) < process_count - 1 and (left := deadline - time.monotonic()) > 0:
                server.settimeout(left)
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    break
                peer.settimeout(5)
                present[int(peer.makefile().readline() or 0)] = peer
        missing = [str(number) for number in range(1, process_count) if number not in present]
        answer = HERE
        if missing:
            answer = (
                f'process {", ".join(missing)} of {process_count} did not come within {timeout_seconds:g} s; start it'
            )
        for peer in present.values():
            peer.sendall(f'{answer}\n'.encode())
        if missing:
            raise ValueError(answer)
    finally:
        for peer in present.values():
            peer.close()


def _call(host: str, port: int, process_id: int, deadline: float, timeout_seconds: float) -> None:
    while True:
        try:
            with socket.create_connection((host, port), timeout=5) as peer:
                peer.sendall(f'{process_id}\n'.encode())
                peer.settimeout(max(deadline - time.monotonic(), 0) + 10)
                answer = peer.makefile().readline().strip()
        except OSError:
            answer = ''
        if answer == HERE:
            return
        if answer:
            raise ValueError(answer)
        if time.monotonic() > deadline:
            raise ValueError(f'process 0 does not answer at {host}:{port} for {timeout_seconds:g} s; start it')
        time.sleep(0.2)
