"""TcpFaults: a TCP proxy that damages, cuts, repeats, delays or holds back what a server sends, at random bytes."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from random import Random

FAULTS = ("cut", "flip", "repeat", "delay", "hold")
"""The possible faults of a connection: it ends; a bit changes; bytes come twice; they come late; or no more bytes come,
and the connection stays open, as after a cut of the network."""

DELAY_SECONDS = 0.02
MOST_BYTES = 6000
"""The number of bytes of the server's answers within which a fault happens."""


class TcpFaults:
    """A context manager. ``rate``: how many of the connections get a fault, 0 to 1; any thread may change it. The next
    fault is one of the rarest until then."""

    def __init__(self, upstream: tuple[str, int], random: Random) -> None:
        self.upstream = upstream
        self.rate = 0.0
        self.injected: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self._random = random
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_all()

    def drop_all(self) -> None:
        """End all connections."""
        with self._lock:
            left, self._open = self._open, set()
        for each in left:
            _end(each)

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self.upstream)
            except OSError:
                if not self._ended.is_set():
                    _end(client)
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
                fewest = min(self.injected.values())
                seldom = [name for name in FAULTS if self.injected[name] == fewest]
                fault = self._random.choice(seldom) if self._random.random() < self.rate else ""
                at = self._random.randrange(MOST_BYTES)
            threading.Thread(target=self._pass, args=(client, server, "", 0), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, fault, at), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, fault: str, left: int) -> None:
        with suppress(OSError):
            while data := source.recv(64 << 10):
                if fault and left < len(data):
                    self.injected[fault] += 1
                    data = self._change(data, fault, left, target)
                    if fault == "hold":
                        while source.recv(64 << 10):
                            pass
                        return
                    if fault == "cut":
                        target.sendall(data)
                        break
                    fault = ""
                left -= len(data)
                target.sendall(data)
        if fault != "hold":
            _end(source)
            _end(target)

    def _change(self, data: bytes, fault: str, at: int, target: socket.socket) -> bytes:
        if fault == "cut":
            return data[:at]
        if fault == "flip":
            return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        if fault == "repeat":
            return data + data[at:]
        target.sendall(data[:at])
        self._ended.wait(DELAY_SECONDS)
        return data[at:]


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
