"""The events that a follower returns for each state of a replica, and when it looks beyond its slot."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptObjectError, PrunedError, ReplicaGapError
from litelog.objects.layout import Fencing, wal_key
from litelog.objects.position import Position
from litelog.reading.follower import (
    LOOK_SECONDS,
    POLLS_PER_LOOK,
    ContentsFound,
    DataLost,
    GenerationFollows,
    Look,
    LookClock,
    ReplicaFollower,
    SegmentFound,
)
from litelog.reading.search import find_header
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.replica_builder import GenerationBuilder, ReplicaBuilder, make_log
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from tests.builders.manual_clock import ManualClock

LOG = make_log([[1, 1, 1], [2], [1]])


@pytest.fixture
def builder() -> ReplicaBuilder:
    return ReplicaBuilder()


@pytest.fixture
def built(builder: ReplicaBuilder) -> GenerationBuilder:
    """A generation with the first log segment, in a WAL segment for each commit."""
    built = builder.add()
    built.ship_segment(LOG[0], cuts=[0, 1])
    return built


def follow(
    builder: ReplicaBuilder, clock: ManualClock, place: Position | None = None, number: int = 0
) -> ReplicaFollower:
    client = builder.client
    claim = builder.generations[number].claim
    return ReplicaFollower(client, claim, partial(find_header, client), place, monotonic=clock.monotonic)


def stand(builder: ReplicaBuilder, clock: ManualClock) -> ReplicaFollower:
    """A follower at the end of the first generation."""
    follower = follow(builder, clock)
    follower.stand_at(builder.generations[0].slot, builder.generations[0].positions[-1])
    return follower


def test_a_follower_looks_at_epochs_after_so_many_polls_without_news(clock: ManualClock) -> None:
    looks = LookClock(clock.monotonic, LOOK_SECONDS)
    for _ in range(2):
        assert [looks.note_nothing() for _ in range(POLLS_PER_LOOK)] == [Look.SLOT] * 29 + [Look.EPOCH]
    looks.note_nothing()
    looks.note_news()
    assert [looks.note_nothing() for _ in range(POLLS_PER_LOOK)] == [Look.SLOT] * 29 + [Look.EPOCH]


def test_a_follower_looks_at_its_place_after_so_long_without_news(clock: ManualClock) -> None:
    looks = LookClock(clock.monotonic, LOOK_SECONDS)
    clock.advance(LOOK_SECONDS - 1)
    looks.note_news()
    assert looks.note_nothing() is Look.SLOT
    clock.advance(LOOK_SECONDS - 1)
    assert looks.note_nothing() is Look.SLOT
    clock.advance(1)
    assert looks.note_nothing() is Look.PLACE
    assert looks.note_nothing() is Look.SLOT


def test_a_follower_that_lagged_looks_at_its_place_at_the_first_empty_slot(clock: ManualClock) -> None:
    looks = LookClock(clock.monotonic, LOOK_SECONDS)
    assert looks.note_nothing() is Look.SLOT
    for _ in range(2):
        clock.advance(LOOK_SECONDS / 2)
        looks.note_news()
    assert looks.note_nothing() is Look.PLACE


def test_a_generation_is_entered_by_its_contents_and_again_until_the_caller_stands(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = follow(builder, clock)
    for _ in range(2):
        event = follower.poll()
        assert isinstance(event, ContentsFound)
        assert [info.position for info in event.contents.wal] == built.positions
    follower.stand_at(built.positions[0])
    found = []
    while (event := follower.poll()) is not None:
        assert isinstance(event, SegmentFound)
        found.append(event.segment.position)
        follower.pass_segment(event.segment)
    assert found == built.positions
    assert (follower.slot, follower.last) == (built.slot, built.positions[-1])


def test_a_segment_that_the_caller_does_not_pass_is_found_again(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = follow(builder, clock)
    follower.stand_at(built.positions[0])
    assert follower.poll() == follower.poll() != None  # noqa: E711 - the same event


def test_a_generation_that_has_not_begun_costs_a_get_for_each_poll(builder: ReplicaBuilder, clock: ManualClock) -> None:
    made = builder.add(start=False)
    store = CountingStore(builder.store)
    client = ObjectReplicaClient(store)
    follower = ReplicaFollower(client, made.claim, partial(find_header, client), monotonic=clock.monotonic)
    assert follower.poll() is None
    before = dict(store.requests)
    assert [follower.poll() for _ in range(POLLS_PER_LOOK - 2)] == [None] * (POLLS_PER_LOOK - 2)
    assert store.requests["list"] == before["list"]
    assert store.requests["open"] == before.get("open", 0) + POLLS_PER_LOOK - 2
    made.start()
    assert isinstance(follower.poll(), ContentsFound)


def test_a_generation_that_ended_before_it_began_leads_to_the_next_one(
    builder: ReplicaBuilder, clock: ManualClock
) -> None:
    builder.add(start=False)
    follower = follow(builder, clock)
    assert follower.poll() is None
    second = builder.add()
    assert follower.poll() is None
    assert follower.poll(Look.EPOCH) == GenerationFollows(second.claim)
    assert follower.slot is None


def test_a_terminal_leads_to_the_generation_that_follows_once_that_has_begun(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = stand(builder, clock)
    second = builder.add(start=False)
    event = follower.poll()
    assert isinstance(event, SegmentFound)
    follower.pass_segment(event.segment)
    assert follower.is_ended
    assert follower.poll() is None
    second.start()
    assert follower.poll() == GenerationFollows(second.claim)
    follower.enter(second.claim, Position(second.name, built.slot.index, 0))
    assert isinstance(follower.poll(), ContentsFound)


def test_segments_that_were_sealed_and_deleted_at_the_slot_are_found_in_the_contents(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = stand(builder, clock)
    slot = built.slot
    for segment in LOG[1:]:
        built.ship_segment(segment)
    built.snapshot(3)
    built.prune(3)
    assert follower.poll() is None
    event = follower.poll(Look.PLACE)
    assert isinstance(event, ContentsFound)
    assert event.contents.base.start.index == 3
    assert follower.slot == slot


def test_a_place_that_retention_took_is_lost_up_to_the_first_log_segment_left(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = stand(builder, clock)
    slot = built.slot
    for segment in LOG[1:]:
        built.ship_segment(segment)
    built.snapshot(3, first=2)
    built.prune(3)
    event = follower.poll(Look.PLACE)
    assert isinstance(event, DataLost)
    assert isinstance(event.error, PrunedError)
    assert str(slot) in str(event.error)
    assert event.left == Position(built.name, 2, 0)


def test_a_hole_is_lost_up_to_the_next_wal_segment(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = follow(builder, clock)
    follower.stand_at(built.positions[1], built.positions[0])
    builder.store.delete([wal_key(built.positions[1])])
    assert follower.poll() is None
    event = follower.poll(Look.PLACE)
    assert isinstance(event, DataLost)
    assert isinstance(event.error, ReplicaGapError)
    assert (event.error.position, event.left) == (str(built.positions[1]), built.positions[2])


def test_a_final_wal_segment_that_another_one_of_its_log_segment_follows_is_damage(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = follow(builder, clock)
    last, following = built.positions[:2]
    assert last.index == following.index
    follower.stand_at(replace(last, index=last.index + 7, offset=0), last)  # as the header states, were it final
    with pytest.raises(CorruptObjectError, match=f"is {last.generation}/0000000000000007/0*, expected {following}"):
        follower.poll(Look.PLACE)


def test_an_end_whose_last_wal_segment_is_gone_was_pruned(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = stand(builder, clock)
    assert follower.poll(Look.PLACE) is None
    builder.store.delete([wal_key(position) for position in built.positions])
    assert follower.poll() is None
    event = follower.poll(Look.PLACE)
    assert isinstance(event, DataLost)
    assert isinstance(event.error, PrunedError)
    assert (event.left, event.successor) == (None, None)


def test_a_terminal_that_is_missing_is_a_gap_with_the_claim_that_shows_it(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = stand(builder, clock)
    second = builder.add(close=False)
    assert follower.poll() is None
    event = follower.poll(Look.EPOCH)
    assert isinstance(event, DataLost)
    assert isinstance(event.error, ReplicaGapError)
    assert (event.left, event.successor) == (None, second.claim)


def test_a_generation_that_ended_and_was_pruned_at_the_slot_leads_to_the_next_one(
    builder: ReplicaBuilder, built: GenerationBuilder, clock: ManualClock
) -> None:
    follower = follow(builder, clock)
    follower.stand_at(built.positions[1], built.positions[0])
    second = builder.add(builder.claim(first=1), start=False)
    second.start([second.seal_unshipped(0, LOG[0])])
    second.ship_segment(LOG[1], final=None)
    builder.client.delete_wal_segments(built.positions[:-1])
    assert follower.poll(Look.PLACE) == GenerationFollows(second.claim)
    assert follower.slot == built.positions[1]


@pytest.mark.parametrize("leaves", [True, False])
def test_an_isolated_generation_is_left_once_another_one_is_the_latest(
    builder: ReplicaBuilder, clock: ManualClock, leaves: bool
) -> None:
    first, second = (builder.add(replace(builder.claim(), fencing=Fencing.ISOLATED), close=False) for _ in range(2))
    first.ship_segment(LOG[0], upto=1, final=None)
    client = builder.client
    read = partial(find_header, client)
    follower = ReplicaFollower(client, first.claim, read, leaves_isolated=leaves, monotonic=clock.monotonic)
    follower.stand_at(first.slot, first.positions[-1])
    assert follower.poll(Look.EPOCH) is None
    second.ship_segment(LOG[0], upto=2, final=None)
    assert follower.poll(Look.EPOCH) == (GenerationFollows(second.claim) if leaves else None)


@pytest.mark.parametrize("fencing", Fencing)
@pytest.mark.parametrize("leaves", [True, False])
def test_a_successor_whose_isolated_owner_never_began_is_passed_over(
    builder: ReplicaBuilder, clock: ManualClock, fencing: Fencing, leaves: bool
) -> None:
    first = builder.add(replace(builder.claim(), fencing=fencing))
    first.ship_segment(LOG[0], upto=1, final=None)
    end = first.slot
    builder.add(replace(builder.claim(), fencing=Fencing.ISOLATED), start=False)
    claim = replace(builder.claim(), fencing=Fencing.ISOLATED, predecessor=first.name, predecessor_end=end)
    third = builder.add(claim, close=False)
    client = builder.client
    read = partial(find_header, client)
    follower = ReplicaFollower(client, first.claim, read, leaves_isolated=leaves, monotonic=clock.monotonic)
    follower.stand_at(end, first.positions[-2])
    event = follower.poll()
    assert isinstance(event, SegmentFound)
    follower.pass_segment(event.segment)
    assert follower.is_ended
    assert follower.poll(Look.EPOCH) is None
    third.ship_segment(LOG[0], upto=2, final=None)
    assert follower.poll(Look.EPOCH) == (GenerationFollows(third.claim) if leaves else None)
