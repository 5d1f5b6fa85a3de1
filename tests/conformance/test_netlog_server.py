"""NetLog's server opens what was restored: all payloads are there, its check is clean, and it takes new messages.

The tests run where the server's binary ``netlog`` is installed (see tests/README.md).
"""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import litelog
from tests.builders.real_servers import find_binary
from tests.builders.recorded_logs import unpack, what_was_read
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BINARY = find_binary("netlog")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(BINARY is None, reason="the server of NetLog is not installed (see tests/README.md)"),
]

TOPICS = ("plain", "sets", "gzip", "snappy")


class Server:
    """A running server, over HTTP."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def call(self, path: str, body: bytes | None = None) -> bytes:
        with urlopen(Request(self.url + path, data=body)) as answer:
            found: bytes = answer.read()
        return found

    def ask(self, path: str) -> Any:
        return json.loads(self.call(path))

    def is_up(self) -> bool:
        try:
            self.call("/")
        except OSError:
            return False
        return True

    def payloads(self, topic: str) -> list[str]:
        found: list[str] = []
        while True:
            try:
                found.append(self.call(f"/{topic}/payload/{len(found)}").hex())
            except HTTPError:
                return found


@contextmanager
def running(data: Path) -> Iterator[Server]:
    assert BINARY is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with (data.parent / "output").open("wb") as output:
        process = subprocess.Popen(
            [BINARY, "-listen", f"127.0.0.1:{port}", "-dir", str(data), "-monitor_interval", "100ms"],
            stdout=output,
            stderr=output,
        )
    server = Server(port)
    try:
        wait_until(server.is_up)
        yield server
    finally:
        process.kill()
        process.wait()


def ship_and_restore(log: Path, folder: Path, output: Path, **target: Any) -> None:
    with litelog.replicate(log, f"file://{folder}/replica", log_format="netlog", state_dir=str(folder / "state")):
        pass
    litelog.restore_log(f"file://{folder}/replica", output, **target)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_restored_topic_opens_in_the_server(tmp_path: Path, topic: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    ship_and_restore(unpack("netlog", topic, tmp_path), tmp_path, data / topic)
    read = what_was_read("netlog", topic)["payloads"]
    with running(data) as server:
        assert server.payloads(topic) == read
        assert server.ask(f"/{topic}/check?from=0") == {"ok": True, "message": "topic healthy"}
        server.call(f"/{topic}/payload", b"after the restore")
        server.call(f"/{topic}/sync")
        assert server.payloads(topic) == [*read, b"after the restore".hex()]


def test_a_topic_that_was_restored_to_a_sequence_ends_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    ship_and_restore(unpack("netlog", "sets", tmp_path), tmp_path, data / "sets", sequence=20)
    with running(data) as server:
        assert server.payloads("sets") == what_was_read("netlog", "sets")["payloads"][:21]
        assert server.ask("/sets/check?from=0") == {"ok": True, "message": "topic healthy"}
