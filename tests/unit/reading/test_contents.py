"""Readers begin a generation at its newest snapshot: the requests for that, fallbacks, and missing objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import CorruptObjectError, NothingToRestoreError, ReplicaGapError, UnknownVersionError
from litelog.objects.claim import Relation
from litelog.objects.layout import snapshot_key, wal_key
from litelog.objects.position import Position
from litelog.reading.contents import PAGE, find_snapshot, list_generation, list_pieces, read_base
from litelog.reading.generations import find_tip
from litelog.reading.latest import find_extent, find_latest, open_latest
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.independent_reader import read_replica
from tests.builders.replica_builder import (
    GenerationBuilder,
    LogSegment,
    ReplicaBuilder,
    client_of,
    make_log,
    make_segment,
    make_unfinished,
    of_other_owner,
)
from tests.builders.stores import CountingStore
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = make_log([[2, 3, 1], [4, 2], [1], [2, 2, 2]])


@pytest.fixture
def builder() -> ReplicaBuilder:
    """Three finished log segments, the first two sealed and in a snapshot at 2, and a fourth that grows."""
    return make_unfinished(LOG, cuts=[0, 1], snapshots=[1, 2])


def counted(builder: ReplicaBuilder) -> tuple[CountingStore, ObjectReplicaClient]:
    store = CountingStore(builder.store)
    return store, ObjectReplicaClient(store)


def test_an_independent_reader_reads_the_built_replica(builder: ReplicaBuilder) -> None:
    (generation,) = read_replica(builder.store).values()
    assert generation.files() == {segment.name: segment.data for segment in LOG}
    builder.generations[0].prune(2)
    (generation,) = read_replica(builder.store).values()
    assert generation.files() == {segment.name: segment.data for segment in LOG}


@pytest.mark.parametrize("pruned", [0, 1, 2])
def test_the_newest_snapshot_is_the_base_and_its_wal_follows(builder: ReplicaBuilder, pruned: int) -> None:
    built = builder.generations[0]
    built.prune(pruned)
    store, client = counted(builder)
    pieces = list_pieces(client, built.claim)
    assert store.requests == {"list": 1, "open": 1}
    assert pieces.gap is None
    assert pieces.base.start == Position(built.name, 2, 0)
    assert pieces.base.first == Position(built.name, 0, 0)
    assert [entry.file for entry in pieces.base.entries] == [segment.name for segment in LOG[:2]]
    assert [info.position for info in pieces.wal] == [at for at in built.positions if at.index >= 2]
    link = pieces.base.link()
    assert (link.slot, link.digest, link.next) == (pieces.base.start, built.shipped[1].chain, LOG[1].next)
    assert link.file_before == LOG[1].name


def test_the_last_wal_segment_before_the_base_is_known_while_it_is_there(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    before = list_pieces(builder.client, built.claim).before
    assert before is not None
    assert before.position == max(at for at in built.positions if at.index == 1)
    built.prune(2)
    assert list_pieces(builder.client, built.claim).before is None


def test_the_tip_and_the_extent_need_nothing_that_may_be_pruned() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:3]:
        built.ship_segment(segment, cuts=[0, 1])
    tip, extent = find_tip(builder.client, built.claim), find_extent(builder.client, built.claim)
    built.snapshot(3)
    built.prune(3)
    assert find_tip(builder.client, built.claim) == tip
    assert find_extent(builder.client, built.claim) == extent
    assert tip.slot == extent.slot == built.slot == Position(built.name, 3, 0)


@pytest.mark.parametrize("ended", [False, True])
def test_a_generation_that_went_up_sealed_holds_data_before_its_first_wal_segment(ended: bool) -> None:
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=2), start=False)
    entries = [built.seal_unshipped(index, segment) for index, segment in enumerate(LOG[:2])]
    assert not find_extent(builder.client, built.claim).has_data
    with pytest.raises(NothingToRestoreError):
        open_latest(builder.client)
    built.start(entries)
    assert find_latest(builder.client) == built.claim
    if ended:
        builder.add(start=False)
    tip, extent = find_tip(builder.client, built.claim), find_extent(builder.client, built.claim)
    assert tip.slot == extent.slot == Position(built.name, 2, 0)
    assert extent.has_data
    assert (tip.last, tip.sealed, tip.started) == (None, entries[1], True)
    assert (tip.terminal is not None) == ended
    assert open_latest(builder.client).base.entries == tuple(entries)


@pytest.mark.slow
def test_opening_ten_thousand_sealed_segments_costs_four_requests() -> None:
    """A fifth request follows if the only WAL segment may be the terminal of a generation that never began."""
    for shipped in (0, 1, 3):
        builder = ReplicaBuilder()
        built = builder.add(builder.claim(first=10_000), start=False)
        one = built.seal_unshipped(0, make_segment(0, [1]))
        built.start(_many(one, 10_000))
        for number in range(shipped):
            built.ship_segment(make_segment(10_000 + number, [1]))
        store, client = counted(builder)
        pieces = open_latest(client)
        assert store.total() <= 4 + (shipped == 1), shipped
        assert (len(pieces.base.entries), len(pieces.wal), pieces.gap) == (10_000, shipped, None)


def _many(entry: Any, count: Any) -> Any:
    from dataclasses import replace

    return [
        replace(entry, index=number, sealed_index=number, first=number, next=number + 1, file=f"{number:020d}.log")
        for number in range(count)
    ]


@pytest.mark.slow
def test_a_wal_that_is_covered_and_long_is_not_listed_to_its_end() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(make_segment(0, [1] * (2 * PAGE)), cuts=range(2 * PAGE))
    for number in range(5):
        built.ship_segment(make_segment(2 * PAGE + number, [1]))
    built.snapshot(3)
    store, client = counted(builder)
    listing = list_generation(client, built.name)
    assert store.requests == {"list": 2}
    assert len(listing.wal) < PAGE + 10
    assert listing.wal[-1].position == built.positions[-1]
    kept = list_generation(client, built.name, keep=2)
    assert ([info.position for info in kept.wal], kept.whole) == (built.positions[-2:], False)
    pieces = list_pieces(client, built.claim, kept)
    assert [info.position.index for info in pieces.wal] == [3, 4, 5]


@pytest.mark.slow
def test_the_last_wal_segment_is_found_after_a_long_wal_that_is_all_covered() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    count = PAGE + PAGE // 2
    built.ship_segment(make_segment(0, [1] * count), cuts=range(count))
    built.ship_segment(make_segment(count, [1] * 3), cuts=range(3))
    tip = find_tip(builder.client, built.claim)
    built.snapshot(2)
    assert find_tip(builder.client, built.claim) == tip
    assert tip.slot == find_extent(builder.client, built.claim).slot == built.slot
    pieces = open_latest(builder.client)
    assert (pieces.wal, pieces.before.position) == ((), built.positions[-1])
    client = client_of(damaged(builder, snapshot_key(built.name, 2)))
    assert [info.position for info in open_latest(client).wal] == built.positions


def damaged(builder: ReplicaBuilder, *keys: str) -> dict[str, bytes]:
    objects = builder.objects()
    return {
        key: body[:-5] + bytes([body[-5] ^ 1]) + body[-4:] if key in keys else body for key, body in objects.items()
    }


def test_an_older_snapshot_stands_in_for_a_damaged_one(
    builder: ReplicaBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    built = builder.generations[0]
    key = snapshot_key(built.name, 2)
    client = client_of(damaged(builder, key))
    pieces = list_pieces(client, built.claim)
    assert (pieces.base.start.index, pieces.gap) == (1, None)
    assert [info.position for info in pieces.wal] == [at for at in built.positions if at.index >= 1]
    assert key in caplog.text
    client = client_of(damaged(builder, key, snapshot_key(built.name, 1)))
    assert list_pieces(client, built.claim).base.start.index == 0


def test_a_damaged_snapshot_is_named_if_the_objects_it_covered_are_gone(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    built.prune(2)
    key = snapshot_key(built.name, 2)
    gap = list_pieces(client_of(damaged(builder, key)), built.claim).gap
    assert isinstance(gap, CorruptObjectError)
    assert gap.key == key


def test_snapshots_that_are_all_damaged_are_an_error_by_the_newest_ones_name(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    keys = [snapshot_key(built.name, index) for index in range(3)]
    with pytest.raises(CorruptObjectError) as caught:
        list_pieces(client_of(damaged(builder, *keys)), built.claim)
    assert caught.value.key == keys[2]


def test_a_snapshot_of_an_unknown_version_is_refused_and_not_skipped(builder: ReplicaBuilder) -> None:
    import json

    from litelog.codec.lz4_frames import compress_frames, decompress_frames

    built = builder.generations[0]
    objects = builder.objects()
    key = snapshot_key(built.name, 2)
    fields = json.loads(decompress_frames(objects[key], 1 << 20)) | {"version": 99}
    objects[key] = b"".join(compress_frames(json.dumps(fields).encode()))
    with pytest.raises(UnknownVersionError):
        list_pieces(client_of(objects), built.claim)


@pytest.mark.parametrize("field", ["log", "owner", "format"])
def test_a_snapshot_of_another_owner_is_corrupt(builder: ReplicaBuilder, field: str) -> None:
    from dataclasses import replace

    built = builder.generations[0]
    with pytest.raises(CorruptObjectError, match=field):
        read_base(builder.client, replace(built.claim, **{field: "other"}), [0, 1, 2])


def test_an_owner_takes_the_newest_snapshot_that_is_its_own(builder: ReplicaBuilder) -> None:
    """It skips a snapshot that is missing, damaged or another owner's, and takes the next older one, or None."""
    built = builder.generations[0]
    objects = builder.objects()
    keys = [snapshot_key(built.name, index) for index in range(3)]
    assert find_snapshot(client_of(objects), built.claim).next == 2
    objects[keys[2]] = of_other_owner(keys[2], objects[keys[2]])
    assert find_snapshot(client_of(objects), built.claim).next == 1
    objects[keys[1]] = b"damaged"
    assert find_snapshot(client_of(objects), built.claim).next == 0
    del objects[keys[0]]
    assert find_snapshot(client_of(objects), built.claim) is None


def test_a_missing_first_snapshot_is_a_gap_with_its_key(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    objects = {key: body for key, body in builder.objects().items() if "/snapshots/" not in key}
    gap = list_pieces(client_of(objects), built.claim).gap
    assert isinstance(gap, ReplicaGapError)
    assert gap.position == snapshot_key(built.name, 0)


@pytest.mark.parametrize("gone", ["first of the base", "middle"])
def test_a_missing_piece_after_the_base_is_a_gap_after_two_listings(builder: ReplicaBuilder, gone: str) -> None:
    built = builder.generations[0]
    built.prune(2)
    position = Position(built.name, 2, 0) if gone == "first of the base" else Position(built.name, 3, 0)
    builder.client.delete_wal_segments([position])
    store, client = counted(builder)
    pieces = list_pieces(client, built.claim)
    assert isinstance(pieces.gap, ReplicaGapError)
    assert pieces.gap.position == str(position)
    assert store.requests["list"] == 2


class Behind:
    """A client whose first listing lacks some objects."""

    def __init__(self, client: ObjectReplicaClient, lacks: str) -> None:
        self._client, self._lacks, self.listings = client, lacks, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    def snapshots_and_wal_segments(self, name: str, since: int = 0) -> Iterator[Any]:
        self.listings += 1
        for info in self._client.snapshots_and_wal_segments(name, since):
            key = wal_key(info.position) if hasattr(info, "position") else snapshot_key(info.generation, info.index)
            if self.listings > 1 or key != self._lacks:
                yield info


@pytest.mark.parametrize("lacks", ["snapshot", "wal"])
def test_a_listing_that_lags_for_a_moment_is_made_again(builder: ReplicaBuilder, lacks: str) -> None:
    built = builder.generations[0]
    built.prune(2)
    key = snapshot_key(built.name, 2) if lacks == "snapshot" else wal_key(Position(built.name, 2, 0))
    client = Behind(builder.client, key)
    pieces = list_pieces(client, built.claim)
    assert (pieces.gap, pieces.base.start.index, client.listings) == (None, 2, 2)


@pytest.mark.slow
@given(
    shape=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=5),
    data=st.data(),
)
@settings(max_examples=examples(80))
def test_the_tip_is_where_the_owner_stands_after_any_seals_and_prunes(
    shape: list[list[int]], data: st.DataObject
) -> None:
    builder = ReplicaBuilder()
    log = make_log(shape)
    first = data.draw(st.integers(0, len(log)))
    built = begin_sealed(builder, log, first)
    for segment in log[first:]:
        built.ship_segment(segment, data.draw(st.sets(st.integers(0, 3))))
    sealed = data.draw(st.integers(first, len(log)))
    if sealed > first:
        built.snapshot(sealed)
    built.prune(data.draw(st.integers(first, sealed)))
    tip = find_tip(builder.client, built.claim)
    assert tip.slot == built.slot == find_extent(builder.client, built.claim).slot
    pieces = open_latest(builder.client)
    assert pieces.gap is None
    assert pieces.base.start.index == sealed
    assert pieces.base.link().next == (log[sealed - 1].next if sealed else None)


def begin_sealed(builder: ReplicaBuilder, log: list[LogSegment], first: int) -> GenerationBuilder:
    """A generation whose log segments below index ``first`` went up sealed."""
    relation = Relation.FIRST if not builder.generations else None
    built = builder.add(builder.claim(relation, first=first), start=False)
    return built.start([built.seal_unshipped(index, segment) for index, segment in enumerate(log[:first])])
