"""Retention next to other live owners: isolated fencing does not stop them, so none of their objects is deleted."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from litelog.objects.layout import CLAIMS, Fencing, parse_sealed, parse_snapshot, parse_wal, snapshot_key
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import Settings
from litelog.shipping.ownership_guard import LOOK_SECONDS
from litelog.shipping.pruner import PruningSession
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import HOUR, Daemon, live, newest_snapshot, restored
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CarelessStore
from tests.sampling import sampled_cases

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class DeletingStore(CarelessStore):
    """Records deleted keys."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.deleted: list[str] = []

    def delete(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        self.deleted += keys
        super().delete(keys)


class Owners:
    """Isolated daemons over one log, one clock and one store, each with its own state folder and policy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: LogBuilder = make_log(folder / "log")
        self.log.roll(3)
        self.clock = ManualClock()
        self.store = DeletingStore(MemoryStore("test"))
        self.stores: list[DeletingStore] = []

    def start(self, policy: RetentionPolicy, *, takeover: bool = False, **changes: object) -> Daemon:
        """Start one more daemon, whose store is appended to ``stores``."""
        number = len(self.stores)
        store = DeletingStore(self.store.inner)  # type: ignore[arg-type]
        self.stores.append(store)
        settings = Settings(retention=policy, snapshot_interval=HOUR, **changes)  # type: ignore[arg-type]
        return Daemon(
            self.log,
            store,
            str(self.folder / f"state{number}"),
            clock=self.clock,
            seed=number,
            takeover=takeover,
            settings=settings,
            fencing=Fencing.ISOLATED,
            backlog_sealer=True,
        )

    def restored(self, name: str | None = None) -> dict[str, bytes]:
        return restored(self.store, self.folder / "restored", self.log.format, name)

    def listed(self) -> list[str]:
        return [info.key for info in self.store.list("")]

    def is_whole(self, daemon: Daemon) -> bool:
        """Whether a restore of a daemon's generation gives log segments of the log, in a row, byte for byte, up to all
        that it shipped."""
        held = self.restored(daemon.generation)
        names = sorted(self.log.texts)
        start = names.index(next(iter(held)))
        shipped = daemon.acknowledged[-1].header
        *whole, last = names[start : start + len(held)]
        expected = {name: self.log.texts[name] for name in whole} | {last: self.log.texts[last][: shipped.end]}
        return held == expected and last == shipped.file


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    return Owners(tmp_path)


def two_at_once(owners: Owners, one: RetentionPolicy, two: RetentionPolicy) -> list[Daemon]:
    """Two owners of one epoch: both saw an empty replica."""
    first, second = owners.start(one), owners.start(two)
    owners.stores[0].before_put(CLAIMS, second.sync)
    first.sync()
    return [first, second]


def generation_of(key: str) -> str:
    return key.split("/")[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keep", "tight"), sampled_cases(product([None, 4], [0, 1]), 2, "policies of two owners that prune")
)
def test_two_live_owners_prune_only_their_own_generations_by_their_own_policies(
    owners: Owners, keep: int | None, tight: int
) -> None:
    policies = [RetentionPolicy(max_snapshots=2), RetentionPolicy(max_age=12 * HOUR)]
    daemons = two_at_once(owners, policies[tight], policies[1 - tight])
    for _ in range(10):
        live(*daemons, hours=4, keep=keep)
        assert all(owners.is_whole(daemon) for daemon in daemons)
    for daemon, store in zip(daemons, owners.stores, strict=True):
        assert {generation_of(key) for key in store.deleted} == {daemon.generation}
        assert any(parse_snapshot(key) for key in store.deleted)
        assert any(parse_wal(key) for key in store.deleted)
        assert bool(keep) >= any(parse_sealed(key) for key in store.deleted)
    left = [sum(parse_snapshot(key) is not None and d.generation in key for key in owners.listed()) for d in daemons]
    assert 2 <= left[tight] <= 4
    assert left[1 - tight] <= 15
    assert 12 <= len(owners.restored(daemons[1 - tight].generation)) <= (18 if keep else 41)


@pytest.mark.slow
def test_an_owner_that_fell_silent_keeps_all_that_it_has(owners: Owners) -> None:
    """An owner without a put for an hour may be alive: its disk is slow, its log quiet, its machine suspended."""
    daemons = two_at_once(owners, RetentionPolicy(), RetentionPolicy(max_snapshots=1))
    live(*daemons, hours=6)
    silent, other = daemons
    there = [key for key in owners.listed() if silent.generation in key]
    live(other, hours=30)
    assert [key for key in owners.listed() if silent.generation in key] == there
    silent.sync()
    assert owners.is_whole(silent)


@pytest.mark.slow
def test_after_a_takeover_the_new_owner_prunes_only_its_own_objects(owners: Owners) -> None:
    old = owners.start(RetentionPolicy())
    old.sync()
    live(old, hours=12, keep=4)
    there = [key for key in owners.listed() if old.generation in key]
    new = owners.start(RetentionPolicy(max_age=3 * HOUR), takeover=True)
    live(new, hours=20, keep=4)
    assert [key for key in owners.listed() if old.generation in key] == there
    assert {generation_of(key) for key in owners.stores[1].deleted} == {new.generation}
    assert any(parse_sealed(key) for key in owners.stores[1].deleted)
    assert owners.is_whole(new)
    assert owners.is_whole(old)


@pytest.mark.slow
def test_objects_that_a_new_owner_names_stay_even_if_the_old_owner_prunes_meanwhile(owners: Owners) -> None:
    """It refers to sealed segments of its predecessor, who does not know yet that there is a successor."""
    policy = RetentionPolicy(max_age=2 * HOUR)
    old = owners.start(policy, snapshot_segments=1)
    old.sync()
    live(old, hours=8, keep=3)
    while not any(parse_sealed(key) for key in owners.stores[0].deleted):
        live(old, hours=1, keep=3)
    deleted = len(owners.stores[0].deleted)
    assert old.replica.archive is not None
    window = owners.clock.now() - 2 * int(HOUR) * 1_000_000
    leaves = min(drop.time for drop in old.replica.archive.state.drops if drop.time > window) - window
    owners.clock.advance(leaves / 1_000_000 - LOOK_SECONDS / 6)
    assert old.replica._writer is not None
    old.replica._writer._guard._looked_at = 0.0  # so that it looks now, and not again for a minute
    owners.log.append(1)
    old.sync()
    new = owners.start(RetentionPolicy(), takeover=True)

    def let_go() -> None:
        """Within a few seconds of the clock, the segments of the newest snapshot leave the old owner's window."""
        for _ in range(3):
            owners.clock.advance(LOOK_SECONDS / 10)
            owners.log.roll(1)
            owners.log.append(1)
            old.sync()

    owners.stores[1].before_put("generations/", let_go)
    new.sync()
    assert len(owners.stores[0].deleted) > deleted
    assert owners.is_whole(new)
    begun = newest_snapshot(new)
    assert begun.segments[0].generation == old.generation


@pytest.mark.slow
def test_pruning_by_hand_is_as_careful(owners: Owners) -> None:
    daemons = two_at_once(owners, RetentionPolicy(), RetentionPolicy())
    live(*daemons, hours=12)
    tight = RetentionPolicy(max_snapshots=1)
    for daemon in daemons:
        daemon.close()
    for daemon in daemons:
        client = ObjectReplicaClient(owners.store)
        gone = PruningSession(client, tight, owners.clock, daemon.state).prune()
        assert gone is not None
        assert gone.deleted > 0
        assert {removal.generation for removal in gone.plan.removals} == {daemon_generation(owners, daemon)}
    plan = PruningSession(ObjectReplicaClient(owners.store), tight, owners.clock, None).plan()
    assert plan is not None
    assert plan.removals == ()


def daemon_generation(owners: Owners, daemon: Daemon) -> str:
    return next(claim.generation for claim in reversed(daemon.claims))


@pytest.mark.slow
def test_an_unreadable_snapshot_of_another_owner_keeps_objects_it_may_name(owners: Owners) -> None:
    old = owners.start(RetentionPolicy())
    old.sync()
    live(old, hours=8, keep=4)
    new = owners.start(RetentionPolicy(), takeover=True)
    new.sync()
    live(new, hours=3)
    name = new.generation
    first = min(parse_snapshot(key)[1] for key in owners.listed() if new.generation in key and parse_snapshot(key))
    owners.store.put(snapshot_key(name, first), [b"damaged"])
    old.close()
    session = PruningSession(
        ObjectReplicaClient(owners.store), RetentionPolicy(max_snapshots=1), owners.clock, old.state
    )
    plan = session.plan()
    assert plan is not None
    assert not any(parse_sealed(removal.key) for removal in plan.removals)
    assert any(parse_snapshot(removal.key) for removal in plan.removals)
