"""A NATS server with a JetStream stream on disk, for the benchmark of served logs: publish a record, and see it.

The client speaks NATS's text protocol over one socket, so that it costs as little as the benchmark's own subscriber.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SERVER = "nats-server"
START_SECONDS = 30.0
_SUBJECT, _ACKS, _SEEN = "orders", "acks", "seen"


class JetStream:
    """A stream, which one connection writes to and reads from. Raises ClickException if the server refuses anything."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        if not self._lines.readline().startswith(b"INFO"):
            raise click.ClickException("this is not a NATS server")
        self._send(b'CONNECT {"verbose":false}\r\n')
        for name in (_ACKS, _SEEN):
            self._send(f"SUB {name} {name}\r\n".encode())
        stream = {"name": _SUBJECT, "subjects": [_SUBJECT], "storage": "file"}
        self._ask(f"$JS.API.STREAM.CREATE.{_SUBJECT}", stream)
        consumer = {"deliver_subject": _SEEN, "deliver_policy": "new", "ack_policy": "none"}
        self._ask(f"$JS.API.CONSUMER.CREATE.{_SUBJECT}", {"stream_name": _SUBJECT, "config": consumer})

    def publish_and_see(self, record: bytes) -> None:
        """Publish a record; return once the stream has acknowledged it, and its consumer has got it."""
        self._publish(_SUBJECT, record)
        waiting = {_ACKS, _SEEN}
        while waiting:
            subscription, body = self._receive()
            if subscription == _ACKS and b'"error"' in body:
                raise click.ClickException(body.decode())
            waiting.discard(subscription)

    def _ask(self, subject: str, fields: Mapping[str, object]) -> None:
        self._publish(subject, json.dumps(fields).encode())
        _, body = self._receive()
        if b'"error"' in body:
            raise click.ClickException(f"{subject}: {body.decode()}")

    def _publish(self, subject: str, body: bytes) -> None:
        self._send(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), _ACKS.encode(), len(body), body))

    def _receive(self) -> tuple[str, bytes]:
        """The subscription and the body of the next message. A consumer's messages keep their subject."""
        while line := self._lines.readline():
            word, *rest = line.decode().split()
            if word == "MSG":
                return rest[1], self._lines.read(int(rest[-1]) + 2)[:-2]
            if word == "PING":
                self._send(b"PONG\r\n")
            elif word == "-ERR":
                raise click.ClickException(line.decode())
        raise click.ClickException("the NATS server has closed the connection")

    def _send(self, data: bytes) -> None:
        self._connection.sendall(data)


@contextmanager
def running(work: Path) -> Iterator[JetStream]:
    """Run a server that syncs each message before it acknowledges it, and connect to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = work / "nats.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{work}/nats", sync_interval: always }}\n')
    with subprocess.Popen(
        [SERVER, "--config", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            with _connect(port) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield JetStream(connection)
        finally:
            process.terminate()


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS)
        except ConnectionRefusedError as error:
            if time.monotonic() > deadline:
                raise click.ClickException("the NATS server did not begin") from error
            time.sleep(0.05)
