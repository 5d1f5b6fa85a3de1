"""Reading ahead saves time and changes nothing else: everything before a fault is shipped, whole and in order."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from litelog.config import Config, LogConfig, ReplicaConfig
from litelog.errors import CorruptionError, FencedError, StoreError
from litelog.formats.litelog import encode_commit, segment_name
from litelog.formats.registry import open_format
from litelog.log.writer import LogWriter
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.replicator import Replicator
from litelog.shipping.context import Executors, LogSource
from litelog.shipping.wal_encoder import LEAST_BYTES
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_client
from litelog.system.buffers import DEFAULT_BYTES, RUNS
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.stores import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.buffers import Room

LIMIT = 4096
"""Bytes in a WAL segment: a few commits, so that nearly every run is a large one, and several are encoded ahead."""


def ship(tmp_path: Path) -> None:
    replica = ReplicaConfig(url=str(tmp_path / "replica"), max_segment_bytes=LIMIT)
    config = Config(logs=(LogConfig(path=str(tmp_path / "log"), replicas=(replica,)),))
    Replicator(config, state_dir=str(tmp_path / "state"), host="here").run(once=True)


def shipped_bytes(client: ReplicaClient) -> dict[str, bytes]:
    """The bytes of each log segment that the replica's WAL segments hold."""
    found: dict[str, bytes] = {}
    for info in client.wal_segments(client.generations()[-1]):
        segment = wal_segment.decode(wal_key(info.position), client.read_wal_segment(info.position))
        assert len(found.get(segment.header.file, b"")) == segment.header.offset
        found[segment.header.file] = found.get(segment.header.file, b"") + segment.data()
    return found


@pytest.mark.parametrize("good", [1, 3, 4, 9, 30, 31])
def test_all_good_commits_before_a_corrupt_one_are_shipped(tmp_path: Path, good: int) -> None:
    with LogWriter(str(tmp_path / "log")) as writer:
        for _ in range(good):
            writer.append(b"v" * 900)
    path = tmp_path / "log" / segment_name(0)
    whole = path.read_bytes()
    bad = bytearray(encode_commit(good, 0, 1 << 50, [b"x" * 900]))
    bad[500] ^= 1
    path.write_bytes(whole + bad + encode_commit(good + 1, 0, 1 << 50, [b"y" * 900]))
    with pytest.raises(CorruptionError):
        ship(tmp_path)
    assert shipped_bytes(open_client(str(tmp_path / "replica"))) == {path.name: whole}


@pytest.mark.slow
@pytest.mark.parametrize("segment_bytes", [3000, 10_000, 1 << 20])
def test_runs_made_ahead_are_the_log_in_order(tmp_path: Path, segment_bytes: int) -> None:
    """A running daemon ships all of it in one turn. Without a daemon, finished log segments would go up sealed."""
    folder, store = str(tmp_path / "log"), MemoryStore()
    with ThreadPoolExecutor(2) as compressing, ThreadPoolExecutor(2) as putting:
        source, workers = LogSource(folder, open_format("litelog")), Executors(compressing, putting)
        with LogWriter(folder, segment_bytes=segment_bytes) as writer:
            writer.append(b"first")
            daemon = Daemon(None, store, str(tmp_path / "state"), limit=LIMIT, source=source, workers=workers)
            assert daemon.sync()
            for number in range(60):
                writer.append(b"%d" % number * 300)
        assert daemon.sync()
        daemon.close()
    expected = {path.name: path.read_bytes() for path in (tmp_path / "log").glob("*.log")}
    assert shipped_bytes(ObjectReplicaClient(store)) == expected


class WatchingStore(MemoryStore):
    """Stores a WAL segment once as many are encoded as are expected, and notes how many there are then."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self.encoded: Callable[[], int] = lambda: 0
        self.most = 0
        self._expected = expected

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if "/wal/" in key:
            deadline = time.monotonic() + WAIT_SECONDS
            while max(self.most, self.encoded()) < self._expected and time.monotonic() < deadline:
                time.sleep(0.001)
            self.most = max(self.most, self.encoded())
        super().put(key, body, create_only=create_only)


@pytest.fixture
def room() -> Iterator[Room]:
    """The room for WAL segments, without what earlier tests left there. Sets its limit back afterwards."""
    RUNS.give_back(RUNS.used)
    yield RUNS
    RUNS.set_limit(DEFAULT_BYTES)


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (DEFAULT_BYTES, 3)])
def test_no_more_is_encoded_than_there_is_room_for(tmp_path: Path, room: Room, limit: int, expected: int) -> None:
    folder, store = str(tmp_path / "log"), WatchingStore(expected)
    room.set_limit(limit)
    with ThreadPoolExecutor(2) as compressing, ThreadPoolExecutor(2) as putting:
        source, workers = LogSource(folder, open_format("litelog")), Executors(compressing, putting)
        with LogWriter(folder) as writer:
            writer.append(b"first")
            daemon = Daemon(None, store, str(tmp_path / "state"), limit=LIMIT, source=source, workers=workers)
            for number in range(60):
                writer.append(b"%d" % number * 300)
        store.encoded = lambda: daemon.replica.queued
        assert daemon.sync()
        daemon.close()
    assert store.most == expected
    assert room.used == 0


class NotingStore(MemoryStore):
    """Notes how much room is taken at each put of a WAL segment. The first ``failures`` of them fail."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.taken: list[int] = []
        self._failures = failures

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if "/wal/" in key:
            self.taken.append(RUNS.used)
            if len(self.taken) <= self._failures:
                raise StoreError("put", key, "no answer")
        super().put(key, body, create_only=create_only)


@pytest.mark.slow
def test_replicas_share_the_room_and_none_waits_for_it(tmp_path: Path, room: Room) -> None:
    """A store that fails keeps what was encoded for it. The next replica then gets smaller WAL segments."""
    limit, folder, draw = 8 * LEAST_BYTES, str(tmp_path / "log"), random.Random(1)
    room.set_limit(2 * limit)
    with LogWriter(folder) as writer:
        for _ in range(3 * limit // LEAST_BYTES):
            writer.append(draw.randbytes(LEAST_BYTES // 2))
            writer.append(draw.randbytes(LEAST_BYTES // 2 - 100))
    expected = {path.name: path.read_bytes() for path in (tmp_path / "log").glob("*.log")}
    source, failing, other = LogSource(folder, open_format("litelog")), NotingStore(failures=1), NotingStore()
    with ThreadPoolExecutor(2) as compressing, ThreadPoolExecutor(2) as putting:
        workers = Executors(compressing, putting)
        first, second = (
            Daemon(None, store, str(tmp_path / f"state {at}"), limit=limit, source=source, workers=workers)
            for at, store in enumerate((failing, other))
        )
        with pytest.raises(StoreError):
            first.sync()
        kept = room.used
        assert kept > limit - LEAST_BYTES
        assert second.sync()
        assert max(other.taken) <= kept + 2 * LEAST_BYTES
        assert first.sync()
        for daemon in (first, second):
            daemon.close()
    assert room.used == 0
    assert len(other.taken) > 2 * len(failing.taken)
    for store in (failing, other):
        assert shipped_bytes(ObjectReplicaClient(store)) == expected


@pytest.mark.parametrize("good", [1, 30])
def test_a_run_that_cannot_be_read_takes_no_room(tmp_path: Path, room: Room, good: int) -> None:
    test_all_good_commits_before_a_corrupt_one_are_shipped(tmp_path, good)
    assert room.used == 0


class FencingStore(MemoryStore):
    """Fails, or refuses as another owner would, to store a second WAL segment once several are encoded."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.pending: Callable[[], int] = lambda: 0
        self.most = self.most_pending = 0
        self._error = error

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if "/wal/" in key and not key.endswith(f"{0:016x}"):
            self.most, self.most_pending = max(self.most, RUNS.used), max(self.most_pending, self.pending())
            raise self._error
        super().put(key, body, create_only=create_only)


@pytest.mark.parametrize("error", [FencedError("another one has it"), CorruptionError("damaged")], ids=repr)
def test_a_replica_that_shipping_has_ended_for_takes_no_room(tmp_path: Path, room: Room, error: Exception) -> None:
    """It stays open until the daemon ends, and the other replicas would have smaller WAL segments until then."""
    folder, store = str(tmp_path / "log"), FencingStore(error)
    source = LogSource(folder, open_format("litelog"))
    with LogWriter(folder, segment_bytes=10_000) as writer:
        for number in range(60):
            writer.append(b"%d" % number * 300)
    daemon = Daemon(None, store, str(tmp_path / "state"), limit=LIMIT, source=source)
    store.pending = daemon.replica.pending_bytes
    with pytest.raises(type(error)):
        daemon.sync()
    assert store.most > 0
    assert (room.used, daemon.replica.queued) == (0, 0)
    assert daemon.replica.pending_bytes() >= store.most_pending > 0
    daemon.close()


class FailingStore(MemoryStore):
    """Refuses the first ``failures`` puts of a second WAL segment. ``refused`` has the key and the bytes of each."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.refused: list[tuple[str, bytes]] = []
        self.most = 0
        self._failures = failures

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        content = b"".join(body)
        if "/wal/" in key and not key.endswith(f"{0:016x}") and len(self.refused) < self._failures:
            self.refused.append((key, content))
            self.most = max(self.most, RUNS.used)
            raise StoreError("put", key, "no answer")
        super().put(key, [content], create_only=create_only)


def test_a_replica_whose_store_fails_keeps_only_what_it_puts_again(tmp_path: Path, room: Room) -> None:
    """The store may fail for hours. All else that it had encoded would be missing for the other replicas."""
    folder, store = str(tmp_path / "log"), FailingStore(failures=3)
    source = LogSource(folder, open_format("litelog"))
    with LogWriter(folder, segment_bytes=40_000) as writer:
        for number in range(60):
            writer.append(random.Random(number).randbytes(900))
    daemon = Daemon(None, store, str(tmp_path / "state"), limit=LIMIT, source=source)
    pending: list[int] = []
    for _ in range(3):
        with pytest.raises(StoreError):
            daemon.sync()
        pending.append(daemon.replica.pending_bytes())
        assert daemon.replica.queued == 1
        assert room.used == len(store.refused[0][1])
    assert len(set(store.refused)) == 1
    assert store.most > 2 * room.used  # more was encoded before the first failure
    assert len(set(pending)) == 1
    assert pending[0] > store.most
    assert daemon.sync()
    daemon.close()
    assert room.used == 0
    expected = {path.name: path.read_bytes() for path in (tmp_path / "log").glob("*.log")}
    assert shipped_bytes(ObjectReplicaClient(store)) == expected
