"""Redis and Valkey load what was restored: the same data set, at any command, also after rewrites and kills.

The tests run where redis-server 7 or later, or valkey-server, is installed (see tests/README.md).
"""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import litelog
from tests.builders.child import runs_in_child
from tests.builders.recorded_logs import unpack, what_was_read
from tests.builders.redis_server import SERVERS, RedisServer, find_version
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.process,
]


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a server's program."""
    name: str = request.param
    if find_version(name) is None:
        pytest.skip(f"{name} of version 7 or later is not installed (see tests/README.md)")
    return name


PREAMBLES = pytest.mark.parametrize("preamble", ["yes", "no"])


NO_REWRITES = ("--auto-aof-rewrite-percentage", "0")
"""Options of a server that rewrites its files only when a test says so."""


class Sidecar:
    """Ships a server's log, and loads what is restored into another server."""

    def __init__(self, folder: Path, log: Path, server: str) -> None:
        self.folder, self.log, self._server = folder, log, server
        self.url = f"file://{folder}/replica"
        self._restored = 0

    def replicate(self) -> Any:
        return litelog.replicate(self.log, self.url, log_format="redis-aof", state_dir=str(self.folder / "state"))

    def ship(self) -> None:
        with self.replicate():
            pass

    def load(self, **target: Any) -> str:
        """The digest of the data set that a server loads from a restored folder."""
        self._restored += 1
        data = self.folder / f"restored-{self._restored}"
        data.mkdir()
        litelog.restore_log(self.url, data / "appendonlydir", **target)
        with RedisServer(data, *NO_REWRITES, server=self._server) as server:
            found = server.digest()
            server.call("SET", "after the restore", 1)
            server.rewrite()
        return found

    def generations(self) -> int:
        return len(list((self.folder / "replica" / "generations").iterdir()))


@pytest.mark.parametrize("scene", ["commands", "rewritten"])
def test_a_recorded_log_is_loaded_as_it_was(tmp_path: Path, kind: str, scene: str) -> None:
    sidecar = Sidecar(tmp_path, unpack("redis_aof", scene, tmp_path), kind)
    sidecar.ship()
    assert sidecar.load() == what_was_read("redis_aof", scene)["digest"]


@PREAMBLES
def test_a_rewrite_begins_a_generation_and_older_commands_stay(tmp_path: Path, kind: str, preamble: str) -> None:
    with RedisServer(tmp_path / "redis", "--aof-use-rdb-preamble", preamble, server=kind) as server:
        sidecar = Sidecar(tmp_path, server.log, kind)
        server.call("SET", "k", "first")
        first = server.digest()
        sidecar.ship()
        server.call("SET", "k", "second")
        server.rewrite()
        server.call("RPUSH", "list", *range(100))
        sidecar.ship()
        assert sidecar.generations() == 2
        assert sidecar.load() == server.digest()
        (older, _) = sorted(path.name for path in (tmp_path / "replica" / "generations").iterdir())
        assert sidecar.load(generation=older) == first


def test_a_restore_to_each_command_is_that_state_of_the_data_set(tmp_path: Path, kind: str) -> None:
    with RedisServer(tmp_path / "redis", server=kind) as server:
        sidecar, states = Sidecar(tmp_path, server.log, kind), []
        commands: list[list[tuple[str | int, ...]]] = [
            [("SET", "k", 1)],
            [("MULTI",), ("INCR", "k"), ("INCR", "other"), ("EXEC",)],
            [("INCR", "k")],
        ]
        for each in commands:
            server.call_all([("SELECT", 0), *each])
            states.append(server.digest())
        sidecar.ship()
        with litelog.open_replica(sidecar.url) as read:
            records = list(read)
    ends = [record.sequence for record in records if b"$3\r\nSET" in record.value or b"EXEC" in record.value]
    assert sidecar.load(sequence=ends[0]) == states[0]
    assert sidecar.load(sequence=ends[1]) == states[1]
    assert sidecar.load(sequence=ends[1] - 1) == states[0]  # a transaction is there as a whole or not at all
    assert sidecar.load(sequence=ends[1] + 1) == states[2]


def test_rewrites_and_kills_under_load_lose_nothing(tmp_path: Path, kind: str) -> None:
    server = RedisServer(tmp_path / "redis", server=kind)
    server.start()
    sidecar, stop = Sidecar(tmp_path, server.log, kind), threading.Event()

    def write(kills: int) -> int:
        """Write until the server is killed; the number of increments that were answered."""
        done = 0
        try:
            while not stop.is_set():
                server.call_all([("INCR", f"count:{kills}"), ("LPUSH", "list", "x" * 50), ("LTRIM", "list", 0, 99)])
                done += 1
        except (OSError, AssertionError):
            pass
        return done

    with sidecar.replicate():
        for kills in range(2):
            answered: list[int] = []
            writer = threading.Thread(target=lambda number=kills, to=answered: to.append(write(number)))
            writer.start()
            for _ in range(3):
                wait_until(lambda number=kills: int(server.call("GET", f"count:{number}")[0] or 0) >= 20)
                server.rewrite()
            server.kill()
            writer.join()
            server.start()
            assert int(server.call("GET", f"count:{kills}")[0]) >= answered[0]
        expected = server.digest()
    server.kill()
    assert sidecar.load() == expected


@runs_in_child
def test_a_value_of_40_mb_is_shipped_as_a_command_and_loaded(tmp_path: Path, kind: str) -> None:
    with RedisServer(tmp_path / "redis", *NO_REWRITES, server=kind) as server:
        sidecar = Sidecar(tmp_path, server.log, kind)
        server.call("SET", "before", 1)
        server.call("SET", "large", random.Random(0).randbytes(40_000_000))
        with sidecar.replicate():
            server.call_all([("MULTI",), ("SET", "other", bytes(50_000_000)), ("SET", "after", 1), ("EXEC",)])
        sidecar.ship()
        expected = server.digest()
    assert sidecar.load() == expected
    with litelog.open_replica(sidecar.url) as read:
        assert max(len(record.value) for record in read) > 50_000_000
    assert sidecar.generations() == 1


def test_a_restore_to_a_time_follows_the_times_that_the_server_notes(tmp_path: Path, kind: str) -> None:
    """All is shipped later than it was written."""
    with RedisServer(tmp_path / "redis", "--aof-timestamp-enabled", "yes", server=kind) as server:
        sidecar, digests = Sidecar(tmp_path, server.log, kind), []
        sidecar.ship()
        for number in range(3):
            began = int(server.call("TIME")[0].split()[0])
            wait_until(lambda before=began: int(server.call("TIME")[0].split()[0]) > before)
            server.call("RPUSH", "list", number)
            digests.append(server.digest())
        sidecar.ship()
    with litelog.open_replica(sidecar.url) as read:
        notes = [record.extra["ts"] for record in read if record.extra and record.extra["ts"] is not None]
    seconds = notes[-3:]
    assert seconds == sorted(set(seconds))
    for second, digest in zip(seconds, digests, strict=True):
        assert sidecar.load(timestamp=datetime.fromtimestamp(second, UTC)) == digest
