"""Truncation that waits for mirrors and consumers, by age at most."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.consumers.position_file import PositionFile
from litelog.consumers.position_objects import PositionObjects
from litelog.errors import StoreError
from litelog.log.mirror_registry import RECORD_SECONDS, KnownMirror, MirrorRegistry
from litelog.log.replica_registry import ReplicaSet, log_state_folder
from litelog.log.truncation import TruncationPolicy
from litelog.objects import layout
from litelog.objects.consumer_position import ConsumerPosition, PositionObject, encode
from litelog.shipping.context import LogSource, Settings
from litelog.shipping.source_truncation import ASK_SECONDS, LOOK_SECONDS, MOST_CONSUMERS, LogTruncator
from litelog.stores.registry import register_object_store
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600.0


class Truncated:
    """A log of which the policy keeps nothing, with a replica that holds all."""

    def __init__(self, folder: Path, name: str = "litelog", **waits: float) -> None:
        self.clock = ManualClock()
        self.log: LogBuilder = make_log(folder / "log", name)
        self.state = log_state_folder(str(folder / "state"), self.log.folder)
        replicas = ReplicaSet(self.state)
        store = MemoryStore("store")
        replicas.add("r", store.url)
        settings = Settings(snapshot_segments=1)
        self.daemon = Daemon(self.log, store, os.path.join(self.state, "r"), clock=self.clock, settings=settings)
        policy = TruncationPolicy(max_bytes=0, **waits)
        source = LogSource(self.log.folder, self.log.format)
        self.truncator = LogTruncator(source, replicas, policy, self.clock)
        self.store = CountingStore(store)
        self.truncator.attend("r", self.store)
        self.mirrors = MirrorRegistry(self.state)
        for _ in range(6):
            self.ship()
        self.names = sorted(self.log.texts)

    def ship(self) -> str:
        """Ship another log segment. Return its name."""
        self.log.roll(2)
        self.daemon.sync()
        return self.log.name

    def run(self, *, asks: bool = True) -> list[str]:
        """Truncate. Return the log segments that are left."""
        self.truncator.run(asks=asks)
        return sorted(self.log.names())

    def put(self, file: str) -> None:
        self.mirrors.put(KnownMirror("host:/copy", file, self.clock.now()))


def test_a_mirror_keeps_what_it_lacks_until_it_has_it(tmp_path: Path) -> None:
    log = Truncated(tmp_path, mirror_wait=HOUR)
    log.put(log.names[1])
    assert log.run() == log.names[1:]
    assert log.truncator.due == pytest.approx(log.clock.monotonic() + LOOK_SECONDS)
    log.put(log.names[3])
    assert log.run() == log.names[3:]
    log.put(log.names[5])
    assert log.run() == log.names[4:]


def test_a_mirror_that_lacks_all_keeps_all(tmp_path: Path) -> None:
    log = Truncated(tmp_path, mirror_wait=HOUR)
    log.put("")
    assert log.run() == log.names


def test_a_mirror_that_does_not_come_back_keeps_the_log_by_age_at_most(tmp_path: Path) -> None:
    log = Truncated(tmp_path, mirror_wait=HOUR)
    log.put(log.names[1])
    log.clock.advance(HOUR - 1)
    assert log.run() == log.names[1:]
    assert log.truncator.due == pytest.approx(log.clock.monotonic() + 1)
    log.clock.advance(1.1)
    assert log.run() == log.names[4:]


def test_a_mirror_is_not_gone_before_the_registry_would_record_it_again(tmp_path: Path) -> None:
    """It is there, and was recorded last 45 s ago, as the registry records it once a minute."""
    log = Truncated(tmp_path, mirror_wait=30.0)
    log.put(log.names[5])
    log.clock.advance(45.0)
    new = [log.ship() for _ in range(5)]
    assert log.run() == new
    log.clock.advance(29.0)
    assert log.run() == new
    log.clock.advance(RECORD_SECONDS + 1)
    assert log.run() == new[3:]


def test_a_clock_that_is_set_forward_does_not_end_the_wait(tmp_path: Path) -> None:
    log = Truncated(tmp_path, mirror_wait=HOUR)
    log.put(log.names[1])
    log.clock.jump(3 * HOUR)
    assert log.run() == log.names[1:]


def test_the_consumers_of_a_replica_that_is_not_open_keep_all_by_age_at_most(tmp_path: Path) -> None:
    """The replica is in the set, and holds all. It could not be opened, so the daemon cannot ask it for its
    consumers."""
    log = Truncated(tmp_path, replica_consumer_wait=HOUR)
    other = ReplicaSet(log.state)
    shutil.copytree(os.path.join(log.state, "r"), os.path.join(log.state, "away"))
    other.add("away", "s3://away")
    assert log.run() == log.names
    assert log.truncator.due == pytest.approx(log.clock.monotonic() + ASK_SECONDS)
    log.clock.advance(HOUR + 1)
    assert log.run() == log.names[4:]


def test_without_the_setting_nobody_is_waited_for(tmp_path: Path) -> None:
    log = Truncated(tmp_path)
    log.put(log.names[1])
    PositionFile(log.state, "billing").move(None, 0, None, 0)
    assert log.run() == log.names[4:]


@pytest.mark.parametrize("name", ["litelog", "lines"])
def test_a_consumer_keeps_what_it_has_not_processed(tmp_path: Path, name: str) -> None:
    log = Truncated(tmp_path, name, consumer_wait=HOUR)
    file = PositionFile(log.state, "billing")
    position = file.move(None, 3, None, 0)
    assert log.run() == log.names[1:]
    position = file.move(position, 4, None, 0)
    assert log.run() == log.names[2:]
    log.put(log.names[0])  # mirrors are not waited for
    file.move(position, 12, None, 0)
    assert log.run() == log.names[4:]


def test_a_consumer_that_has_not_begun_keeps_all_by_age_at_most(tmp_path: Path) -> None:
    log = Truncated(tmp_path, consumer_wait=HOUR)
    PositionFile(log.state, "billing").move(None, None, None, 0)
    assert log.run() == log.names
    log.clock.advance(HOUR + 1)
    assert log.run() == log.names[4:]


def test_a_truncation_that_has_begun_is_finished_even_if_a_mirror_appears(tmp_path: Path) -> None:
    log = Truncated(tmp_path, mirror_wait=HOUR)
    assert log.run() == log.names[4:]
    with open(os.path.join(log.log.folder, log.names[3]), "wb") as file:
        file.write(log.log.texts[log.names[3]])
    log.put("")
    assert log.run() == log.names[4:]


def move(log: Truncated, following: int | None, name: str = "billing") -> None:
    """Move a consumer whose position is in the replica."""
    there = [layout.parse_consumer(info.key) for info in log.store.inner.list(layout.consumer_prefix(name))]
    revision = 1 + max((parsed[1] for parsed in there if parsed is not None), default=0)
    found = PositionObject(name, ConsumerPosition(revision, following, 1))
    log.store.inner.put(found.key, [encode(found)])


def requests(log: Truncated) -> dict[str, int]:
    """The requests to the replica since the last call."""
    found = {name: count for name, count in log.store.requests.items() if count}
    log.store.requests.clear()
    return found


@pytest.mark.parametrize("name", ["litelog", "lines"])
def test_a_consumer_in_a_replica_keeps_what_it_has_not_processed(tmp_path: Path, name: str) -> None:
    log = Truncated(tmp_path, name, replica_consumer_wait=HOUR)
    move(log, 2)
    move(log, 9, "audit")
    assert log.run() == log.names[1:]
    assert requests(log) == {"list": 1, "open": 2}
    assert log.truncator.due == pytest.approx(log.clock.monotonic() + ASK_SECONDS)
    move(log, 6)
    assert log.run() == log.names[1:]  # its positions were read just now
    assert requests(log) == {}
    assert log.truncator.due == pytest.approx(log.clock.monotonic() + ASK_SECONDS)
    log.clock.advance(ASK_SECONDS)
    assert log.run() == log.names[3:]
    move(log, 12)
    log.clock.advance(ASK_SECONDS)
    assert log.run() == log.names[4:]


def test_a_consumer_in_a_replica_keeps_the_log_by_age_at_most(tmp_path: Path) -> None:
    log = Truncated(tmp_path, replica_consumer_wait=HOUR)
    move(log, None)
    assert log.run() == log.names
    log.clock.advance(HOUR + 1)
    requests(log)
    assert log.run() == log.names[4:]
    assert requests(log) == {}, "truncation waits for no consumer any more"


def test_nothing_is_asked_that_is_not_needed_or_not_permitted(tmp_path: Path) -> None:
    log = Truncated(tmp_path, replica_consumer_wait=HOUR, mirror_wait=2 * HOUR)
    log.put("")
    assert log.run() == log.names
    assert requests(log) == {}, "a mirror keeps it anyway"
    log.put(log.names[5])
    assert log.run(asks=False) == log.names
    assert (requests(log), log.truncator.due) == ({}, log.clock.monotonic())
    assert log.run() == log.names[4:]
    assert requests(log) == {"list": 1}
    assert log.run() == log.names[4:]
    assert requests(log) == {}, "the policy removes no more"


@pytest.mark.parametrize("what", ["away", "damaged", "many"])
def test_what_is_not_known_of_consumers_in_a_replica_keeps_all_by_age_at_most(tmp_path: Path, what: str) -> None:
    log = Truncated(tmp_path, replica_consumer_wait=HOUR)
    if what == "away":
        log.store.inner = Away()  # type: ignore[assignment]
    for number in range({"away": 0, "damaged": 1, "many": MOST_CONSUMERS + 1}[what]):
        key = layout.consumer_key(f"c{number}", 1)
        log.store.inner.put(key, [b"{}"])
    assert log.run() == log.names
    assert sum(requests(log).values()) <= 4
    log.clock.advance(HOUR + 1)
    assert log.run() == log.names[4:]


class Away:
    """A store that cannot be reached."""

    def list(self, *_: object) -> None:
        raise StoreError("list", "", "is away")


def test_a_consumer_that_was_deleted_in_a_replica_keeps_nothing(tmp_path: Path) -> None:
    log = Truncated(tmp_path, replica_consumer_wait=HOUR)
    move(log, 2)
    register_object_store("truncated", lambda *_: log.store.inner)
    PositionObjects("truncated://", {}).of("billing").delete()
    assert log.run() == log.names[4:]
