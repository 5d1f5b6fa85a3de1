"""A daemon that deletes nothing (``no-delete``), and a pruner with other credentials that works while it runs."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.errors import StoreError
from litelog.objects.layout import parse_claim, parse_sealed, parse_wal
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.shipping.pruner import NewClaimError, PruningSession
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import HOUR, Daemon, live
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore
from tests.sampling import times

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from litelog.shipping.pruner import Pruned

DAY = 24 * HOUR


class Undeletable(CountingStore):
    """A store at which these credentials delete nothing."""

    def delete(self, keys: Iterable[str]) -> None:
        raise AssertionError(f"the daemon deletes {list(keys)}")


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    return make_log(tmp_path / "log")


def start(log: LogBuilder, store: MemoryStore, tmp_path: Path, policy: RetentionPolicy | None = None) -> Daemon:
    settings = Settings(
        snapshot_policy=SnapshotPolicy.MIRROR,
        retention=policy or RetentionPolicy(),
        snapshot_interval=HOUR,
        no_delete=True,
    )
    return Daemon(log, Undeletable(store), str(tmp_path / "state"), clock=ManualClock(), settings=settings)


def prune(store: MemoryStore, clock: ManualClock, policy: RetentionPolicy | None = None) -> Pruned | None:
    client = ObjectReplicaClient(store)
    return PruningSession(client, policy or RetentionPolicy(), clock, None, None, HOUR).prune()


def wal(store: MemoryStore) -> list[str]:
    return [info.key for info in store.list("") if parse_wal(info.key) is not None]


def restored(daemon: Daemon, store: MemoryStore) -> dict[str, bytes]:
    return read_replica(store)[daemon.generation].files()


@pytest.mark.slow
def test_the_daemon_deletes_nothing_and_remembers_nothing_to_delete(log: LogBuilder, tmp_path: Path) -> None:
    store = MemoryStore("shared")
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=DAY))
    live(daemon, hours=60)
    assert len(wal(store)) > 100
    assert daemon.replica.archive is not None
    assert daemon.replica.archive.state.covered == ()


def test_a_client_that_deletes_nothing_sends_no_request() -> None:
    client = ObjectReplicaClient(Undeletable(MemoryStore("shared")), deletes=False)
    with pytest.raises(StoreError, match="no-delete") as refused:
        client.delete_wal_segments([])
    assert not refused.value.retryable


def test_a_pruner_beside_it_deletes_what_snapshots_cover(log: LogBuilder, tmp_path: Path) -> None:
    store = MemoryStore("shared")
    daemon = start(log, store, tmp_path)
    live(daemon, hours=20)
    before = restored(daemon, store)
    pruned = prune(store, daemon.clock)
    assert pruned is not None
    assert pruned.deleted == len(pruned.plan.removals) > 30
    assert {str(removal.kind) for removal in pruned.plan.removals} == {"WAL segment"}
    assert len(wal(store)) < 8
    assert restored(daemon, store) == before
    live(daemon, hours=3)  # in the same generation
    assert len(daemon.claims) == 1
    assert restored(daemon, store) == daemon.log.files()
    assert verify(store, formats=lambda _: log.format).is_sound


def test_a_pruner_applies_retention_and_the_daemon_stays_in_its_generation(log: LogBuilder, tmp_path: Path) -> None:
    store = MemoryStore("shared")
    policy = RetentionPolicy(max_age=10 * HOUR)
    daemon = start(log, store, tmp_path, policy)
    for _ in range(5):
        live(daemon, hours=10)
        for name in sorted(log.files())[:-3]:
            (tmp_path / "log" / name).unlink()
        live(daemon, hours=2)
        assert prune(store, daemon.clock, policy) is not None
    assert len([info for info in store.list("") if parse_sealed(info.key) is not None]) < 40
    assert len(daemon.claims) == 1
    assert verify(store, formats=lambda _: log.format).is_sound


def test_nothing_of_the_last_hour_is_deleted(log: LogBuilder, tmp_path: Path) -> None:
    store = MemoryStore("shared")
    daemon = start(log, store, tmp_path)
    live(daemon, hours=3)
    client = ObjectReplicaClient(store)
    session = PruningSession(client, RetentionPolicy(), daemon.clock, None, None, 0.0)
    plan = session.plan()
    assert plan is not None
    planned = {removal.position for removal in plan.removals}
    positions = {parse_wal(key) for key in wal(store)}
    covered = {each for each in positions if each is not None and each.index < daemon.snapshots[-1].next}
    assert planned
    assert planned < covered, "a snapshot younger than an hour covers nothing yet"


def test_a_pruner_stops_if_a_generation_begins_after_its_plan(log: LogBuilder, tmp_path: Path) -> None:
    store = MemoryStore("shared")
    daemon = start(log, store, tmp_path)
    live(daemon, hours=20)
    client = ObjectReplicaClient(store)

    def take_over(_plan: object) -> None:
        state = str(tmp_path / "other")
        Daemon(log, store, state, clock=daemon.clock, takeover=True, settings=daemon.settings).sync()

    before = len(wal(store))
    with pytest.raises(NewClaimError, match="a generation began meanwhile: run this again"):
        PruningSession(client, RetentionPolicy(), daemon.clock, None, None, HOUR).prune(take_over)
    assert len(wal(store)) >= before
    assert len([info for info in store.list("") if parse_claim(info.key) is not None]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(times(6, 60)))
def test_at_random_all_that_a_pruner_leaves_is_sound(log: LogBuilder, tmp_path: Path, seed: int) -> None:
    """Pruners with other limits than the daemon's run at random moments, and daemons restart and take over."""
    random = Random(seed)
    store = MemoryStore("shared")
    policy = RetentionPolicy(max_age=random.choice([2, 5, 20]) * HOUR)
    daemon = start(log, store, tmp_path, policy)
    for turn in range(12):
        live(daemon, hours=random.randrange(1, 5))
        match random.randrange(4):
            case 0:
                prune(store, daemon.clock, RetentionPolicy(max_age=random.choice([1, 4, 30]) * HOUR))
            case 1:
                prune(store, daemon.clock)
            case 2:
                for name in sorted(log.files())[: -random.randrange(2, 5)]:
                    (tmp_path / "log" / name).unlink()
            case 3:
                settings = replace(daemon.settings)
                state = str(tmp_path / f"state-{turn}")
                daemon = Daemon(log, Undeletable(store), state, clock=daemon.clock, takeover=True, settings=settings)
                daemon.sync()
        held = restored(daemon, store) if daemon.claims else {}
        assert all(log.texts[name] == data for name, data in held.items())
    live(daemon, hours=1)
    found = restored(daemon, store)
    assert {name: found[name] for name in log.files()} == log.files()
    assert verify(store, formats=lambda _: log.format).is_sound
