"""Locks of objects are extended before they end, for what a replica still needs, and with few requests."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import NotFoundError, StoreError
from litelog.objects.layout import checkpoint_key, parse_sealed, parse_wal
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.shipping.lock_extension import FILE, MAX_REFUSED, LockExtension
from litelog.stores.object_store import ObjectReplicaClient
from litelog.units import MICROSECONDS
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from litelog.shipping.lock_extension import LockResult

HOUR = 3600.0
DAY = 24 * HOUR
RETAIN = 4 * DAY


class LockedStore(MemoryStore):
    """Locks each object for ``retain`` from its put on, by a manual clock. A deletion hides an object, as in a
    bucket."""

    def __init__(self, clock: ManualClock, retain: float = RETAIN) -> None:
        super().__init__("locked")
        self.clock = clock
        self.retain = retain
        self.put_at: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.refusal: StoreError | None = None
        self.refused: set[str] = set()
        self.extended: list[str] = []

    @property
    def locks(self) -> LockedStore:
        return self

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        super().put(key, body, create_only=create_only)
        self.put_at[key] = self.clock.now()
        self.ends[key] = self._end()

    def extend(self, key: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        if key in self.refused:
            raise StoreError("lock", key, "denied", retryable=False)
        self.open(key).close()
        self.extended.append(key)
        self.ends[key] = self._end()

    def _end(self) -> int:
        return self.clock.now() + int(self.retain * MICROSECONDS)


class Locks:
    """The locks of a store, as a backend offers them."""

    def __init__(self, store: LockedStore) -> None:
        self._store = store
        self.retain = store.retain

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        for info in self._store.list(prefix):
            yield info.key, self._store.put_at[info.key]

    def extend(self, key: str) -> None:
        self._store.extend(key)


class World:
    """A daemon that ships to a locked store, and its extension of locks."""

    def __init__(self, folder: Path, policy: RetentionPolicy, retain: float = RETAIN) -> None:
        self.clock = ManualClock()
        self.store = LockedStore(self.clock, retain)
        self.log: LogBuilder = make_log(folder / "log")
        self.log.roll(1)
        self.settings = Settings(
            snapshot_policy=SnapshotPolicy.MIRROR, retention=policy, snapshot_interval=HOUR, snapshot_segments=1
        )
        self.state = folder / "state"
        self.daemon = Daemon(self.log, self.store, str(self.state), clock=self.clock, settings=self.settings)
        self.daemon.sync()
        self.extension = self.new_extension()

    def new_extension(self) -> LockExtension:
        """As a daemon makes it when it starts."""
        client = ObjectReplicaClient(self.store)
        return LockExtension(
            Locks(self.store),
            client,
            self.settings,
            str(self.state),
            known=lambda: self.daemon.replica.archived,
            clock=self.clock,
        )

    def extend(self) -> LockResult | None:
        return self.extension.run(threading.Event())

    def needed(self) -> list[str]:
        """The objects that are needed: not WAL segments that a snapshot covers, which an idle daemon has not deleted
        yet."""
        covered = self.daemon.snapshots[-1].next if self.daemon.snapshots else 0
        found = [info.key for info in self.store.list("")]
        return [key for key in found if (wal := parse_wal(key)) is None or wal.index >= covered]

    def unlocked(self) -> list[str]:
        """The needed objects whose lock has ended."""
        return [key for key in self.needed() if self.store.ends[key] <= self.clock.now()]

    def live(self, hours: int, *, extends: bool = True, grows: bool = True) -> None:
        """Let hours pass. The source keeps three log segments. Rounds run when they are due."""
        for _ in range(hours):
            if grows:
                self.log.roll(1)
                self.log.append(1)
            self.clock.advance(HOUR)
            self.daemon.sync()
            for name in sorted(self.log.files())[:-3]:
                Path(self.log.path(name)).unlink()
            if extends and self.clock.monotonic() >= self.extension.due:
                self.extend()
                assert self.unlocked() == []


@pytest.mark.slow
def test_what_is_kept_stays_locked_for_longer_than_its_first_lock(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.live(24)
    world.live(15 * 24, grows=False)
    assert world.unlocked() == []
    kept = world.needed()
    half = RETAIN / 2 / DAY
    counts = Counter(world.store.extended)
    assert max(counts[key] for key in kept) <= 16 / half
    assert min(counts[key] for key in kept) >= 15 / half - 1


@pytest.mark.slow
def test_without_it_locks_end(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.live(6)
    world.live(5 * 24, extends=False, grows=False)
    assert world.unlocked()


@pytest.mark.slow
def test_only_what_retention_keeps_is_extended(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy(max_age=DAY))
    world.live(8 * 24)
    assert {key for key in world.store.extended if parse_sealed(key) is not None} == set()
    assert {key for key in world.store.extended if parse_wal(key) is not None} == set()
    assert world.store.extended, "the claim stays for as long as the replica"


@pytest.mark.slow
def test_nothing_is_extended_before_half_of_the_time(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.live(2)
    result = world.extend()
    assert result is not None
    assert (result.extended, result.error) == (0, None)
    world.live(47, extends=False)
    result = world.extend()
    assert result is not None
    assert 0 < result.extended < len(list(world.store.list("")))


def test_after_the_daemon_was_away_all_that_is_due_is_extended(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.live(3)
    assert world.extend() is not None
    world.clock.advance(3 * DAY)
    world.extension = world.new_extension()
    assert world.extension.due - world.clock.monotonic() <= 10
    world.extend()
    world.clock.advance(2 * DAY)
    assert world.unlocked() == []


@pytest.mark.parametrize("damage", ["lost", "shorter before"])
def test_if_the_last_round_is_not_known_all_that_was_there_is_extended(tmp_path: Path, damage: str) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.live(3)
    world.extend()
    if damage == "lost":
        (world.state / FILE).unlink()
    else:
        world.store.retain = 2 * RETAIN
    world.clock.advance(1)
    world.extension = world.new_extension()
    world.extend()
    assert set(world.store.extended) == {info.key for info in world.store.list("")}
    world.store.extended.clear()
    world.extend()
    assert world.store.extended == []


@pytest.mark.slow
def test_a_refusal_is_reported_once_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.live(2)
    world.extend()
    world.live(48, extends=False)
    world.store.refusal = StoreError("lock", "a key", "grant s3:PutObjectRetention", retryable=False)
    before = world.extension.last
    for _ in range(2):
        result = world.extend()
        world.extension.report("log", "replica", before)
        before = world.extension.last
        assert result is not None
        assert "grant s3:PutObjectRetention" in str(result.error)
        assert (result.extended, result.time) == (0, before.time)
    assert [record.event for record in caplog.records if hasattr(record, "event")].count("locks-not-extended") == 1
    assert world.extension.due - world.clock.monotonic() <= 600
    world.store.refusal = None
    result = world.extend()
    assert result is not None
    assert (result.error, result.extended > 0) == (None, True)


def test_checkpoints_stay_locked_too(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    key = checkpoint_key(world.daemon.generation, 1)
    world.store.put(key, [b"{}"])
    world.clock.advance(RETAIN / 2)
    world.extension = world.new_extension()
    world.extend()
    assert key in world.store.extended


def test_one_object_whose_lock_is_refused_holds_up_no_other_and_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.extend()
    refused = min(info.key for info in world.store.list(""))
    world.store.refused = {refused}
    world.clock.advance(RETAIN / 2)
    result = world.extend()
    assert result is not None
    assert (result.extended, "denied" in str(result.error)) == (len(world.needed()) - 1, True)
    world.store.extended.clear()
    result = world.extend()
    assert result is not None
    assert (world.store.extended, "denied" in str(result.error)) == ([], True), "only the refused one is asked for"
    assert world.extension.due - world.clock.monotonic() <= 600
    world.extension = world.new_extension()
    world.store.refused = set()
    result = world.extend()
    assert result is not None
    assert (world.store.extended, result.error) == ([refused], None)


def test_what_was_put_while_no_round_could_end_is_extended_in_time(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.store.refusal = StoreError("lock", "a key", "slow down")
    world.clock.advance(1)
    world.log.append(1)
    world.daemon.sync()
    world.clock.advance(RETAIN * 0.6)
    world.extend()
    world.store.refusal = None
    world.extend()
    assert set(world.store.extended) == {info.key for info in world.store.list("")}


@pytest.mark.slow
def test_refusals_end_a_round(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.extend()
    world.live(70, extends=False)
    tried: list[str] = []

    class Refusing(Locks):
        def extend(self, key: str) -> None:
            tried.append(key)
            raise StoreError("lock", key, "denied", retryable=False)

    world.extension._locks = Refusing(world.store)
    result = world.extend()
    assert result is not None
    assert (len(tried), result.extended) == (MAX_REFUSED, 0)


@pytest.mark.slow
def test_a_failure_that_may_pass_ends_a_round_and_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.extend()
    world.live(60, extends=False)
    world.store.refusal = StoreError("lock", "a key", "slow down")
    result = world.extend()
    assert result is not None
    assert "slow down" in str(result.error)


@pytest.mark.slow
def test_an_object_that_is_deleted_meanwhile_does_not_matter(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.extend()
    world.live(70, extends=False)

    class Gone(Locks):
        def extend(self, key: str) -> None:
            raise NotFoundError(key)

    world.extension._locks = Gone(world.store)
    result = world.extend()
    assert result is not None
    assert (result.error, result.extended) == (None, 0)


@pytest.mark.slow
def test_a_round_ends_when_the_daemon_stops_and_is_not_counted(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.live(60, extends=False)
    stop = threading.Event()
    stop.set()
    assert world.extension.run(stop) is None
    assert world.store.extended == []
    assert not (world.state / FILE).exists()


def test_before_the_first_sync_nothing_is_done(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    extension = LockExtension(
        Locks(world.store),
        ObjectReplicaClient(world.store),
        world.settings,
        str(tmp_path),
        known=lambda: None,
        clock=world.clock,
    )
    assert extension.run(threading.Event()) is None


def test_the_file_holds_the_time_and_no_key(tmp_path: Path) -> None:
    world = World(tmp_path, RetentionPolicy())
    world.extend()
    kept = json.loads((world.state / FILE).read_text())
    assert kept["time"] == world.clock.now()
    assert kept["retain"] == RETAIN
