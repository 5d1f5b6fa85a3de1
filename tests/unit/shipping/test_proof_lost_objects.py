"""Replicas that go away, come back and lose objects. A daemon acknowledges nothing that went to another place, and a
default restore has all acknowledged data."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litelog.config import make_config
from litelog.errors import CorruptObjectError, FencedError, NotFoundError, ReplicaGapError, StoreError
from litelog.objects.layout import parse_snapshot, parse_wal, wal_key
from litelog.replicator import Replicator
from litelog.replicator.replicator import PAUSE_SECONDS, TURN_SECONDS
from litelog.shipping.claiming import ReplicaUnavailableError
from litelog.shipping.context import Settings
from replica_clients.file import FileStore
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, restored
from tests.builders.independent_reader import objects, read_replica
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore, Fault, FaultyStore
from tests.sampling import sampled_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from tests.builders.log_builder import LogBuilder


def tree(folder: Path) -> list[str]:
    """The files and folders below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "replica"


def away(root: Path, *, empty: bool) -> None:
    """Move a replica away, as if its disk were unmounted: its folder is gone, or empty."""
    root.rename(f"{root}.away")
    if empty:
        root.mkdir()


def back(root: Path, *, copied: bool) -> None:
    """Bring it back. If it is ``copied``, its folders and files have new inode numbers."""
    if root.exists():
        root.rmdir()  # fails unless the folder is empty
    if copied:
        shutil.copytree(f"{root}.away", root)
        shutil.rmtree(f"{root}.away")
    else:
        os.rename(f"{root}.away", root)


def through_fsspec(root: str) -> ObjectStore:
    pytest.importorskip("fsspec")
    from replica_clients.fsspec import open_store

    return open_store(f"file://{root}", {})


@pytest.mark.parametrize("make", [FileStore, through_fsspec])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_folder_replica_that_was_away_continues_without_a_hole(
    log: LogBuilder,
    state: str,
    root: Path,
    tmp_path: Path,
    make: Callable[[str], ObjectStore],
    empty: bool,
    copied: bool,
    restarted: bool,
) -> None:
    daemon = Daemon(log, make(str(root)), state)
    daemon.sync()
    away(root, empty=empty)
    if restarted:
        daemon.close()
        daemon = Daemon(log, make(str(root)), state)
    acknowledged = len(daemon.acknowledged)
    for number in range(4):
        log.append(1) if number % 2 else log.roll(1)
        with pytest.raises(StoreError, match=r"mounted|forget"):
            daemon.sync()
    assert len(daemon.acknowledged) == acknowledged
    assert tree(root) == []
    assert root.exists() is empty
    back(root, copied=copied)
    while daemon.sync():
        pass
    (only,) = read_replica(FileStore(str(root))).values()
    assert only.files() == log.files() == restored(FileStore(str(root)), tmp_path / "out", log.format)


def test_objects_that_a_moved_replica_lost_while_it_was_away_are_shipped_again(
    log: LogBuilder, state: str, root: Path, tmp_path: Path
) -> None:
    store = FileStore(str(root))
    daemon = Daemon(log, store, state)
    daemon.sync()
    shutil.copytree(root, tmp_path / "older")
    log.append(1)
    daemon.sync()
    away(root, empty=False)
    log.append(1)
    with pytest.raises(StoreError):
        daemon.sync()
    shutil.copytree(tmp_path / "older", root)  # an earlier backup of the replica
    daemon.sync()
    assert restored(store, tmp_path / "out", log.format) == log.files()
    assert [claim.relation for claim in daemon.claims][1:] == ["continues"]


PROVED = {"list": 2, "open": 1, "put": 1}
"""The requests of a proof and of one put after it."""


def test_after_a_failure_all_that_was_acknowledged_is_proved_once(log: LogBuilder, state: str) -> None:
    store = CountingStore(MemoryStore("test"))
    faulty = FaultyStore(store)
    daemon = Daemon(log, faulty, state)
    daemon.sync()
    faulty._script["put"] = [Fault.BEFORE]
    log.append(1)
    with pytest.raises(StoreError):
        daemon.sync()
    store.requests.clear()
    daemon.sync()
    assert store.requests == PROVED
    store.requests.clear()
    log.append(1)
    daemon.sync()
    assert store.requests == {"put": 1}


def test_after_a_pause_all_that_was_acknowledged_is_proved_before_the_next_put(log: LogBuilder, state: str) -> None:
    store = CountingStore(MemoryStore("test"))
    daemon = Daemon(log, store, state)
    daemon.sync()
    store.requests.clear()
    daemon.replica.doubt()
    assert not daemon.sync()
    assert store.total() == 0  # idle
    log.append(1)
    daemon.sync()
    assert store.requests == PROVED


def test_a_proof_that_fails_is_made_again(log: LogBuilder, state: str) -> None:
    store = CountingStore(MemoryStore("test"))
    faulty = FaultyStore(store)
    daemon = Daemon(log, faulty, state)
    daemon.sync()
    faulty._script |= {"put": [Fault.BEFORE], "list": [Fault.NONE, Fault.BEFORE], "open": [Fault.BEFORE]}
    log.append(1)
    for _ in range(3):
        with pytest.raises(StoreError):
            daemon.sync()
    daemon.sync()
    assert list(read_replica(store).values())[-1].files() == log.files()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_replica_that_lost_our_claim_alone_takes_nothing_until_it_is_back(
    log: LogBuilder, state: str, restarted: bool
) -> None:
    store = CountingStore(MemoryStore("test"))
    daemon = Daemon(log, store, state)
    daemon.sync()
    claim = objects(store)["epochs/00000001.json"]
    store.delete(["epochs/00000001.json"])
    if restarted:
        daemon.close()
        daemon.start()
    daemon.replica.doubt()
    log.append(1)
    store.requests.clear()
    with pytest.raises(ReplicaUnavailableError):
        daemon.sync()
    assert store.requests["put"] == 0
    store.put("epochs/00000001.json", [claim])
    daemon.sync()
    (only,) = read_replica(store).values()
    assert only.files() == log.files()


LOST = ["first", "middle", "last", "of an earlier log segment", "two", "snapshot"]


@pytest.mark.slow
@pytest.mark.parametrize("paused", [False, True])
def test_a_main_loop_that_stood_still_doubts_every_replica(tmp_path: Path, log: LogBuilder, paused: bool) -> None:
    clock = ManualClock()
    config = make_config("test", {"logs": [{"path": log.folder, "replicas": [{"url": f"memory://{uuid4().hex}"}]}]})
    replicator = Replicator(config, state_dir=str(tmp_path / "state"), host="here", clock=clock)
    doubted: list[bool] = []

    def turn() -> None:
        replica = next(iter(replicator._scheduler.tasks)).replica
        assert replica is not None
        if replica._shipping is None:
            return  # its first sync is under way
        doubted.append(replica._shipping.guard._in_doubt)
        if len(doubted) == 1:
            clock.advance(TURN_SECONDS + PAUSE_SECONDS + (1 if paused else -1))
        else:
            replicator.stop()

    replicator._on_turn = turn
    replicator.run()
    assert doubted[:2] == [False, paused]


@pytest.mark.slow
@pytest.mark.parametrize("which", sampled_cases(LOST, 3, "acknowledged objects that are lost"))
@pytest.mark.parametrize("how", ["failure", "restart", "crash"])
@pytest.mark.parametrize("backlog_sealer", [False, True])
def test_an_acknowledged_object_that_a_store_lost_is_shipped_again(
    log: LogBuilder,
    state: str,
    tmp_path: Path,
    which: str,
    how: str,
    backlog_sealer: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FaultyStore(MemoryStore("test"))
    daemon = Daemon(log, store, state, backlog_sealer=backlog_sealer, settings=Settings(snapshot_segments=99))
    for number in range(9):
        log.append(1) if number % 3 else log.roll(1)
        daemon.sync()
    name = daemon.generation
    assert daemon.sync() is False
    caplog.clear()
    wal = [key for key in objects(store) if parse_wal(key) is not None]
    lost = {
        "first": wal[:1],
        "middle": [key for key in wal if "/0000000000000003/" in key][1:2],
        "last": wal[-1:],
        "of an earlier log segment": [key for key in wal if "/0000000000000001/" in key][-1:],
        "two": [wal[2], wal[-2]],
        "snapshot": [key for key in objects(store) if parse_snapshot(key) is not None],
    }[which]
    store.inner.delete(lost)
    if how == "failure":
        store._script["put"] = [Fault.BEFORE]
        log.append(1)
        with pytest.raises(StoreError):
            daemon.sync()
    elif how == "restart":
        daemon.close()
        daemon.start()
    else:
        daemon.replica._shipping.keeper.save()
        daemon.restart()
    for _ in range(3):
        log.append(1)
        daemon.sync()
    assert daemon.generation != name
    assert restored(store, tmp_path / "out", log.format) == log.files()
    said = [record.event for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[attr-defined]
    assert said == ["objects-lost"]


@pytest.mark.parametrize("how", ["failure", "restart"])
def test_an_object_of_another_size_is_not_the_one_that_was_put(
    log: LogBuilder, state: str, tmp_path: Path, how: str
) -> None:
    store = FaultyStore(MemoryStore("test"))
    daemon = Daemon(log, store, state)
    for _ in range(3):
        daemon.sync()
        log.append(1)
    daemon.sync()
    wal = [key for key in objects(store) if parse_wal(key) is not None]
    store.inner.put(wal[1], [objects(store)[wal[1]][:-1]], create_only=False)
    if how == "failure":
        store._script["put"] = [Fault.BEFORE]
        log.append(1)
        with pytest.raises(StoreError):
            daemon.sync()
    else:
        daemon.close()
        daemon.start()
    daemon.sync()
    log.append(1)
    daemon.sync()
    assert restored(store, tmp_path / "out", log.format) == log.files()


class Bounded(CountingStore):
    """Ends a loop that would never end."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        assert self.total() < 500
        return super().list(prefix, start_after)


def test_a_lost_snapshot_is_logged_once_and_a_new_generation_begins(
    log: LogBuilder, state: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, store = ManualClock(), Bounded(MemoryStore("test"))
    daemon = Daemon(log, store, state, clock=clock, backlog_sealer=True, settings=Settings(snapshot_interval=60))
    daemon.sync()
    name = daemon.generation
    store.delete([key for key in objects(store) if parse_snapshot(key) is not None])
    log.roll(2)
    daemon.sync()
    clock.advance(61)
    store.requests.clear()
    with caplog.at_level(logging.INFO):
        assert daemon.replica.archive is not None
        daemon.replica.archive.wake()
        assert daemon.replica.changed()
        assert store.total() < 10
        daemon.sync()
    (said,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (said.event, "snapshot" in said.getMessage()) == ("objects-lost", True)  # type: ignore[attr-defined]
    assert daemon.generation != name
    assert daemon.replica.archive is not None
    assert daemon.replica.archive.blocked is None
    clock.advance(61)
    daemon.replica.archive.wake()
    assert daemon.replica.archive.blocked is None
    assert not daemon.sync()
    assert restored(store, tmp_path / "out", log.format) == log.files()


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_the_newest_snapshots_are_lost_and_the_log_is_restored(
    log: LogBuilder, state: str, tmp_path: Path, lost: int
) -> None:
    clock, store = ManualClock(), MemoryStore("test")
    settings = Settings(snapshot_segments=1, wal_retention=1)
    daemon = Daemon(log, store, state, clock=clock, backlog_sealer=True, settings=settings)
    for _ in range(4):
        daemon.sync()
        log.roll(2)
        clock.advance(5)
    daemon.sync()
    snapshots = [key for key in objects(store) if parse_snapshot(key) is not None]
    assert len(snapshots) > 3
    store.delete(snapshots[-lost:])
    for _ in range(3):
        log.roll(1)
        clock.advance(5)
        daemon.sync()
    assert restored(store, tmp_path / "out", log.format) == log.files()


def damage(store: ObjectStore, key: str, kind: str) -> None:
    """Damage an object's first bytes, or all of them."""
    body = objects(store)[key]
    changed = {"header": body[:40] + bytes([body[40] ^ 1]) + body[41:], "cut": body[:20], "emptied": b""}[kind]
    store.put(key, [changed], create_only=False)


def newest_wal(store: ObjectStore) -> str:
    return [key for key in objects(store) if parse_wal(key) is not None][-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("header", "failure"),
        ("header", "restart"),
        ("header", "crash"),
        ("header", "crash with an older state"),
        ("header", "check"),
        ("cut", "restart"),
        ("emptied", "crash with an older state"),
    ],
)
@pytest.mark.parametrize("last", sampled_cases(["open", "first", "final"], 3, "newest WAL segments"))
@pytest.mark.parametrize("backlog_sealer", [False, True])
def test_a_damaged_header_of_the_newest_wal_segment_is_not_an_end(
    log: LogBuilder,
    state: str,
    tmp_path: Path,
    kind: str,
    how: str,
    last: str,
    backlog_sealer: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only the owner still knows where its generation ends."""
    store = FaultyStore(MemoryStore("test"))
    daemon = Daemon(log, store, state, backlog_sealer=backlog_sealer, settings=Settings(snapshot_segments=99))
    for number in range(6):
        log.append(1) if number % 3 else log.roll(1)
        daemon.sync()
    daemon.replica._shipping.keeper.save()
    log.append(1) if last == "open" else log.roll(1)
    if last == "final":
        store._script["put"] = [Fault.NONE, Fault.BEFORE]
        with pytest.raises(StoreError):
            daemon.sync()
        assert daemon.acknowledged[-1].header.final
    else:
        daemon.sync()
    name = daemon.generation
    caplog.clear()
    damage(store.inner, newest_wal(store), kind)
    if how == "failure":
        store._script["put"] = [Fault.BEFORE]
        log.append(1)
        with pytest.raises(StoreError):
            daemon.sync()
    elif how == "restart":
        daemon.close()
        daemon.start()
    elif how == "check":
        daemon.replica.repair([newest_wal(store)])
    else:
        if how == "crash":
            daemon.replica._shipping.keeper.save()
        daemon.restart()
    for _ in range(3):
        log.append(1)
        daemon.sync()
    assert daemon.generation != name
    assert [claim.relation for claim in daemon.claims][-1] == "continues"
    assert restored(store, tmp_path / "out", log.format) == log.files()
    said = [record.event for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[attr-defined]
    assert said == ["objects-lost"]


@pytest.mark.parametrize("last", ["open", "final"])
@pytest.mark.parametrize("puts", range(8))
def test_a_generation_after_an_unreadable_end_begins_after_a_crash_too(
    log: LogBuilder, state: str, tmp_path: Path, last: str, puts: int
) -> None:
    store = FaultyStore(MemoryStore("test"))
    daemon = Daemon(log, store, state, backlog_sealer=True)
    daemon.sync()
    log.append(1)
    daemon.sync()
    if last == "final":
        log.roll(1)
        store._script["put"] = [Fault.NONE, Fault.BEFORE]
        with pytest.raises(StoreError):
            daemon.sync()
    name = daemon.generation
    damage(store.inner, newest_wal(store), "header")
    log.roll(2)
    store._script["put"] = [*[Fault.NONE] * puts, Fault.AFTER if puts % 2 else Fault.BEFORE]
    with suppress(StoreError):
        daemon.replica.repair([newest_wal(store)])
        daemon.sync()
    store._script.clear()
    daemon.restart()
    while daemon.sync():
        pass
    assert daemon.generation != name
    assert restored(store, tmp_path / "out", log.format) == log.files()


def test_a_takeover_of_a_generation_with_an_unreadable_end_names_the_object(
    log: LogBuilder, state: str, tmp_path: Path
) -> None:
    """Only its owner knows its next slot. After a person removed the object, the takeover continues as after any other
    loss."""
    store = MemoryStore("test")
    daemon = Daemon(log, store, state)
    daemon.sync()
    log.append(1)
    daemon.sync()
    key = newest_wal(store)
    damage(store, key, "header")
    daemon.lose_state()
    daemon.start(takeover=True)
    with pytest.raises(CorruptObjectError, match=key):
        daemon.sync()
    store.delete([key])
    daemon.restart(takeover=True)
    daemon.sync()
    assert restored(store, tmp_path / "out", log.format) == log.files()


@pytest.mark.parametrize("ended", [False, True])
def test_a_damaged_header_before_the_newest_wal_segment_is_skipped(
    log: LogBuilder, state: str, tmp_path: Path, ended: bool
) -> None:
    """The newest one says where the generation ends, or the terminal that a daemon put there before it crashed."""
    store = FaultyStore(MemoryStore("test"))
    daemon = Daemon(log, store, state)
    for _ in range(3):
        daemon.sync()
        log.append(1)
    daemon.sync()
    name = daemon.generation
    if ended:
        store._script["put"] = [*[Fault.NONE] * 3, Fault.BEFORE]  # the claim twice, the terminal, the snapshot
        daemon.lose_state()
        daemon.start(takeover=True)
        with pytest.raises(StoreError):
            daemon.sync()
    wal = [key for key in objects(store) if f"/{name}/wal/" in key]
    damage(store.inner, wal[-2], "header")
    daemon.replica.repair([wal[-2]])
    if ended:
        daemon.lose_state()
        daemon.start(takeover=True)
    daemon.sync()
    assert daemon.generation != name
    assert restored(store, tmp_path / "out", log.format) == log.files()


@pytest.mark.parametrize("succeeded", [False, True])
def test_an_object_that_cannot_be_read_in_the_next_slot_may_be_a_successors(
    log: LogBuilder, state: str, tmp_path: Path, succeeded: bool
) -> None:
    store = MemoryStore("test")
    daemon = Daemon(log, store, state)
    daemon.sync()
    name = daemon.generation
    if succeeded:
        Daemon(log, store, str(tmp_path / "other"), takeover=True, seed=1).sync()
        slot = [key for key in objects(store) if f"/{name}/wal/" in key][-1]
    else:
        slot = wal_key(daemon.replica.position)
        store.put(slot, [b"junk" * 20])
    damage(store, slot, "emptied")
    log.append(1)
    if succeeded:
        with pytest.raises(FencedError, match="was succeeded by"):
            daemon.sync()
    else:
        daemon.sync()
        assert restored(store, tmp_path / "out", log.format) == log.files()


def drop_oldest(log: LogBuilder, count: int) -> dict[str, bytes]:
    """Have the source drop its oldest log segments. Returns their bytes, keyed by name."""
    held = log.files()
    dropped = {name: held[name] for name in sorted(held)[:count]}
    for name in dropped:
        log.delete(name)
    return dropped


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 2, 4])
def test_after_an_unrecoverable_loss_the_rest_is_restored_and_the_loss_is_reported(
    log: LogBuilder, state: str, tmp_path: Path, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock, store = ManualClock(), FaultyStore(MemoryStore("test"))
    settings = Settings(snapshot_segments=1, wal_retention=1)
    daemon = Daemon(log, store, state, clock=clock, backlog_sealer=True, settings=settings)
    for _ in range(7):
        daemon.sync()
        log.roll(2)
        clock.advance(5)
    daemon.sync()
    name = daemon.generation
    everything = log.files()
    drop_oldest(log, 5)
    wal = [key for key in objects(store) if parse_wal(key) is not None]
    store.inner.delete([f"generations/{name}/segments/{lost:016x}.segment.lz4", wal[-1]])
    store._script["put"] = [Fault.BEFORE]
    log.append(1)
    with pytest.raises(StoreError):
        daemon.sync()
    daemon.sync()
    log.append(1)
    daemon.sync()
    whole = {file: data for file, data in everything.items() if file > sorted(everything)[lost]}
    assert restored(store, tmp_path / "out", log.format) == {**whole, **log.files()}
    kinds = [record.event for record in caplog.records if record.levelno >= logging.ERROR]  # type: ignore[attr-defined]
    assert kinds == ["objects-lost", "objects-unrecoverable"]
    kept = daemon.folder.load()
    assert kept is not None
    assert f"up to index {lost}" in kept.lost


@pytest.mark.slow
def test_log_segments_that_only_the_replica_holds_survive_another_loss(
    log: LogBuilder, state: str, tmp_path: Path
) -> None:
    clock, store = ManualClock(), FaultyStore(MemoryStore("test"))
    daemon = Daemon(log, store, state, clock=clock, backlog_sealer=True, settings=Settings(snapshot_segments=2))
    for _ in range(7):
        daemon.sync()
        log.roll(2)
        clock.advance(5)
    daemon.sync()
    dropped = drop_oldest(log, 6)
    wal = [key for key in objects(store) if parse_wal(key) is not None]
    store.inner.delete(wal[-1:])
    daemon.replica.doubt()
    log.append(1)
    daemon.sync()
    log.append(1)
    daemon.sync()
    assert restored(store, tmp_path / "out", log.format) == {**dropped, **log.files()}


class HidingStore(CountingStore):
    """Lists an object but cannot open it, like a folder that is unmounted between the two requests."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        super().__init__(inner)
        self.hidden = key

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        if key == self.hidden:
            raise NotFoundError(key)
        return super().open(key, byte_range)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True])
def test_a_missing_object_is_looked_for_again_before_it_counts_as_lost(
    log: LogBuilder, tmp_path: Path, lost: bool
) -> None:
    store = MemoryStore("test")
    Daemon(log, store, str(tmp_path / "one")).sync()
    last = max(info.key for info in store.list("") if parse_wal(info.key) is not None)
    hiding = HidingStore(store, last)
    second = Daemon(log, hiding, str(tmp_path / "two"), takeover=True, seed=1)
    with pytest.raises(StoreError, match="is missing from the replica"):
        second.sync()
    if lost:
        with pytest.raises(ReplicaGapError):
            second.sync()
        return
    hiding.hidden = ""
    second.sync()
    assert restored(store, tmp_path / "out", log.format) == log.files()
