"""A pass-through to an HTTP server that counts requests by their method, and the bytes that pass."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 18
WRITES = ("PUT", "POST")
METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")


class Counts:
    """What passed since the last ``reset``. Any thread may read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begin to count again."""
        with self._lock:
            self.requests: Counter[str] = Counter()
            self.sent = 0
            """Bytes from clients, with the heads of their requests."""
            self.received = 0
            """Bytes to clients, with the heads of the answers."""
            self.last = time.monotonic()
            """When the last byte of a PUT or POST, or of its answer, passed, as ``time.monotonic`` counts."""
            self.answered = 0
            """PUTs that were answered."""

    def add(
        self, sent: int = 0, received: int = 0, *, method: str = "", writes: bool = False, answered: bool = False
    ) -> None:
        """Count bytes of a client or to it, and a request or an answer. ``writes``: the request is a PUT or POST."""
        with self._lock:
            self.sent += sent
            self.received += received
            if writes:
                self.last = time.monotonic()
            self.answered += answered
            if method:
                self.requests[method] += 1


@contextmanager
def counting(endpoint: str) -> Iterator[tuple[str, Counts]]:
    """Yield the address of a pass-through to ``endpoint``, and its counts."""
    parts = urlsplit(endpoint)
    counts = Counts()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=_accept, args=(listener, parts.hostname, parts.port, counts), daemon=True).start()
        yield f"http://127.0.0.1:{port}", counts
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, host: str, port: int, counts: Counts) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:  # the pass-through was closed
            return
        try:
            _Connection(client, socket.create_connection((host, port)), counts).start()
        except OSError:
            client.close()


class _Connection:
    """A client's connection and the one to the server. A client sends a request only after the last one's answer."""

    def __init__(self, client: socket.socket, server: socket.socket, counts: Counts) -> None:
        self._client, self._server, self._counts = client, server, counts
        self._method = ""
        """Of the request that is not answered."""
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        threading.Thread(target=self._send, daemon=True).start()
        threading.Thread(target=self._answer, daemon=True).start()

    def _send(self) -> None:
        self._pass(self._client, self._server, self._count_sent)

    def _answer(self) -> None:
        self._pass(self._server, self._client, self._count_answer)

    def _count_sent(self, data: bytes) -> None:
        method = ""
        if not self._method and data.startswith(METHODS):
            self._method = method = data.split(b" ", 1)[0].decode()
        self._counts.add(len(data), method=method, writes=self._method in WRITES)

    def _count_answer(self, data: bytes) -> None:
        continues = data.startswith(b"HTTP/1.1 100 ")
        answered = self._method == "PUT" and not continues
        self._counts.add(received=len(data), writes=self._method in WRITES, answered=answered)
        if not continues:
            self._method = ""

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, count: object) -> None:
        try:
            while data := source.recv(CHUNK_BYTES):
                count(data)  # type: ignore[operator]
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
