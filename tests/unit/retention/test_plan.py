"""``plan_retention`` for replicas with random pasts: no deletion removes a point that must be kept."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.objects.layout import sealed_key, snapshot_key
from litelog.objects.position import Position, generation, new_generation
from litelog.retention.facts import GenerationFacts, KeepReason, ReplicaFacts, SealedRange, SnapshotFacts, SourceTrim
from litelog.retention.plan import PruneLimit, plan_retention
from litelog.retention.policy import RetentionPolicy, note_drop
from litelog.stores.replica_client import IndexedInfo, WalSegmentInfo
from tests.sampling import examples
from tests.unit.retention.retention_model import HOUR, SECOND, Model, Point

HOURS = 3600.0

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ship"), st.sampled_from([1, 600, 3600, 7200, 36000])),
        st.tuples(st.sampled_from(["finish", "snapshot", "drop", "cover"]), st.just(0)),
        st.tuples(st.sampled_from(["roll", "roll", "trim", "trim"]), st.sampled_from([600, 3600, 7200])),
        st.tuples(st.just("drop"), st.integers(1, 3)),
        st.tuples(st.just("succeed"), st.booleans()),
        st.tuples(st.just("jump"), st.sampled_from([-1000, -1, 1, 1000])),
    ),
    min_size=1,
    max_size=40,
)
BY_AGE = st.builds(RetentionPolicy, st.sampled_from([1 * HOURS, 3 * HOURS, 6 * HOURS]))
POLICIES = BY_AGE | st.builds(
    lambda age, size, count, least: RetentionPolicy(age, size, None if count is None else max(count, least), least),
    st.none() | st.sampled_from([1 * HOURS, 3 * HOURS, 24 * HOURS]),
    st.none() | st.integers(1, 2000),
    st.none() | st.integers(1, 5),
    st.integers(1, 3),
)


def run(events: list[tuple[str, int]], *, mirror: bool, policy: RetentionPolicy) -> Model:
    """The model of a replica after those events."""
    model = Model()
    model.snapshot_first({})
    model.ship(1)
    for event, value in events:
        made = model.current
        if event == "ship":
            model.ship(value)
        elif event == "finish":
            model.finish()
        elif event == "drop":
            for _ in range(value + 1):
                model.drop()
        elif event in ("snapshot", "roll", "trim"):
            if value:
                model.ship(value)
                model.finish()
            first = trimmed(model, policy) if event == "trim" else made.snapshots[-1].first
            model.snapshot(made.floor if mirror else first)
        elif event == "cover":
            model.cover()
        elif event == "succeed":
            model.succeed(diverged=bool(value))
        else:
            model.now += value * HOUR
    return model


def trimmed(model: Model, policy: RetentionPolicy) -> int:
    """The index at which the owner would begin its next snapshot."""
    first = model.current.snapshots[-1].first
    start = policy.window_start(model.now)
    return max([first, *(drop.first for drop in model.drops if start is not None and drop.time <= start)])


def kept_points(model: Model, start: int) -> list[Point]:
    """The log's state at ``start``, and all later ones. Times never go back, so the points are in their order."""
    before = [point for point in model.points if point.time <= start][-1:]
    held = [model.floor_at(point, start) for point in before]
    return [*held, *(point for point in model.points if point.time > start)]


@pytest.mark.slow
@settings(max_examples=examples(500))
@given(EVENTS, POLICIES, st.booleans(), st.integers(0, 12))
def test_every_kept_point_is_restorable_after_each_deletion(events: Any, policy: Any, mirror: Any, later: Any) -> None:
    model = run(events, mirror=mirror, policy=policy)
    now = model.now + later * HOUR // 2
    plan = plan_retention(model.facts(), policy, now)
    start = policy.window_start(now)
    only_age = policy.max_bytes is None and policy.max_snapshots is None
    grace = now - HOUR
    kept = kept_points(model, start if only_age and start is not None else grace) if policy.limits else model.points
    gone = set(model.deleted)
    kept = [point for point in kept if model.lacks(point, gone) is None or pytest.fail(model.lacks(point, gone))]
    for removal in plan.removals:
        assert removal.key not in gone
        gone.add(removal.key)
        for point in kept:
            assert model.lacks(point, gone) is None, removal


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(EVENTS, POLICIES, st.booleans(), st.integers(0, 40))
def test_named_objects_exist_after_each_deletion_and_protected_objects_stay(
    events: Any, policy: Any, mirror: Any, later: Any
) -> None:
    model = run(events, mirror=mirror, policy=policy)
    plan = plan_retention(model.facts(), policy, model.now + later * HOUR)
    gone = set(model.deleted)
    for removal in plan.removals:
        gone.add(removal.key)
        for made in model.generations:
            for one in made.snapshots:
                if snapshot_key(made.name, one.next) not in gone:
                    for where, index in one.entries.values():
                        assert sealed_key(model.generations[where].name, index) not in gone
    facts = {held.name: held for held in model.facts().generations}
    for removal in plan.removals:
        held = facts[removal.generation]
        assert removal.position is None or removal.position not in [info.position for info in held.wal[-2:]]
    snapshots = [snapshot for held in facts.values() for snapshot in held.snapshots]
    kept = [one for one in snapshots if snapshot_key(one.generation, one.next) not in gone]
    assert kept[-policy.min_snapshots :] == snapshots[-policy.min_snapshots :]


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(EVENTS, POLICIES, st.booleans(), st.data())
def test_an_interrupted_deletion_is_finished_by_the_next_plan(
    events: Any, policy: Any, mirror: Any, data: st.DataObject
) -> None:
    model = run(events, mirror=mirror, policy=policy)
    plan = plan_retention(model.facts(), policy, model.now)
    done = data.draw(st.integers(0, len(plan.removals)))
    model.deleted |= {removal.key for removal in plan.removals[:done]}
    again = plan_retention(model.facts(), policy, model.now)
    assert {removal.key for removal in again.removals} >= {removal.key for removal in plan.removals[done:]}
    if policy.max_bytes is None:  # ``max_bytes`` counts all existing objects
        assert again.removals == plan.removals[done:]


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(EVENTS, POLICIES, st.booleans())
def test_the_plan_accounts_for_every_object_once(events: Any, policy: Any, mirror: Any) -> None:
    model = run(events, mirror=mirror, policy=policy)
    facts = model.facts()
    plan = plan_retention(facts, policy, model.now)
    sizes = [one.size for held in facts.generations for one in (*held.snapshots, *held.sealed, *held.wal)]
    assert plan.freed + plan.left == sum(sizes)
    assert len(plan.removals) + sum(total.count for total in plan.stays.values()) == len(sizes)


NOW = 1_000_000 * HOUR
FIRST, SECOND_ONE = new_generation(1, 1), new_generation(2, 2)


def snapshot(name: str, index: int, hours_ago: float, first: int = 0, names: str | None = None) -> SnapshotFacts:
    """A snapshot of [first, index), whose sealed segments lie in the generation ``names``, or its own."""
    runs = (SealedRange(generation(names or name), first, index),) if index > first else ()
    return SnapshotFacts(generation(name), index, 10, first, NOW - int(hours_ago * HOUR), runs)


def sealed(name: str, start: int, stop: int) -> tuple[IndexedInfo, ...]:
    return tuple(IndexedInfo(generation(name), index, 100) for index in range(start, stop))


def wal(name: str, *indexes: int) -> tuple[WalSegmentInfo, ...]:
    return tuple(WalSegmentInfo(Position(generation(name), index, 0), 1) for index in indexes)


def one(*snapshots: SnapshotFacts, drops: tuple[SourceTrim, ...] = (), **changes: object) -> ReplicaFacts:
    """A replica of one generation of ten log segments."""
    held = GenerationFacts(FIRST, snapshots, sealed(FIRST, 0, 10), wal(FIRST, 9, 10))
    return ReplicaFacts((held,), FIRST, drops, **changes)  # type: ignore[arg-type]


def gone(facts: ReplicaFacts, policy: RetentionPolicy) -> list[str]:
    """Kind and index of all deleted objects, in order."""
    return [f"{removal.kind} {removal.number}" for removal in plan_retention(facts, policy, NOW).removals]


DAY = RetentionPolicy(max_age=24 * HOURS)


def test_without_limits_nothing_is_removed() -> None:
    facts = one(snapshot(FIRST, 4, 900, 2), snapshot(FIRST, 10, 100, 5))
    assert plan_retention(facts, RetentionPolicy(), NOW).removals == ()


def test_a_snapshot_is_deleted_by_age_once_the_window_begins_after_a_later_one() -> None:
    facts = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 30), snapshot(FIRST, 10, 20))
    assert gone(facts, DAY) == ["snapshot 4"]


def test_dropped_segments_are_deleted_with_the_last_snapshot_that_names_them() -> None:
    mirrored = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 30, 3), snapshot(FIRST, 10, 20, 5))
    assert gone(mirrored, DAY) == ["snapshot 4", *(f"sealed segment {index}" for index in range(3))]
    shorter = RetentionPolicy(max_age=10 * HOURS)
    assert gone(mirrored, shorter) == ["snapshot 4", "snapshot 6", *(f"sealed segment {n}" for n in range(5))]


def test_sealed_segments_that_the_source_dropped_before_the_window_are_pruned() -> None:
    snapshots = snapshot(FIRST, 8, 2), snapshot(FIRST, 10, 1, 3)
    assert gone(one(*snapshots, drops=(SourceTrim(NOW - 23 * HOUR, 3),)), DAY) == []
    let_go = ["snapshot 8", *(f"sealed segment {index}" for index in range(3))]
    assert gone(one(*snapshots, drops=(SourceTrim(NOW - 25 * HOUR, 3),)), DAY) == let_go
    base = snapshot(FIRST, 2, 30)
    assert gone(one(base, *snapshots, drops=(SourceTrim(NOW - 23 * HOUR, 3),)), DAY) == []
    assert gone(one(base, *snapshots, drops=(SourceTrim(NOW - 25 * HOUR, 2), SourceTrim(NOW - 2 * HOUR, 3))), DAY) == []
    known = one(base, *snapshots, drops=(SourceTrim(NOW - 25 * HOUR, 3),))
    assert gone(known, DAY) == ["snapshot 2", *let_go]


def test_by_count_and_by_bytes_the_oldest_go() -> None:
    facts = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 30, 3), snapshot(FIRST, 10, 20, 5))
    assert gone(facts, RetentionPolicy(max_snapshots=2)) == ["snapshot 4", *(f"sealed segment {n}" for n in range(3))]
    assert gone(facts, RetentionPolicy(max_bytes=722)) == gone(facts, RetentionPolicy(max_snapshots=2))
    assert gone(facts, RetentionPolicy(max_bytes=721))[:2] == ["snapshot 4", "snapshot 6"]
    assert gone(facts, RetentionPolicy(max_bytes=1032)) == []


def test_protected_bytes_beyond_the_limit_are_reported() -> None:
    facts = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 10, 20, 5))
    plan = plan_retention(facts, RetentionPolicy(max_bytes=100), NOW)
    assert (plan.left, plan.beyond, plan.cause) == (512, 412, PruneLimit.BYTES)
    assert {why: (total.count, total.bytes) for why, total in plan.stays.items()} == {
        KeepReason.NEWEST: (6, 510),
        KeepReason.LAST: (2, 2),
    }


def test_min_snapshots_stay_under_any_limits() -> None:
    facts = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 80, 3), snapshot(FIRST, 10, 70, 5))
    tight = RetentionPolicy(max_age=HOURS, max_bytes=1, min_snapshots=2)
    assert gone(facts, tight) == ["snapshot 4", *(f"sealed segment {index}" for index in range(3))]
    assert gone(facts, RetentionPolicy(max_age=HOURS, max_bytes=1, min_snapshots=9)) == []


def test_no_limit_removes_objects_of_the_last_hour() -> None:
    facts = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 0.9, 3), snapshot(FIRST, 10, 0.1, 5))
    assert gone(facts, RetentionPolicy(max_bytes=1)) == []
    assert gone(facts, RetentionPolicy(max_snapshots=1)) == []


def two(latest: str = SECOND_ONE, ended: float = 30, began: float = 29, caught_up: int = 0) -> ReplicaFacts:
    """Two generations: the second one refers to the first one's sealed segments 2 to 5."""
    snapshots = snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 60)
    old = GenerationFacts(FIRST, snapshots, sealed(FIRST, 0, 7), wal(FIRST, 5, 6, 7, 8), ended=NOW - int(ended * HOUR))
    names = (SealedRange(FIRST, 2, 6), SealedRange(SECOND_ONE, 6, 8))
    newest = replace(snapshot(SECOND_ONE, 8, 10, 2), names=names)
    snapshots = snapshot(SECOND_ONE, 6, began, 2, FIRST), newest
    new = GenerationFacts(
        SECOND_ONE, snapshots, sealed(SECOND_ONE, 6, 8), wal(SECOND_ONE, 6, 7, 8), caught_up=caught_up
    )
    return ReplicaFacts((old, new), generation(latest))


OLD_ONES = [
    "WAL segment 5",
    "snapshot 4",
    "snapshot 6",
    "WAL segment 6",
    "sealed segment 0",
    "sealed segment 1",
    "sealed segment 6",
]


def test_an_ended_generation_keeps_its_end_and_objects_that_later_ones_name() -> None:
    assert gone(two(), DAY) == OLD_ONES


def test_an_ended_generation_stays_while_a_point_of_it_is_in_the_window() -> None:
    assert gone(two(ended=23), DAY) == ["snapshot 4"]


def test_an_ended_generation_stays_until_the_next_one_held_all_that_it_continues() -> None:
    assert gone(two(caught_up=6), DAY) == OLD_ONES
    assert gone(two(caught_up=7), DAY) == ["snapshot 4"]


def test_a_generation_that_readers_do_not_take_yet_replaces_nothing() -> None:
    assert gone(two(latest=FIRST), RetentionPolicy(max_age=HOURS, max_bytes=1, max_snapshots=1)) == ["snapshot 4"]


def test_an_interrupted_deletion_of_a_generation_continues_without_its_snapshots() -> None:
    old, new = two().generations
    interrupted = ReplicaFacts((GenerationFacts(FIRST, (), old.sealed, old.wal, old.ended), new), SECOND_ONE)
    assert gone(interrupted, DAY) == [one for one in OLD_ONES if not one.startswith("snapshot")]
    assert gone(interrupted, RetentionPolicy()) == []


def test_a_snapshot_stays_as_long_as_the_wal_segments_that_are_chained_to_it() -> None:
    lingers = GenerationFacts(
        FIRST,
        (snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 80, 3), snapshot(FIRST, 10, 70, 5)),
        sealed(FIRST, 0, 10),
        wal(FIRST, 4, 9, 10),
        first=4,
    )
    facts = ReplicaFacts((lingers,), FIRST)
    assert gone(facts, RetentionPolicy(max_snapshots=1)) == ["WAL segment 4", "snapshot 4", "snapshot 6"] + [
        f"sealed segment {index}" for index in range(5)
    ]
    lingers = replace(lingers, wal=wal(FIRST, 4, 9, 10), snapshots=(snapshot(FIRST, 4, 90), snapshot(FIRST, 10, 70, 3)))
    assert gone(ReplicaFacts((lingers,), FIRST), RetentionPolicy(max_snapshots=1)) == []


def test_a_generation_that_has_just_begun_and_has_no_snapshot_keeps_all() -> None:
    begun = GenerationFacts(new_generation(3, 3), (), sealed(new_generation(3, 3), 0, 2))
    facts = ReplicaFacts((*two().generations, begun), SECOND_ONE)
    assert gone(facts, DAY) == OLD_ONES
    assert gone(ReplicaFacts((begun,), begun.name), DAY) == []


def test_snapshots_that_ownership_was_not_proved_after_take_nothing_away() -> None:
    facts = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 60, 3), snapshot(FIRST, 10, 50, 5), last_snapshot=6)
    assert gone(facts, DAY) == ["snapshot 4", *(f"sealed segment {index}" for index in range(3))]


def test_no_sealed_segment_is_removed_while_a_kept_snapshot_is_unreadable() -> None:
    unread = SnapshotFacts(FIRST, 6, 10, names=None)
    facts = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 5, 30, 3), unread, snapshot(FIRST, 10, 20, 5))
    assert gone(facts, DAY) == ["snapshot 4"]
    assert KeepReason.UNKNOWN in plan_retention(facts, DAY, NOW).stays
    assert gone(facts, RetentionPolicy(max_age=10 * HOURS))[:4] == [
        "snapshot 4",
        "snapshot 5",
        "snapshot 6",
        "sealed segment 0",
    ]
    last = one(snapshot(FIRST, 4, 90), SnapshotFacts(FIRST, 10, 10, names=None))
    assert gone(last, RetentionPolicy(max_snapshots=1)) == []


def test_retention_keeps_only_objects_that_other_isolated_owners_may_name() -> None:
    facts = one(snapshot(FIRST, 4, 90), snapshot(FIRST, 6, 60, 3), snapshot(FIRST, 10, 50, 5))
    names = replace(snapshot(SECOND_ONE, 9, 80), names=(SealedRange(FIRST, 1, 3), SealedRange(SECOND_ONE, 3, 9)))
    expected = [one for one in gone(facts, DAY) if one not in ("sealed segment 1", "sealed segment 2")]
    assert gone(replace(facts, others=(names,)), DAY) == expected
    assert plan_retention(replace(facts, others=(names,)), DAY, NOW).stays[KeepReason.OTHERS].count == 2
    begins = SnapshotFacts(SECOND_ONE, 0, 0, names=None)
    assert gone(replace(facts, others=(begins,)), DAY) == [one for one in gone(facts, DAY) if "sealed" not in one]
    older = SnapshotFacts(new_generation(0, 9), 0, 0, names=None)
    assert gone(replace(facts, others=(older,)), DAY) == gone(facts, DAY)
    least = plan_retention(replace(facts, others=(begins,)), RetentionPolicy(max_bytes=1), NOW)
    assert least.beyond == least.left - 1


@pytest.mark.slow
def test_a_clock_that_jumped_back_makes_no_snapshot_older() -> None:
    facts = one(snapshot(FIRST, 4, 20), snapshot(FIRST, 6, 5000, 3), snapshot(FIRST, 10, 4000, 5))
    assert gone(facts, DAY) == []
    old, new = two(ended=2, began=5000).generations
    assert gone(ReplicaFacts((old, new), SECOND_ONE), DAY) == ["snapshot 4"]


@pytest.mark.slow
def test_drops_are_remembered_in_few_words_and_never_too_early() -> None:
    policy = RetentionPolicy(max_age=200 * HOURS)
    drops: tuple[SourceTrim, ...] = ()
    every = [SourceTrim(NOW + minute * 60 * SECOND, 1 + minute) for minute in range(30_000)]
    for drop in every:
        drops = note_drop(drops, drop, policy)
    assert len(drops) < 210
    now = every[-1].time
    start = now - 200 * HOUR
    known = max(drop.first for drop in drops if drop.time <= start)
    true = max(drop.first for drop in every if drop.time <= start)
    assert true - 130 <= known <= true
    assert note_drop(drops, SourceTrim(0, 90_000), policy)[-1] == SourceTrim(now, 90_000)  # the clock was set back
    assert note_drop(drops, SourceTrim(now + 1, 5), policy) == drops


@pytest.mark.slow
def test_ten_times_the_objects_take_ten_times_the_steps() -> None:
    def steps(count: int) -> int:
        name = generation(FIRST)
        snapshots = tuple(
            SnapshotFacts(name, index, 10, index // 2, NOW - 90 * HOUR + index, (SealedRange(name, index // 2, index),))
            for index in range(count // 100, count, count // 100)
        )
        facts = ReplicaFacts((GenerationFacts(name, snapshots, sealed(FIRST, 0, count)),), name)
        taken = 0

        def take(*_: object) -> None:
            nonlocal taken
            taken += 1

        sys.setprofile(take)
        try:
            plan = plan_retention(facts, DAY, NOW)
        finally:
            sys.setprofile(None)
        assert len(plan.removals) > count // 3
        return taken

    assert steps(20_000) < 11 * steps(2_000)
