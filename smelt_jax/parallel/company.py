"""Processes of a run that keep an eye on each other: who is gone is named, and the others end at once."""

import os
import socket
import sys
import threading

DONE, GONE = 'done', 'gone'


class Company:
    """The connections of a roll call, followed by a thread until the run is done.

    A process that ends without `leave` is gone, whatever it died of; process 0 tells the others, and every one says so in a
    line and ends. What a run has saved stays.
    """

    def __init__(self, peers: dict[int, socket.socket], count: int, timeout_seconds: float) -> None:
        self._peers, self._count = peers, count
        self._lock, self._left = threading.Lock(), False
        for number, peer in peers.items():
            peer.settimeout(None)
            _keep_alive(peer, timeout_seconds)
            threading.Thread(target=self._follow, args=(number, peer), daemon=True).start()

    def leave(self) -> None:
        """This process has ended as it should. May be said again."""
        with self._lock:
            self._left = True
        self._tell(DONE)

    def _tell(self, what: str) -> None:
        for peer in self._peers.values():
            try:
                peer.sendall(f'{what}\n'.encode())
            except OSError:  # it has ended, too
                continue

    def _follow(self, number: int, peer: socket.socket) -> None:
        lost = str(number)
        try:
            for line in peer.makefile():
                if line.strip() == DONE:
                    return
                if line.startswith(GONE):
                    lost = line.split()[1]
                    break
        except OSError:
            pass
        with self._lock:  # the first who sees it says it
            if self._left:
                return
            self._tell(f'{GONE} {lost}')
            message = f'process {lost} of {self._count} is gone; its own log says why. Run all again to go on'
            print(f'{sys.argv[0]}: error: {message}', file=sys.stderr, flush=True)
            # Not an exception: the main thread may wait for the one that is gone, and would for ever.
            os._exit(os.EX_TEMPFAIL)


def _keep_alive(peer: socket.socket, timeout_seconds: float) -> None:
    """A machine that vanishes without a word is noticed within about the time."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (('TCP_KEEPIDLE', timeout_seconds / 2), ('TCP_KEEPINTVL', timeout_seconds / 8)):
        if hasattr(socket, option):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), max(1, round(seconds)))
    if hasattr(socket, 'TCP_KEEPCNT'):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
