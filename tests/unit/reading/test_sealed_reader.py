"""Readers read sealed segments from any place, by ranged GETs, and use other objects if one is damaged or gone."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    PrunedError,
    ReplicaGapError,
    TruncatedError,
)
from litelog.formats import Expectation
from litelog.formats.lines import LinesFormat
from litelog.objects.layout import sealed_key, wal_key
from litelog.reading.replica_reader import ReplicaReader
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.child import runs_in_child
from tests.builders.independent_reader import read_replica
from tests.builders.random_replicas import SHAPES, draw_replica
from tests.builders.replica_builder import (
    FORMAT,
    SECOND,
    LogSegment,
    ReplicaBuilder,
    client_of,
    make_log,
    make_segment,
    make_unfinished,
    reader_of,
)
from tests.builders.stores import CountingStore
from tests.sampling import examples, sampled
from tests.waiting import WAIT_SECONDS

LOG = make_log([[2, 3, 1], [4, 2], [1], [2, 2, 2]])
TOTAL = LOG[-1].next


def records(client: ObjectReplicaClient, **options: Any) -> list[tuple[int, int | None, bytes]]:
    batches = reader_of(client, **options).batches()
    return [(record.sequence, record.timestamp, record.value) for batch in batches for record in batch.records()]


def sequences(client: ObjectReplicaClient, **options: Any) -> list[int]:
    return [sequence for sequence, _, _ in records(client, **options)]


@pytest.fixture
def builder() -> ReplicaBuilder:
    """Four log segments, of which the first two are sealed, a commit a frame, and the last one grows."""
    return make_unfinished(LOG, cuts=[0, 1], snapshots=[2])


@pytest.mark.slow
@given(shape=SHAPES, data=st.data())
@settings(max_examples=examples(25))
def test_any_start_in_any_replica_gives_the_records_that_an_independent_reader_finds(
    shape: Any, data: st.DataObject
) -> None:
    builder, log = draw_replica(data, shape)
    last = builder.generations[-1]
    files = read_replica(builder.store)[last.name].files()
    assert files == {segment.name: segment.data for segment in log}
    expected = [
        (record.sequence, record.timestamp, record.value)
        for name, text in files.items()
        for record in FORMAT.decode(name, memoryview(text), 0, Expectation()).records()
    ]
    assert records(builder.client) == expected
    for start in range(len(expected) + 2):
        assert records(builder.client, start=start) == expected[start:]
    for time in sorted({stamp + by for _, stamp, _ in expected for by in (0, 1)}):
        late = next((number for number, (_, stamp, _) in enumerate(expected) if stamp >= time), len(expected))
        assert records(builder.client, start_time=time) == expected[late:]
    for built in builder.generations:
        found = records(builder.client, generation=built.name)
        assert found == expected


@pytest.mark.slow
@given(data=st.data(), lines=st.lists(st.integers(1, 3), min_size=1, max_size=6))
@settings(max_examples=examples(40))
def test_without_timestamps_a_start_time_is_the_time_shipped(data: st.DataObject, lines: Any) -> None:
    log_format = LinesFormat("*.log")
    builder = ReplicaBuilder(log_format)
    built = builder.add()
    shipped: list[tuple[int, list[bytes]]] = []
    for number, count in enumerate(lines):
        text = [b"%d.%d" % (number, line) for line in range(count)]
        for line in text:
            at = built.ship(line + b"\n", f"{number:03d}.log", final=line is text[-1])
            shipped.append((built.clock, [line]))
            assert at
    covered = data.draw(st.integers(0, len(lines)))
    if covered:
        for index in range(covered):
            built.seal(index, frame_commits=data.draw(st.integers(1, 3)))
        built.snapshot(covered)
        built.prune(covered)
    for time in range(shipped[0][0] - SECOND, shipped[-1][0] + 2 * SECOND, SECOND // 2):
        reader = ReplicaReader(builder.client, start_time=time, formats=lambda _: log_format)
        found = [bytes(record.value).rstrip(b"\n") for batch in reader.batches() for record in batch.records()]
        assert found == [line for at, some in shipped if at >= time for line in some]


@pytest.mark.slow
@runs_in_child
def test_a_record_in_a_large_sealed_segment_costs_a_footer_and_its_frames() -> None:
    from litelog.reading.sealed_reader import FETCH_BYTES, WHOLE_BYTES

    builder = ReplicaBuilder()
    built = builder.add()
    segment = make_segment(0, [1] * 60, tag=b"")
    segment = _large_segment(60, 200_000)
    built.ship_segment(segment)
    entry = built.seal(0)
    assert entry.size > WHOLE_BYTES
    assert entry.length > 2 * FETCH_BYTES
    built.snapshot(1)
    store = CountingStore(builder.store)
    batches = reader_of(ObjectReplicaClient(store), start=55).batches()
    assert next(batches).sequences.tolist() == [55]
    batches.close()
    opened = store.requests["open"]
    assert store.requests["list"] == 2
    assert opened == 2 + 1 + 1, "claim and snapshot; footer; frames"
    assert sequences(builder.client, start=3) == list(range(3, 60))


def _large_segment(commits: int, size: int) -> LogSegment:
    from random import Random

    from litelog.formats.litelog import SegmentHeader, encode_commit, segment_name
    from tests.builders.replica_builder import log_id

    random = Random(1)
    data = SegmentHeader(log_id(), 0, 0).encode()
    ends = []
    for number in range(commits):
        data += encode_commit(number, 1, number * SECOND, [random.randbytes(size)])
        ends.append(len(data))
    return LogSegment(segment_name(0), bytes(data), tuple(ends), commits)


def test_a_small_sealed_segment_costs_one_request(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    built.prune(2)
    store = CountingStore(builder.store)
    batches = reader_of(ObjectReplicaClient(store), start=1).batches()
    assert next(batches).sequences.tolist() == [1]
    batches.close()
    assert store.requests["open"] <= 2 + 2, "claim and snapshot; the sealed segments, the second one ahead"


def test_a_start_before_the_first_record_is_an_error_that_names_the_first_record() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG:
        built.ship_segment(segment)
    built.snapshot(2)
    built.snapshot(3, first=1)
    with pytest.raises(TruncatedError) as caught:
        sequences(builder.client, start=5)
    assert caught.value.first_available == LOG[0].next == 6
    assert sequences(builder.client) == list(range(6, TOTAL))


def broken(builder: ReplicaBuilder, key: str, at: int) -> dict[str, bytes]:
    objects = builder.objects()
    body = objects[key]
    objects[key] = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    return objects


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_wal_segments_stand_in_for_every_damage_of_a_sealed_segment(builder: ReplicaBuilder, index: int) -> None:
    key = sealed_key(builder.generations[0].name, index)
    for at in sampled(range(0, len(builder.objects()[key]), 7), 12, f"read {key}"):
        client = client_of(broken(builder, key, at))
        assert sequences(client) == list(range(TOTAL)), at
        assert sequences(client, start=7) == list(range(7, TOTAL)), at


@pytest.mark.slow
def test_every_flipped_byte_of_a_sealed_replica_is_found_or_harmless(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    built.prune(2)
    objects = builder.objects()
    found = flipped = 0
    for key, body in objects.items():
        for at in sampled(range(len(body)), 24, f"read sealed {key}"):
            flipped += 1
            damaged = {**objects, key: body[:at] + bytes([body[at] ^ 1 << at % 8]) + body[at + 1 :]}
            try:
                assert sequences(client_of(damaged)) == list(range(TOTAL)), (key, at)
            except CorruptionError:
                found += 1
    assert found > flipped // 2


def test_a_damaged_sealed_segment_is_named_where_nothing_else_has_its_bytes(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    built.prune(2)
    key = sealed_key(built.name, 1)
    batches = reader_of(client_of(broken(builder, key, 40))).batches()
    assert [next(batches).sequences.tolist() for _ in range(3)] == [[0, 1], [2, 3, 4], [5]]
    with pytest.raises(CorruptObjectError) as caught:
        next(batches)
    assert caught.value.key == key


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_wal_segments_stand_in_only_where_all_of_them_are_there(builder: ReplicaBuilder, lost: int) -> None:
    built = builder.generations[0]
    key = sealed_key(built.name, 0)
    objects = broken(builder, key, 40)
    del objects[wal_key([at for at in built.positions if at.index == 0][lost])]
    with pytest.raises(CorruptObjectError) as caught:
        sequences(client_of(objects))
    assert caught.value.key == key
    objects = broken(builder, key, 40)
    position = wal_key([at for at in built.positions if at.index == 0][lost])
    objects[position] = objects[position][:-9] + bytes(9)
    with pytest.raises(CorruptObjectError) as caught:
        sequences(client_of(objects))
    assert caught.value.key == key


def test_a_sealed_segment_that_is_another_one_is_refused(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    built.prune(2)
    other = ReplicaBuilder()
    rival = other.add()
    rival.ship_segment(make_segment(0, [2, 3, 1], tag=b"x"))
    rival.seal(0)
    objects = builder.objects()
    key = sealed_key(built.name, 0)
    objects[key] = other.objects()[key]
    with pytest.raises(CorruptObjectError) as caught:
        sequences(client_of(objects))
    assert caught.value.key == key


@pytest.mark.parametrize(("column", "said"), [("checksums", "content checksum"), ("stored", "CRC-32C of the bytes")])
def test_frames_that_differ_from_the_sealed_ones_only_in_their_checksum_are_refused(
    builder: ReplicaBuilder, column: str, said: str
) -> None:
    """The CRC-32C of commits that end with their own CRC-32C proves nothing."""
    from dataclasses import replace

    from litelog.codec.checksum import crc32c
    from litelog.objects.sealed_segment import encode_footer
    from tests.builders.sealed_builder import make_sealed

    built = builder.generations[0]
    built.prune(2)
    other = make_segment(0, [2, 3, 1], tag=b"x")
    forged, body = make_sealed(built.claim, 0, other.name, other.data, FORMAT, marks=built.shipped[0].marks)
    entry = built.entries[0]
    sealed = make_sealed(built.claim, 0, other.name, built.shipped[0].data, FORMAT, marks=built.shipped[0].marks)[0]
    frames = replace(forged.frames, **{column: getattr(sealed.frames, column)})
    assert (frames.crcs, frames.firsts) == (sealed.frames.crcs, sealed.frames.firsts)
    known = {"digest": entry.digest, "crc": crc32c(built.shipped[0].data), "previous": built.shipped[0].previous}
    footer = replace(forged, **known, frames=frames)
    whole = body[: forged.data_bytes] + encode_footer(footer)
    objects = builder.objects()
    assert len(whole) == len(objects[entry.key])
    objects[entry.key] = whole
    with pytest.raises(CorruptObjectError, match=said) as caught:
        sequences(client_of(objects))
    assert caught.value.key == entry.key


def test_a_missing_sealed_segment_is_a_gap_or_read_from_its_wal(builder: ReplicaBuilder) -> None:
    built = builder.generations[0]
    objects = builder.objects()
    key = sealed_key(built.name, 1)
    del objects[key]
    assert sequences(client_of(objects)) == list(range(TOTAL))
    for position in built.prune(2):
        del objects[wal_key(position)]
    with pytest.raises(ReplicaGapError) as caught:
        sequences(client_of(objects))
    assert caught.value.position == key


@pytest.mark.slow
@pytest.mark.parametrize("behind", [0, 1, 5])
def test_a_follower_reads_everything_once_while_it_is_shipped_sealed_and_pruned(behind: int) -> None:
    """The follower lags far or a little. Its WAL segments are deleted again and again, and two owners take over."""
    builder = ReplicaBuilder()
    log = make_log([[1, 2, 1]] * 60)
    builder.add()
    seen: list[int] = []
    failures: list[BaseException] = []
    done = threading.Event()
    taken = threading.Semaphore(behind + 1)

    def follow() -> None:
        try:
            for batch in reader_of(builder.client, follow=True, look_seconds=0.0, stop=done).batches():
                seen.extend(batch.sequences.tolist())
                taken.release()
                if seen[-1] == log[-1].next - 1:
                    return
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        built = builder.generations[0]
        for index, segment in enumerate(log):
            if index in (20, 40):
                claim = builder.claim(first=index)
                sealed = [
                    built.seal(number) if number not in built.entries else built.entries[number]
                    for number in range(built.claim.first, index)
                ]
                entries = {**built.entries, **{entry.index: entry for entry in sealed}}
                built = builder.add(claim, start=False)
                built.start(entries.values())
            built.ship_segment(segment, cuts=[0, 1])
            if index % 3 == 2 and index >= built.claim.first:
                built.snapshot(index) if index > built.claim.first else None
                built.prune(index)
            if index < len(log) - 5:
                assert taken.acquire(timeout=WAIT_SECONDS), failures
        thread.join(WAIT_SECONDS)
    finally:
        done.set()
        thread.join()
    assert not failures
    assert seen == list(range(log[-1].next))


@pytest.mark.slow
def test_a_reader_continues_in_sealed_segments_when_its_wal_went_away() -> None:
    for stopped in range(1, 7):
        builder = ReplicaBuilder()
        built = builder.add()
        for segment in LOG[:3]:
            built.ship_segment(segment, cuts=[0, 1])
        reader = reader_of(builder.client, look_seconds=0.0)
        batches = reader.batches()
        seen = [sequence for _ in range(stopped) for sequence in next(batches).sequences.tolist()]
        built.ship_segment(LOG[3], final=None)
        built.snapshot(3)
        built.prune(3)
        seen += [sequence for batch in batches for sequence in batch.sequences.tolist()]
        assert seen == list(range(TOTAL)), stopped


@pytest.mark.slow
def test_a_reader_whose_place_left_the_replica_gets_an_error() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    for number in range(40):
        built.ship_segment(make_segment(number, [1]))
    batches = reader_of(builder.client).batches()
    assert next(batches).sequences.tolist() == [0]
    for index in range(30):
        built.seal(index)
    built.snapshot(30, first=29)
    built.prune(30)
    with pytest.raises(PrunedError):
        list(batches)


@pytest.mark.slow
def test_a_sealed_segment_that_retention_removes_while_it_is_read_is_reported() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    for number in range(40):
        built.ship_segment(make_segment(number, [1]))
    built.snapshot(30)
    built.prune(30)
    batches = reader_of(builder.client).batches()
    next(batches)
    built.snapshot(31, first=30)
    builder.client.delete_sealed_segments([(built.name, index) for index in range(30)])
    with pytest.raises(PrunedError):
        list(batches)


@pytest.mark.slow
def test_a_sealed_segment_that_moved_is_found_where_the_newest_snapshot_names_it() -> None:
    """An owner sealed it again, and its predecessor's sealed segment was deleted."""
    from dataclasses import replace

    builder = ReplicaBuilder()
    first = builder.add()
    for number in range(40):
        first.ship_segment(make_segment(number, [1]))
    for index in range(40):
        first.seal(index)
    second = builder.add(builder.claim(first=40), start=False)
    second.start([replace(first.entries[index]) for index in range(40)])
    batches = reader_of(builder.client).batches()
    assert next(batches).sequences.tolist() == [0]
    for index in range(40):
        second.seal_unshipped(index, make_segment(index, [1]))
    second.ship_segment(make_segment(40, [1]))
    second.snapshot(41)
    builder.client.delete_sealed_segments([(first.name, index) for index in range(40)])
    assert [sequence for batch in batches for sequence in batch.sequences.tolist()] == list(range(1, 41))


@pytest.mark.slow
def test_a_final_that_stands_for_a_sealed_segment_is_read_for_it() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0], cuts=[0])
    built.stand_for_sealed(LOG[1])
    built.ship_segment(LOG[2])
    assert sequences(builder.client) == list(range(LOG[2].next))
    key = sealed_key(built.name, 1)
    with pytest.raises(CorruptObjectError) as caught:
        sequences(client_of(broken(builder, key, 40)))
    assert caught.value.key == key
    objects = builder.objects()
    del objects[key]
    with pytest.raises(ReplicaGapError) as gap:
        sequences(client_of(objects))
    assert gap.value.position == key
    other = ReplicaBuilder()
    rival = other.add()
    rival.ship_segment(LOG[0], cuts=[0])
    rival.stand_for_sealed(make_segment(LOG[1].data and 6, [4, 2], tag=b"x"))
    objects[key] = other.objects()[key]
    with pytest.raises(CorruptObjectError, match="SHA-256"):
        sequences(client_of(objects))
