"""A Redis or Valkey server with an append-only file, on a Unix socket in its folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Self

from tests.builders.real_servers import find_binary
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

SERVERS = ("redis-server", "valkey-server")
LEAST_VERSION = 7


def find_version(server: str) -> str | None:
    """The installed version of ``server``; None if version 7 or later is not installed."""
    binary = find_binary(server)
    if binary is None:
        return None
    text = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    version = text.partition("v=")[2].partition(" ")[0]
    return version if int(version.partition(".")[0] or 0) >= LEAST_VERSION else None


class RedisServer:
    """A server that runs from ``start`` on. Each command takes a new connection."""

    def __init__(self, folder: Path, *options: str, server: str = SERVERS[0]) -> None:
        """``options``: for the server's command line, in addition to those of a test. ``server``: one of SERVERS."""
        self._server = server
        self.folder = folder
        self.log = folder / "appendonlydir"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it has loaded its data."""
        binary = find_binary(self._server)
        assert binary is not None
        self.folder.mkdir(exist_ok=True)
        command = [binary, "--port", "0", "--unixsocket", "socket", "--dir", ".", "--appendonly", "yes", "--save", ""]
        command += ["--enable-debug-command", "local", "--appendfsync", "always", *self._options]
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=output)
        wait_until(self._is_up)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def kill_children(self) -> None:
        """Kill the process that rewrites the append-only file."""
        assert self._process is not None
        path = f"/proc/{self._process.pid}/task/{self._process.pid}/children"

        def children() -> list[int]:
            with open(path) as file:
                return [int(word) for word in file.read().split()]

        wait_until(lambda: bool(children()))
        for child in children():
            os.kill(child, signal.SIGKILL)
        wait_until(lambda: not children())

    def rewrite(self) -> None:
        """Have it rewrite its append-only file, and wait for the end."""
        self.call("BGREWRITEAOF")
        wait_until(lambda: b"aof_rewrite_in_progress:0" in self.info() and b"aof_rewrite_scheduled:0" in self.info())

    def info(self) -> bytes:
        return self.call("INFO", "persistence")[0]

    def digest(self) -> str:
        """A hash of the whole data set, from the server."""
        return self.call("DEBUG", "DIGEST")[0].decode()

    def call(self, *words: str | bytes | int) -> list[bytes]:
        """Run one command."""
        return self.call_all([words])

    def call_all(self, commands: list[tuple[str | bytes | int, ...]]) -> list[bytes]:
        """Run commands on one connection, and return their answers. AssertionError for an error."""
        with socket.socket(socket.AF_UNIX) as connection:
            address = os.path.relpath(self.folder / "socket")  # the whole path may be too long for a socket
            connection.connect(min(address, str(self.folder / "socket"), key=len))
            with connection.makefile("rb") as answers:
                connection.sendall(b"".join(map(encode, commands)))
                return [_read(answers) for _ in commands]

    def _is_up(self) -> bool:
        with suppress(OSError, AssertionError):
            return self.call("PING") == [b"PONG"]
        return False


def encode(words: tuple[str | bytes | int, ...]) -> bytes:
    """A command as clients send it, and as the server logs it."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def _read(answers: BinaryIO) -> bytes:
    line = answers.readline()
    kind, rest = line[:1], line[1:-2]
    assert line[:1] not in {b"", b"-"}, line
    if kind == b"$":
        return answers.read(int(rest) + 2)[:-2] if int(rest) >= 0 else b""
    if kind == b"*":
        return b" ".join(_read(answers) for _ in range(int(rest)))
    return rest
