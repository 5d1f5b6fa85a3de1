"""Retention of real objects: the facts that it gathers, and the data that readers find after each deletion."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from litelog.codec.lz4_frames import compress_frames, decompress_frames
from litelog.errors import StoreError, UnknownVersionError
from litelog.formats.litelog import LitelogFormat
from litelog.objects.claim import Relation
from litelog.objects.layout import sealed_key, snapshot_key, wal_key
from litelog.reading.contents import list_pieces
from litelog.reading.generations import find_tip
from litelog.reading.latest import find_latest
from litelog.retention.deletion import delete_planned
from litelog.retention.facts import Gathering, SealedRange
from litelog.retention.plan import plan_retention
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import LogSource, ReplicaContext, Settings
from litelog.shipping.pruner import PRUNE_SECONDS, CautiousTime, Pruner
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import INLINE, SilentListener
from tests.builders.independent_reader import read_replica
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import SECOND, ReplicaBuilder, make_log, of_other_owner
from tests.builders.stores import CountingStore
from tests.builders.verify_helper import everything, found, verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.objects.claim import Claim
    from litelog.retention.facts import ReplicaFacts
    from litelog.stores.replica_client import ReplicaClient

LOG = make_log([[2, 3, 1], [4, 2], [1], [2, 2, 2], [3], [1, 1]])
NEWEST = RetentionPolicy(max_snapshots=1)
NOW = 10**15


def mirrored() -> ReplicaBuilder:
    """Six log segments; the source dropped the first two of them before the last snapshot."""
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:5]:
        built.ship_segment(segment, cuts=[0])
    built.ship_segment(LOG[5], final=None)
    for upto, first in ((2, 0), (4, 0), (5, 2)):
        built.snapshot(upto, first)
        built.prune(upto)
    return builder


def succeeded() -> ReplicaBuilder:
    """A second generation that refers to the first one's sealed segments from index 1 on, and adds another one."""
    builder = ReplicaBuilder()
    old = builder.add()
    for segment in LOG[:4]:
        old.ship_segment(segment)
    old.snapshot(2)
    old.snapshot(4)
    entries = [old.entries[index] for index in (1, 2, 3)]
    new = builder.add(builder.claim(first=4), start=False)
    new.start(entries, end=old.slot)
    new.ship_segment(LOG[4])
    new.snapshot(5)
    new.ship_segment(LOG[5], final=None)
    return builder


def unfinished(snapshots: Iterable[int] = (1, 2)) -> ReplicaBuilder:
    """A first generation that ended after its newest snapshot (its first one, if it has no others), and a second
    generation that holds all of the log again."""
    builder = ReplicaBuilder()
    old = builder.add()
    for segment in LOG[:4]:
        old.ship_segment(segment, cuts=[0])
    for upto in snapshots:
        old.snapshot(upto)
    new = builder.add()
    for segment in LOG[:5]:
        new.ship_segment(segment)
    new.snapshot(5)
    new.ship_segment(LOG[5], final=None)
    return builder


def gather(builder: ReplicaBuilder) -> ReplicaFacts:
    facts = Gathering(builder.client).gather()
    assert facts is not None
    return facts


def held(builder: ReplicaBuilder) -> dict[str, bytes]:
    """The latest generation's log, as an independent reader finds it from its objects and sealed segments alone."""
    latest = find_latest(builder.client).generation
    objects = builder.objects()
    parts = ("epochs/", f"generations/{latest}/")
    wanted = {key for key in objects if key.startswith(parts) or "/segments/" in key}
    store = MemoryStore("latest")
    for key in sorted(wanted):
        store.put(key, [objects[key]])
    return read_replica(store)[latest].files()


def files(first: int) -> dict[str, bytes]:
    return {segment.name: segment.data for segment in LOG[first:]}


def test_gathered_facts_match_the_objects_of_the_replica() -> None:
    builder = succeeded()
    old, new = gather(builder).generations
    first, second = (built.name for built in builder.generations)
    assert [one.names for one in old.snapshots] == [(), (SealedRange(first, 0, 2),), (SealedRange(first, 0, 4),)]
    assert [one.names for one in new.snapshots] == [
        (SealedRange(first, 1, 4),),
        (SealedRange(first, 1, 4), SealedRange(second, 4, 5)),
    ]
    assert (len(old.sealed), len(old.wal), old.ended) == (4, 5, builder.generations[0].clock)
    assert (new.caught_up, gather(builder).latest, new.ended) == (4, second, 0)
    sizes = sum(one.size for held in (old, new) for one in (*held.snapshots, *held.sealed, *held.wal))
    stored = sum(len(body) for key, body in builder.objects().items() if key.startswith("generations/"))
    assert sizes == stored


@pytest.mark.parametrize(("make", "first"), [(mirrored, 2), (succeeded, 1)])
def test_readers_read_all_that_the_newest_snapshot_names_after_each_step(make: Callable[..., Any], first: int) -> None:
    builder = make()
    plan = plan_retention(gather(builder), NEWEST, NOW)
    assert plan.removals
    there = set(builder.objects())
    steps = 0
    for step in delete_planned(builder.client, plan.removals):
        steps += 1
        there -= {removal.key for removal in step}
        assert set(builder.objects()) == there
        assert held(builder) == files(first)
        claim = find_latest(builder.client)
        assert list_pieces(builder.client, claim).gap is None
        assert find_tip(builder.client, claim).slot == builder.generations[-1].slot
        again = plan_retention(gather(builder), NEWEST, NOW)
        assert {removal.key for removal in again.removals} == {removal.key for removal in plan.removals} & there
    assert steps > 2 - (make is mirrored)


@pytest.mark.slow
@pytest.mark.parametrize("make", [mirrored, succeeded, unfinished, everything])
def test_a_verification_finds_no_harm_after_any_step(make: Callable[..., Any]) -> None:
    builder = make()
    steps = delete_planned(builder.client, plan_retention(gather(builder), NEWEST, NOW).removals)
    harm = [found(verified(builder.store)) for _ in steps]
    assert harm
    assert not any(harm)


@pytest.mark.slow
def test_a_first_deletion_without_a_later_snapshot_looks_like_a_loss() -> None:
    builder = unfinished(snapshots=())
    steps = delete_planned(builder.client, plan_retention(gather(builder), NEWEST, NOW).removals)
    harm = [found(verified(builder.store)) for _ in steps]
    assert harm[0] == [("gap", wal_key(builder.generations[0].positions[0]))]
    assert len(harm) > 2
    assert not any(harm[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("snapshots", "covered"), [((1, 2), 2), ((), 0)])
def test_a_lost_wal_segment_is_distinguished_from_an_interrupted_deletion(
    snapshots: tuple[int, ...], covered: int
) -> None:
    builder = unfinished(snapshots)
    objects = builder.objects()
    for position in builder.generations[0].positions:
        left = {key: body for key, body in objects.items() if key != wal_key(position)}
        assert bool(found(verified(left))) is (position.index >= covered)


def test_the_only_snapshot_of_a_generation_is_missed_while_nothing_else_is_gone() -> None:
    builder = unfinished(snapshots=())
    lost = snapshot_key(builder.generations[0].name, 0)
    builder.store.delete([lost])
    assert found(verified(builder.store)) == [("missing", lost)]


def test_which_objects_of_an_ended_generation_are_deleted_and_which_stay() -> None:
    builder = succeeded()
    old = builder.generations[0]
    for _ in delete_planned(builder.client, plan_retention(gather(builder), NEWEST, NOW).removals):
        pass
    left = {key for key in builder.objects() if key.startswith(f"generations/{old.name}/")}
    named = {sealed_key(old.name, index) for index in (1, 2, 3)}
    assert left == named | {wal_key(position) for position in old.positions[-2:]}
    assert find_tip(builder.client, old.claim).terminal is not None


def test_a_generation_that_is_not_caught_up_is_not_read_and_replaces_nothing() -> None:
    builder = ReplicaBuilder()
    old = builder.add()
    for segment in LOG[:3]:
        old.ship_segment(segment)
    old.snapshot(3)
    old.prune(3)
    builder.add()  # begins at index 0 again, and has shipped nothing yet
    facts = gather(builder)
    assert facts.latest == old.name
    assert {removal.key for removal in plan_retention(facts, NEWEST, NOW).removals} == {snapshot_key(old.name, 0)}


def test_a_generation_that_diverged_replaces_the_one_before() -> None:
    builder = ReplicaBuilder()
    old = builder.add()
    old.ship_segment(LOG[0])
    old.snapshot(1)
    new = builder.add(builder.claim(Relation.DIVERGED))
    new.ship_segment(LOG[0], final=None)
    gone = [removal.key for removal in plan_retention(gather(builder), NEWEST, NOW).removals]
    assert gone == [snapshot_key(old.name, 0), snapshot_key(old.name, 1), sealed_key(old.name, 0)]


def damage(builder: ReplicaBuilder, key: str, body: bytes) -> None:
    builder.store.delete([key])
    builder.store.put(key, [body])


def test_while_a_snapshot_is_damaged_nothing_that_it_may_name_is_deleted() -> None:
    builder = mirrored()
    key = snapshot_key(builder.generations[0].name, 4)
    whole = builder.objects()[key]
    damage(builder, key, whole[:-1] + bytes([whole[-1] ^ 1]))
    gathering = Gathering(builder.client)
    facts = gathering.gather()
    assert facts is not None
    assert [one.names is None for one in facts.generations[0].snapshots] == [False, False, True, False]
    damage(builder, key, whole)
    assert gathering.gather() == gather(builder)


def test_a_snapshot_of_another_owner_has_unknown_names() -> None:
    builder = mirrored()
    key = snapshot_key(builder.generations[0].name, 4)
    damage(builder, key, of_other_owner(key, builder.objects()[key]))
    facts = gather(builder)
    assert [one.names is None for one in facts.generations[0].snapshots] == [False, False, True, False]


def test_a_snapshot_is_read_once() -> None:
    builder = succeeded()
    store = CountingStore(builder.store)
    gathering = Gathering(ObjectReplicaClient(store))
    first = gathering.gather()
    read = store.requests["open"]
    assert gathering.gather() == first
    assert store.requests["open"] - read < read


def test_a_snapshot_of_a_newer_litelog_stops_retention() -> None:
    builder = mirrored()
    key = snapshot_key(builder.generations[0].name, 4)
    document = json.loads(decompress_frames(builder.objects()[key], 1 << 20))
    newer = json.dumps({**document, "version": document["version"] + 1}).encode()
    damage(builder, key, b"".join(compress_frames(newer)))
    with pytest.raises(UnknownVersionError):
        gather(builder)


def test_an_empty_replica_has_nothing_to_plan() -> None:
    assert Gathering(ReplicaBuilder().client).gather() is None


def test_deleting_stops_where_it_may_not_continue() -> None:
    builder = succeeded()
    plan = plan_retention(gather(builder), NEWEST, NOW)
    asked = iter([True, False])
    (done,) = delete_planned(builder.client, plan.removals, lambda: next(asked))
    assert [removal.kind.value for removal in done] == ["WAL segment"]
    assert plan_retention(gather(builder), NEWEST, NOW).removals == plan.removals[len(done) :]


class RefusingStore(CountingStore):
    """Refuses deletions, always or once."""

    retryable = False
    times = 1000

    def delete(self, keys: Iterable[str]) -> None:
        super().delete(())
        if self.times:
            self.times -= 1
            raise StoreError("delete", next(iter(keys)), "Access Denied", retryable=self.retryable)
        self.inner.delete(keys)


def pruner_of(builder: ReplicaBuilder, store: CountingStore, clock: ManualClock) -> Pruner:
    return make_pruner(ObjectReplicaClient(store), NEWEST, clock, builder.generations[-1].claim)


def make_pruner(client: ReplicaClient, policy: RetentionPolicy, clock: ManualClock, claim: Claim) -> Pruner:
    source = LogSource("log", LitelogFormat())
    return Pruner(ReplicaContext(source, client, INLINE, clock, SilentListener(), Settings(retention=policy)), claim)


def test_a_permission_that_lacks_is_reported_once_and_retried_hourly(caplog: pytest.LogCaptureFixture) -> None:
    builder, clock = mirrored(), ManualClock()
    store = RefusingStore(builder.store)
    pruner = pruner_of(builder, store, clock)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.advance(PRUNE_SECONDS)
            assert pruner.due is not None
            assert pruner.due <= clock.monotonic()
            assert pruner.run(99, (), lambda: True)
            assert pruner.due == clock.monotonic() + PRUNE_SECONDS
    assert store.requests["delete"] == 3
    assert len(caplog.records) == 1
    assert "Access Denied" in caplog.text
    store.times = 0
    assert pruner.run(99, (), lambda: True)
    assert plan_retention(gather(builder), NEWEST, NOW).removals == ()


def test_a_failure_that_may_pass_is_raised_and_the_next_run_continues() -> None:
    builder, clock = mirrored(), ManualClock()
    store = RefusingStore(builder.store)
    store.retryable, store.times = True, 1
    pruner = pruner_of(builder, store, clock)
    with pytest.raises(StoreError):
        pruner.run(99, (), lambda: True)
    assert pruner.run(99, (), lambda: True)
    assert plan_retention(gather(builder), NEWEST, NOW).removals == ()


def test_deletions_that_wait_for_proof_of_ownership_are_done_later() -> None:
    builder, clock = succeeded(), ManualClock()
    pruner = pruner_of(builder, CountingStore(builder.store), clock)
    steps = iter([True, False])
    assert not pruner.run(99, (), lambda: next(steps))
    left = len(builder.objects())
    assert pruner.run(99, (), lambda: True)
    assert len(builder.objects()) < left
    assert held(builder) == files(1)


def test_snapshots_after_the_last_proof_of_ownership_take_nothing_away() -> None:
    builder = mirrored()
    name = builder.generations[0].name
    assert pruner_of(builder, CountingStore(builder.store), ManualClock()).run(4, (), lambda: True)
    left = set(builder.objects())
    assert {snapshot_key(name, 4), snapshot_key(name, 5), sealed_key(name, 0)} <= left
    assert not {snapshot_key(name, 0), snapshot_key(name, 2)} & left


def test_without_limits_nothing_is_ever_due() -> None:
    builder = mirrored()
    pruner = make_pruner(builder.client, RetentionPolicy(), ManualClock(), builder.generations[-1].claim)
    pruner.schedule_now()
    assert pruner.due is None


def test_a_snapshot_makes_it_due() -> None:
    clock = ManualClock()
    pruner = pruner_of(builder := mirrored(), CountingStore(builder.store), clock)
    assert pruner.due == clock.monotonic() + PRUNE_SECONDS
    pruner.schedule_now()
    assert pruner.due == clock.monotonic()


@pytest.mark.slow
def test_a_clock_set_forward_makes_nothing_older_and_one_set_back_all_younger() -> None:
    clock = ManualClock()
    started = clock.now()
    time = CautiousTime(clock)
    clock.advance(10)
    assert time.now() == started + 10 * SECOND
    clock.jump(86400 * 365)
    clock.advance(5)
    assert time.now() == started + 15 * SECOND
    clock.jump(-86400 * 400)
    assert time.now() == clock.now() < started
