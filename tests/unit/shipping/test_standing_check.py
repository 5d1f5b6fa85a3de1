"""The standing check: its requests, its findings, and changes by a running writer, which are not findings."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litelog.config import make_config
from litelog.objects.layout import parse_sealed, parse_snapshot, parse_wal
from litelog.replicator import Replicator
from litelog.replicator.task import Phase
from litelog.shipping.claiming import ReplicaUnavailableError
from litelog.shipping.context import Settings
from litelog.shipping.standing_check import FIRST_SECONDS, INTERVAL_SECONDS, ROUNDS, check_replica
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from litelog.verify.findings import VerifyStoppedError
from litelog.verify.scrub import Scrub, ScrubSettings
from replica_clients import memory
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import objects
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from litelog.stores.object_store import ByteRange, ObjectInfo
    from litelog.verify.scrub import Found
    from tests.builders.log_builder import LogBuilder


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore("test"))


@pytest.fixture
def daemon(log: LogBuilder, store: CountingStore, tmp_path: Path) -> Daemon:
    """A daemon that has shipped log segments, a snapshot that names them, and WAL segments since."""
    clock = ManualClock()
    settings = Settings(snapshot_segments=2, wal_retention=1)
    made = Daemon(log, store, str(tmp_path / "state"), clock=clock, backlog_sealer=True, settings=settings)
    for _ in range(5):
        made.sync()
        log.roll(2)
        clock.advance(5)
    log.append(1)
    made.sync()
    log.append(1)
    made.sync()
    store.requests.clear()
    return made


def check(daemon: Daemon, number: int = 0, should_continue: Callable[[], bool] = lambda: True) -> Found:
    store = daemon.store
    client, log_format = ObjectReplicaClient(store), daemon.log.format
    found = check_replica(
        store,
        client,
        lambda: daemon.replica.known,
        number,
        formats=lambda _: log_format,
        should_continue=should_continue,
    )
    assert found is not None
    return found


def named(found: Found) -> list[tuple[str, str]]:
    return [(str(anomaly.kind), anomaly.key) for anomaly in found.anomalies]


@pytest.mark.slow
def test_a_sound_replica_costs_one_listing_and_every_object_is_read_in_its_turn(
    daemon: Daemon, store: CountingStore
) -> None:
    held = objects(store)
    found = check(daemon)
    assert (found.objects, found.bytes) == (len(held), sum(map(len, held.values())))
    assert (found.anomalies, found.unread) == ((), 0)
    opened: list[str] = []

    class Watched(CountingStore):
        def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
            opened.append(key)
            return super().open(key, byte_range)

    watched = Watched(store)
    client, log_format = ObjectReplicaClient(watched), daemon.log.format
    for number in range(ROUNDS):
        made = check_replica(
            watched,
            client,
            lambda: daemon.replica.known,
            number,
            formats=lambda _: log_format,
            should_continue=lambda: True,
        )
        assert made == found
    assert set(opened) == set(held)
    assert watched.requests["list"] == 2 * ROUNDS  # of all, and of the snapshots
    always = 2 * ROUNDS  # the claim, and the newest snapshot
    assert len(opened) - always <= 2 * len(held)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parse", "which"), [(parse_sealed, 0), (parse_sealed, -1), (parse_wal, -1), (parse_wal, -2), (parse_snapshot, -1)]
)
def test_a_lost_object_is_found_and_shipped_again(
    daemon: Daemon, store: CountingStore, parse: Callable[[str], object], which: int
) -> None:
    key = [key for key in objects(store) if parse(key) is not None][which]
    store.delete([key])
    found = check(daemon)
    ((kind, there),) = named(found)
    assert kind == "missing"
    assert key.startswith(there)
    name = daemon.generation
    daemon.replica.repair([there])
    assert daemon.replica.changed()
    daemon.sync()
    assert daemon.generation != name
    assert named(check(daemon)) == []


@pytest.mark.slow
def test_an_object_of_another_size_and_one_that_is_damaged_are_found(daemon: Daemon, store: CountingStore) -> None:
    keys = [key for key in objects(store) if parse_sealed(key) is not None]
    cut, flipped = keys[0], keys[1]
    store.inner.put(cut, [objects(store)[cut][:-3]], create_only=False)
    body = bytearray(objects(store)[flipped])
    body[40] ^= 1
    store.inner.put(flipped, [bytes(body)], create_only=False)
    found = [each for number in range(ROUNDS) for each in named(check(daemon, number))]
    assert found.count(("length", cut)) >= ROUNDS  # names and sizes each time
    assert found.count(("checksum", flipped)) == 1  # contents in their turn
    daemon.replica.repair([cut, flipped])
    daemon.sync()
    assert cut not in {key for _, key in named(check(daemon))}
    name = daemon.generation
    daemon.replica.repair([cut, flipped])  # this generation does not rely on them
    daemon.sync()
    assert daemon.generation == name


@pytest.mark.slow
def test_a_damaged_object_is_read_by_each_check_until_it_is_whole(
    daemon: Daemon, store: CountingStore, tmp_path: Path
) -> None:
    key = next(key for key in objects(store) if parse_sealed(key) is not None)
    whole = objects(store)[key]
    store.inner.put(key, [whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]], create_only=False)
    scrub = Scrub(
        store,
        ScrubSettings(INTERVAL_SECONDS, 1 << 40),
        str(tmp_path),
        formats=lambda _: daemon.log.format,
        acknowledged=lambda: None,
        clock=daemon.clock,
        random=Random(1),
        check=lambda plain, number, damaged, go_on: check_replica(
            plain,
            ObjectReplicaClient(plain),
            lambda: daemon.replica.known,
            number,
            formats=lambda _: daemon.log.format,
            should_continue=go_on,
            damaged=damaged,
        ),
    )
    results = []
    for _ in range(2 * ROUNDS):
        daemon.clock.advance(1)
        ran = scrub.run(threading.Event())
        assert ran is not None
        results.append(ran[0])
    found = [each.damaged for each in results]
    first = found.index((key,))
    assert found == [()] * first + [(key,)] * (2 * ROUNDS - first), "once found, it stays found"
    assert {each.damaged_since for each in results[first:]} == {results[first].time}
    store.inner.put(key, [whole], create_only=False)
    ran = scrub.run(threading.Event())
    assert ran is not None
    assert (ran[0].anomalies, ran[0].damaged, ran[0].damaged_since) == (0, (), 0)


@pytest.mark.slow
def test_concurrent_changes_by_the_writer_are_not_an_anomaly(
    daemon: Daemon, store: CountingStore, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PAGE_OBJECTS", 1)  # objects deleted during a listing are not in its later pages
    inner = store.inner

    class Busy(CountingStore):
        """The daemon ships, seals and deletes covered WAL segments during each listing."""

        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            for number, info in enumerate(super().list(prefix, start_after)):
                if not prefix and number in (1, 4, 9):
                    log.roll(2)
                    daemon.clock.advance(5)
                    daemon.sync()
                yield info

    busy = Busy(inner)
    client, log_format = ObjectReplicaClient(busy), log.format
    for number in range(5):
        found = check_replica(
            busy,
            client,
            lambda: daemon.replica.known,
            number,
            formats=lambda _: log_format,
            should_continue=lambda: True,
        )
        assert found is not None
        assert named(found) == []


def test_it_ends_on_request_and_reports_no_other_replica(daemon: Daemon, store: CountingStore) -> None:
    with pytest.raises(VerifyStoppedError):
        check(daemon, should_continue=lambda: False)
    for key in list(objects(store)):
        store.delete([key])
    with pytest.raises(ReplicaUnavailableError):
        check(daemon)


def test_an_idle_owner_whose_claim_is_gone_is_unavailable_until_the_claim_is_back(
    daemon: Daemon, store: CountingStore
) -> None:
    held = objects(store)
    store.delete(list(held))
    daemon.replica.suspect()
    for _ in range(2):
        assert daemon.replica.changed()
        with pytest.raises(ReplicaUnavailableError):
            daemon.sync()
    for key, body in held.items():
        store.put(key, [body])
    store.requests.clear()
    assert not daemon.sync()
    assert store.requests == {"list": 2, "open": 1}, "the proof"
    assert not daemon.replica.changed()


@pytest.mark.slow
def test_a_standing_check_of_an_emptied_replica_has_its_owner_look(tmp_path: Path, log: LogBuilder) -> None:
    url = f"memory://{uuid4().hex}-emptied"
    config = make_config("test", {"logs": [{"path": log.folder, "replicas": [{"url": url}]}]})
    replicator = Replicator(config, state_dir=str(tmp_path / "state"), host="here")
    store, found = open_store(url), []

    def turn() -> None:
        (task,) = replicator._scheduler.tasks
        if task.replica is None or not task.replica.started or task.phase is not Phase.IDLE:
            return
        held = objects(store)
        store.delete(list(held))
        assert task.scrub is not None
        found.append(task.scrub.run(threading.Event()))
        found.append(task.replica.changed())
        for key, body in held.items():
            store.put(key, [body])
        replicator.stop()

    replicator._on_turn = turn
    replicator.run()
    (verified, _), changed = found[:2]
    assert "is not the replica that this daemon ships to" in verified.error
    assert changed


def test_an_owner_that_has_not_begun_has_nothing_to_check(
    log: LogBuilder, store: CountingStore, tmp_path: Path
) -> None:
    fresh = Daemon(log, store, str(tmp_path / "other"))
    client, log_format = ObjectReplicaClient(store), log.format
    found = check_replica(
        store, client, lambda: fresh.replica.known, 0, formats=lambda _: log_format, should_continue=lambda: True
    )
    assert (found, store.total()) == (None, 0)


@pytest.mark.parametrize(
    ("said", "interval", "whole"),
    [
        ({}, INTERVAL_SECONDS, False),
        ({"scrub_interval": "7d"}, 7 * 86400, True),
        ({"scrub_interval": "0s"}, None, None),
    ],
)
def test_the_check_is_on_by_default_and_an_explicit_interval_verifies_everything(
    tmp_path: Path, log: LogBuilder, said: dict[str, str], interval: float | None, whole: bool | None
) -> None:
    url = f"memory://{uuid4().hex}-{interval}"
    config = make_config("test", {"logs": [{"path": log.folder, "replicas": [{"url": url, **said}]}]})
    replicator = Replicator(config, state_dir=str(tmp_path / "state"), host="here")
    replicator.run(once=True)
    (task,) = replicator._scheduler.tasks
    if interval is None:
        assert task.scrub is None
        return
    assert task.scrub is not None
    assert task.scrub._settings.interval == interval
    assert (task.scrub._check is None) is whole
    assert task.scrub.due - replicator._clock.monotonic() > (0 if whole else FIRST_SECONDS - 60)
