"""The tasks of a plan together read each record once, in order, and check every promise of the replica."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import (
    ConfigError,
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    PrunedError,
    ReplicaGapError,
    SequenceGapError,
    TruncatedError,
)
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog.encoding import encode_commit
from litelog.formats.raw import RawFormat
from litelog.objects import snapshot as snapshots
from litelog.objects import wal_segment
from litelog.objects.layout import sealed_key, snapshot_key, wal_key
from litelog.objects.sealed_segment import encode_footer
from litelog.objects.snapshot_entries import make_entry
from litelog.shipping.sealer import read_sealed_footer
from litelog.spark.options import parse_options
from litelog.spark.query.counting import count_records
from litelog.spark.scan.decoding import read_partition, read_runs
from litelog.spark.scan.partitions import SealedPiece, WalPiece
from litelog.spark.scan.planning import plan
from litelog.spark.scan.schema import log_columns
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from replica_clients.memory import MemoryStore
from tests.builders import log_builder
from tests.builders.child import runs_in_child
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import objects
from tests.builders.random_replicas import SHAPES, draw_replica
from tests.builders.replica_builder import SECOND, LogSegment, ReplicaBuilder, make_log, make_segment
from tests.builders.sealed_builder import make_sealed
from tests.builders.spark_reading import planned, rows, stored, values
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.objects.position import Position

COUNTS = (1, 2, 7)


def built(sealed: int = 2, tail: int | None = None) -> tuple[ReplicaBuilder, list[LogSegment]]:
    """A replica of four log segments with 25 records. The first ones are sealed, and their WAL segments deleted."""
    builder, log = ReplicaBuilder(), make_log([[3, 2, 4], [5, 1], [2, 2, 2], [1, 1, 1, 1]])
    generation = builder.add()
    for segment in log[:3]:
        generation.ship_segment(segment, cuts=[0, 1])
    generation.ship_segment(log[3], cuts=[0, 1, 2], final=None, upto=tail)
    if sealed:
        generation.snapshot(sealed)
        generation.prune(sealed)
    return builder, log


def expected(first: int, stop: int) -> list[bytes]:
    return [b"r%d" % number for number in range(first, stop)]


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sealed", [0, 1, 2, 3])
def test_any_number_of_partitions_gives_the_same_rows(count: int, sealed: int) -> None:
    url = stored(built(sealed)[0].objects())
    plan_made = planned(url, numPartitions=count)
    assert len(plan_made.partitions) == count
    assert values(url, plan_made) == expected(0, 25)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(data=st.data(), shape=SHAPES, count=st.integers(1, 12))
def test_the_data_of_all_owners_is_read_to_its_end(data: Any, shape: list[list[int]], count: int) -> None:
    builder, log = draw_replica(data, shape)
    url = stored(builder.objects())
    stop = log[-1].next
    assert [row["sequence"] for row in rows(url, numPartitions=count)] == list(range(stop))
    assert count_records(parse_options({"path": url})) == stop
    low = data.draw(st.integers(0, stop), "low")
    high = data.draw(st.integers(low, stop), "high")
    assert values(url, numPartitions=count, startingSequence=low, endingSequence=high) == expected(low, high)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("first", "stop"), [(0, 1), (4, 17), (9, 9), (24, 25), (12, 400), (300, 400)])
def test_sequences_are_bounded(count: int, first: int, stop: int) -> None:
    url = stored(built()[0].objects())
    found = values(url, numPartitions=count, startingSequence=first, endingSequence=stop)
    assert found == expected(first, min(stop, 25))


@pytest.mark.parametrize("count", COUNTS)
def test_timestamps_are_bounded_row_by_row(count: int) -> None:
    builder, stamps = ReplicaBuilder(), [50, 10, 40, 20, 50]
    generation = builder.add()
    segments = [make_segment(0, [1, 1, 1], [at * SECOND for at in stamps[:3]])]
    segments.append(make_segment(3, [1, 1], [at * SECOND for at in stamps[3:]]))
    for segment in segments:
        generation.ship_segment(segment, cuts=[0])
    generation.seal(0, frame_commits=3)
    generation.snapshot(1)
    url = stored(builder.objects())
    found = rows(
        url, numPartitions=count, startingTimestamp="1970-01-01T00:00:20Z", endingTimestamp="1970-01-01T00:00:50Z"
    )
    assert [row["sequence"] for row in found] == [number for number, at in enumerate(stamps) if 20 <= at < 50]


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_large_commits_are_read_as_small_ones_are(count: int) -> None:
    builder, log = ReplicaBuilder(), make_log([[70, 1, 500], [64], [2, 900, 100, 12_000], [80, 80]])
    generation = builder.add()
    for segment in log[:3]:
        generation.ship_segment(segment, cuts=[0])
    generation.ship_segment(log[3], final=None)
    generation.seal(2, frame_commits=3)
    generation.snapshot(3)
    generation.prune(3)
    url = stored(builder.objects())
    stop = log[-1].next
    assert values(url, numPartitions=count) == expected(0, stop)
    assert values(url, numPartitions=count, mode="DROPMALFORMED") == expected(0, stop)
    assert values(url, numPartitions=count, startingSequence=69, endingSequence=1_700) == expected(69, 1_700)
    found = rows(url, numPartitions=count, includeMetadata=True)
    assert [row["sequence"] for row in found] == [*range(stop)]
    assert [row["value"] for row in found] == expected(0, stop)
    assert {row["index"] for row in found} == {0, 1, 2, 3}


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
@runs_in_child
def test_a_commit_that_was_sealed_as_several_frames_is_read_whole(count: int, tmp_path: Path) -> None:
    log, store = log_builder.make_log(tmp_path / "log"), MemoryStore("sealed")
    log.roll(1)
    large = [b"%d" % number + bytes(60_000) for number in range(100)]
    log.write(encode_commit(log.next, log.epoch, SECOND, large))
    log.next += len(large)
    log.append(1)
    log.roll(1)
    daemon = Daemon(log, store, str(tmp_path / "state"), backlog_sealer=True)
    daemon.sync()
    (event,) = daemon.sealed_events
    footer, _ = read_sealed_footer(ObjectReplicaClient(store), daemon.generation, event.entry.index)
    assert footer.frames.inner
    found = rows(stored(objects(store)), numPartitions=count)
    assert [row["sequence"] for row in found] == [*range(103)]
    assert [row["value"] for row in found[1:101]] == large


def test_segments_whose_entries_hold_no_wanted_record_are_not_read() -> None:
    url = stored(built(3)[0].objects())
    pieces = [piece for part in _parts(planned(url, startingSequence=10, endingSequence=12)) for piece in part.pieces]
    assert [piece.entry.index for piece in pieces if isinstance(piece, SealedPiece)] == [1]
    assert not [piece for piece in pieces if isinstance(piece, WalPiece)]


@pytest.mark.slow
def test_a_large_sealed_segment_is_split_at_frames() -> None:
    builder, log = ReplicaBuilder(), make_log([[2] * 40])
    generation = builder.add()
    generation.ship_segment(log[0])
    generation.snapshot(1)
    url = stored(builder.objects())
    plan_made = planned(url, numPartitions=7)
    pieces = [piece for part in _parts(plan_made) for piece in part.pieces]
    ranges = [(piece.start, piece.stop) for piece in pieces if isinstance(piece, SealedPiece)]
    assert len(ranges) == 7
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert values(url, plan_made) == expected(0, 80)


def test_records_are_counted_without_reading_where_all_is_sealed() -> None:
    builder, log = ReplicaBuilder(), make_log([[3, 2]])
    generation = builder.add(builder.claim(first=1), start=False)
    generation.start([generation.seal_unshipped(0, log[0])])
    builder.store.delete([generation.entries[0].key])
    assert count_records(parse_options({"path": stored(builder.objects())})) == 5


def test_records_of_a_log_segment_that_went_up_sealed_are_counted_without_reading() -> None:
    """The WAL segment that stands for it does not state how many records it holds."""
    builder, log = ReplicaBuilder(), make_log([[3, 4], [5], [2, 2]])
    generation = builder.add()
    generation.ship_segment(log[0], cuts=[0])
    generation.stand_for_sealed(log[1])
    generation.ship_segment(log[2], final=None)
    url = stored(builder.objects())
    for first, stop in [(0, 16), (7, 12), (8, 16), (0, 9), (12, 400)]:
        given = {"path": url, "startingsequence": str(first), "endingsequence": str(stop)}
        assert count_records(parse_options(given)) == len(expected(first, min(stop, 16)))
    assert count_records(parse_options({"path": url})) == len(values(url)) == 16


def test_a_start_before_the_first_record_is_a_loss_of_data() -> None:
    for whole in (True, False):
        builder, log = ReplicaBuilder(), make_log([[3], [3]], first=10)
        generation = builder.add()
        for segment in log:
            generation.ship_segment(segment)
        if whole:
            generation.snapshot(1)
        url = stored(builder.objects())
        with pytest.raises(TruncatedError) as caught:
            rows(url, startingSequence=3)
        assert (caught.value.requested, caught.value.first_available) == (3, 10)
        assert values(url, startingSequence=3, failOnDataLoss="false") == expected(10, 16)


def test_a_generation_is_read_by_name_or_the_latest() -> None:
    builder, log = ReplicaBuilder(), make_log([[3, 2], [4]])
    older = builder.add()
    older.ship_segment(log[0], upto=1, final=None)
    newer = builder.add()
    newer.ship_segment(log[0])
    newer.ship_segment(log[1], final=None)
    url = stored(builder.objects())
    assert values(url) == expected(0, 9)
    assert values(url, generation=older.name) == expected(0, 3)
    with pytest.raises(LitelogError, match="no generation 0000000900000000"):
        rows(url, generation="0000000900000000")


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_metadata_is_the_records_place(count: int) -> None:
    builder, log = built()
    url = stored(builder.objects())
    texts = [segment.data for segment in log]
    for row in rows(url, numPartitions=count, includeMetadata="true"):
        assert (row["generation"], row["epoch"]) == (builder.generations[0].name, 1)
        text, at = texts[row["index"]], row["offset"]
        assert text[at : at + len(row["value"])] == row["value"]
    assert {row["log"] for row in rows(url, includeMetadata="true")} == {url.removeprefix("memory://")}


@pytest.mark.parametrize("count", COUNTS)
def test_a_line_is_a_row(count: int) -> None:
    builder = ReplicaBuilder(LinesFormat())
    generation = builder.add()
    texts = [b"a\nbb\n\nccc\n", b"d\nee\n"]
    for number, text in enumerate(texts):
        generation.ship(text[:2], f"app.{number}.log")
        generation.ship(text[2:], f"app.{number}.log", final=True)
    generation.ship(b"f\n", "app.2.log")
    generation.snapshot(1)
    generation.prune(1)
    found = rows(stored(builder.objects()), numPartitions=count, includeMetadata="true")
    lines = [line for text in [*texts, b"f\n"] for line in text.splitlines()]
    assert [(row["sequence"], row["timestamp"], row["key"], row["value"]) for row in found] == [
        (number, None, None, line) for number, line in enumerate(lines)
    ]
    assert [(row["index"], row["offset"]) for row in found][:4] == [(0, 0), (0, 2), (0, 5), (0, 6)]
    assert count_records(parse_options({"path": stored(builder.objects())})) == len(lines)


@pytest.mark.slow
def test_a_format_without_timestamps_is_bounded_by_when_it_was_shipped() -> None:
    builder = ReplicaBuilder(LinesFormat())
    generation = builder.add()
    times = []
    for number in range(6):
        generation.ship(b"%d\n" % number, f"app.{number // 2}.log", final=number % 2 == 1)
        times.append(generation.clock)
    generation.snapshot(2)
    generation.prune(2)
    url = stored(builder.objects())
    for low in range(6):
        for high in range(low, 6):
            found = values(url, startingTimestamp=_iso(times[low]), endingTimestamp=_iso(times[high]))
            assert found == [b"%d" % number for number in range(low, high)], (low, high)


@pytest.mark.parametrize("count", COUNTS)
def test_a_raw_run_is_a_row(count: int) -> None:
    builder = ReplicaBuilder(RawFormat())
    generation = builder.add()
    for number, text in enumerate([b"abc", b"de", b"fghi"]):
        generation.ship(text, "blob.0", final=number == 2)
    generation.ship(b"xyz", "blob.1")
    found = rows(stored(builder.objects()), numPartitions=count)
    assert [(row["sequence"], row["value"]) for row in found] == [(0, b"abc"), (3, b"de"), (5, b"fghi"), (9, b"xyz")]


def _damage(objects: dict[str, bytes], key: str, at: int = -20) -> dict[str, bytes]:
    body = bytearray(objects[key])
    body[at] ^= 0x40
    return {**objects, key: bytes(body)}


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_every_object_of_the_log_is_checked(count: int) -> None:
    """A flipped bit in any frame is an error that names it. With DROPMALFORMED only its records are missing."""
    objects = built()[0].objects()
    keys = [key for key in objects if "/wal/" in key or "/segments/" in key]
    checked = 0
    for key in keys:
        if "/wal/" in key and int(key.split("/")[-2], 16) < 2:
            continue  # covered, and kept only to end its index
        url = stored(_damage(objects, key, at=len(objects[key]) // 2))
        with pytest.raises(CorruptionError) as caught:
            rows(url, numPartitions=count)
        assert key in str(caught.value) or key.split("/")[-1] in str(caught.value)
        checked += 1
    assert checked == 9


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_damaged_frames_are_dropped_alone(count: int) -> None:
    builder, _ = built()
    objects = builder.objects()
    key = sealed_key(builder.generations[0].name, 0)
    url = stored(_damage(objects, key, at=20))  # the first of three frames: records 0 to 2
    dropped = rows(url, numPartitions=count, mode="DROPMALFORMED")
    assert [row["value"] for row in dropped] == expected(3, 25)
    told = rows(url, numPartitions=count, mode="PERMISSIVE", includeMetadata="true")
    assert [row["value"] for row in told if row["value"] is not None] == expected(3, 25)
    bad = [row for row in told if row["_corrupt_record"] is not None]
    assert len(bad) == 1
    assert key in bad[0]["_corrupt_record"]
    assert (bad[0]["sequence"], bad[0]["key"], bad[0]["index"], bad[0]["offset"]) == (None, None, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_wal_segment_is_dropped_alone(count: int) -> None:
    builder, log = built()
    objects = builder.objects()
    place = [at for at in builder.generations[0].positions if at.index == 2][1]
    key = wal_key(place)
    url = stored(_damage(objects, key))
    first = make_first(log[2], 1)
    left = expected(0, first) + expected(first + 2, 25)
    assert values(url, numPartitions=count, mode="DROPMALFORMED") == left
    told = rows(url, numPartitions=count, mode="PERMISSIVE", columnNameOfCorruptRecord="bad")
    assert [row["value"] for row in told if row["bad"] is None] == left
    assert [key in row["bad"] for row in told if row["bad"] is not None] == [True]


@pytest.mark.parametrize("name", ["value", "_corrupt_record"])
def test_a_column_requested_as_not_null_is_an_error_if_a_malformed_row_lacks_it(name: str) -> None:
    """The row is not passed to Spark, which would fail in Java."""
    builder, _ = built()
    url = stored(_damage(builder.objects(), sealed_key(builder.generations[0].name, 0), at=20))
    options = parse_options({"path": url, "mode": "PERMISSIVE"})
    known = log_columns(options, has_timestamps=False, names=["value", "_corrupt_record"])
    columns = [column.asked_as(column.title != name) for column in known]
    with pytest.raises(ConfigError, match=f"column {name} is null in log .*: ask for it without NOT NULL"):
        [*(batch for made in plan(options).partitions for batch in read_partition(made, columns))]


def make_first(segment: LogSegment, commit: int) -> int:
    """The first sequence of a commit in ``built``'s third log segment, whose commits hold two records."""
    return segment.next - 6 + 2 * commit


def test_a_bad_commit_in_a_whole_object_is_dropped_alone() -> None:
    builder = ReplicaBuilder()
    generation = builder.add()
    segment = make_segment(0, [2, 3, 4])
    bad = bytearray(segment.data)
    bad[segment.ends[1] - 12] ^= 1
    generation.ship(bytes(bad), segment.name, final=True, described=segment.data)
    url = stored(builder.objects())
    with pytest.raises(CorruptionError, match=f"offset {segment.ends[0]}"):
        rows(url)
    assert values(url, mode="DROPMALFORMED") == expected(0, 2) + expected(5, 9)
    told = [row["_corrupt_record"] for row in rows(url, mode="PERMISSIVE")]
    assert [text is None for text in told] == [True] * 2 + [False] + [True] * 4
    assert f"bytes {segment.ends[0]} to {segment.ends[1]}" in told[2]


@pytest.mark.parametrize("count", COUNTS)
def test_a_missing_wal_segment_is_a_gap_with_a_position(count: int) -> None:
    builder, _ = built()
    objects = builder.objects()
    place = builder.generations[0].positions[-2]
    del objects[wal_key(place)]
    url = stored(objects)
    with pytest.raises(ReplicaGapError) as caught:
        rows(url, numPartitions=count)
    assert caught.value.position == str(place)
    assert values(url, numPartitions=count, failOnDataLoss="false") == [*expected(0, 23), b"r24"]


@pytest.mark.parametrize("count", COUNTS)
def test_a_missing_sealed_segment_is_a_gap(count: int) -> None:
    builder, _ = built()
    objects = builder.objects()
    key = sealed_key(builder.generations[0].name, 1)
    del objects[key]
    url = stored(objects)
    with pytest.raises(ReplicaGapError) as caught:
        rows(url, numPartitions=count)
    assert key in str(caught.value)
    assert values(url, numPartitions=count, failOnDataLoss="false") == expected(0, 9) + expected(15, 25)


@pytest.mark.parametrize("count", COUNTS)
def test_wal_segments_are_chained_across_partitions(count: int) -> None:
    """A WAL segment that replaces another one is found, even if it is valid by itself and tasks begin anywhere."""
    builder, _ = built()
    place = builder.generations[0].positions[-2]
    objects, key = builder.objects(), wal_key(place)
    found = wal_segment.decode(key, objects[key])
    objects[key] = b"".join(wal_segment.encode(replace(found.header, previous="0" * 64), found.data()))
    with pytest.raises(CorruptObjectError, match="SHA-256 of the object before it"):
        rows(stored(objects), numPartitions=count)


@pytest.mark.parametrize("count", COUNTS)
def test_sequences_continue_across_sealed_segments(count: int) -> None:
    builder = ReplicaBuilder()
    generation = builder.add(builder.claim(first=2), start=False)
    segments = [make_segment(0, [2, 3]), make_segment(7, [2])]  # 5 and 6 are missing
    entries = [generation.seal_unshipped(number, segment) for number, segment in enumerate(segments)]
    generation.start(entries)
    url = stored(builder.objects())
    with pytest.raises(SequenceGapError) as caught:
        rows(url, numPartitions=count)
    assert (caught.value.expected, caught.value.actual) == (5, 7)


@pytest.mark.parametrize("count", COUNTS)
def test_sequences_continue_from_sealed_segments_to_wal_segments(count: int) -> None:
    builder = ReplicaBuilder()
    generation = builder.add(builder.claim(first=1), start=False)
    generation.start([generation.seal_unshipped(0, make_segment(0, [2, 3]))])
    generation._next = None
    generation.ship_segment(make_segment(7, [2, 1]), cuts=[0])
    with pytest.raises(SequenceGapError) as caught:
        rows(stored(builder.objects()), numPartitions=count)
    assert (caught.value.expected, caught.value.actual) == (5, 7)


@pytest.mark.parametrize("count", COUNTS)
def test_frames_must_match_their_footer(count: int) -> None:
    """The frames are whole and the footer's sums are right, but the footer exchanges the facts of two frames."""
    builder = ReplicaBuilder()
    generation = builder.add(builder.claim(first=1), start=False)
    segment = make_segment(0, [3, 2])
    marks = [(len(segment.data), generation.clock)]
    footer, body = make_sealed(generation.claim, 0, segment.name, segment.data, builder.format, marks=marks)
    lying = replace(footer, frames=replace(footer.frames, records=(2, 3), firsts=(0, 2)))
    body = body[: footer.data_bytes] + encode_footer(lying)
    generation.client.write_sealed_segment(generation.name, 0, [body])
    generation.start([make_entry(lying, len(body))])
    with pytest.raises(CorruptObjectError, match="of frame 0"):
        rows(stored(builder.objects()), numPartitions=count)


def test_frames_must_come_to_the_whole_that_the_snapshot_names() -> None:
    """Footer and snapshot state the same CRC-32C of the whole, but the frames have another one."""
    builder = ReplicaBuilder()
    generation = builder.add(builder.claim(first=1), start=False)
    segment = make_segment(0, [3, 2])
    marks = [(len(segment.data), generation.clock)]
    footer, body = make_sealed(generation.claim, 0, segment.name, segment.data, builder.format, marks=marks)
    lying = replace(footer, crc=footer.crc ^ 1)
    body = body[: footer.data_bytes] + encode_footer(lying)
    generation.client.write_sealed_segment(generation.name, 0, [body])
    generation.start([make_entry(lying, len(body))])
    with pytest.raises(CorruptObjectError, match="CRC-32C of its frames"):
        rows(stored(builder.objects()))


def _prune_now(url: str, builder: ReplicaBuilder, upto: int, frame_commits: int = 2) -> list[Position]:
    """Seal, snapshot and prune in the replica at ``url``, as its daemon does during a read. Frames end at other commits
    than WAL segments."""
    generation = builder.generations[0]
    for index in range(upto):
        generation.seal(index, frame_commits=frame_commits)
    generation.snapshot(upto)
    gone = generation.prune(upto)
    store = open_store(url)
    for key, body in builder.objects().items():
        if not any(True for info in store.list(key) if info.key == key):
            store.put(key, [body])
    store.delete([wal_key(place) for place in gone])
    return gone


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("upto", [1, 2, 3])
def test_segments_pruned_meanwhile_are_read_from_sealed_segments(count: int, upto: int) -> None:
    builder, _ = built(sealed=0)
    url = stored(builder.objects())
    plan_made = planned(url, numPartitions=count)
    assert _prune_now(url, builder, upto)
    assert values(url, plan_made) == expected(0, 25)


def test_wal_segments_after_pruned_ones_are_chained_to_the_snapshot() -> None:
    builder, _ = built(sealed=0)
    url = stored(builder.objects())
    plan_made = planned(url, numPartitions=1)
    assert _prune_now(url, builder, 2)
    place = next(at for at in builder.generations[0].positions if at.index == 2)
    store, key = open_store(url), wal_key(place)
    found = wal_segment.decode(key, builder.objects()[key])
    store.delete([key])
    store.put(key, wal_segment.encode(replace(found.header, previous="0" * 64), found.data()))
    with pytest.raises(CorruptObjectError, match="SHA-256 of the object before it") as caught:
        values(url, plan_made)
    assert caught.value.key == key


def test_a_sealed_segment_that_retention_took_meanwhile_is_reported_by_name() -> None:
    builder, _ = built()
    url = stored(builder.objects())
    plan_made = planned(url)
    store, name = open_store(url), builder.generations[0].name
    key = snapshot_key(name, 2)
    shorter = snapshots.drop_before(snapshots.decode(key, builder.objects()[key]), 1)
    store.delete([key, sealed_key(name, 0)])
    store.put(key, [snapshots.encode(shorter)])
    with pytest.raises(PrunedError):
        values(url, plan_made)
    assert values(url) == expected(9, 25)


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_a_plan_ends_where_it_was_made(count: int) -> None:
    """The plan's last WAL segment was sealed and pruned together with later ones. The task reads no further row."""
    builder, log = built(sealed=0, tail=2)
    url = stored(builder.objects())
    plan_made = planned(url, numPartitions=count)
    generation = builder.generations[0]
    ends = log[3].ends
    generation.ship(log[3].data[ends[1] :], log[3].name, final=True)
    generation.ship_segment(make_segment(25, [2]), final=None)
    _prune_now(url, builder, 4, frame_commits=4)
    assert values(url, plan_made) == expected(0, 23)


def test_data_that_retention_deleted_meanwhile_is_reported_with_its_position() -> None:
    builder, _ = built(sealed=0)
    url = stored(builder.objects())
    plan_made = planned(url)
    _prune_now(url, builder, 3)
    store, key = open_store(url), snapshot_key(builder.generations[0].name, 3)
    shorter = snapshots.drop_before(snapshots.decode(key, builder.objects()[key]), 1)
    store.delete([key])
    store.put(key, [snapshots.encode(shorter)])
    with pytest.raises(PrunedError):
        values(url, plan_made)


@pytest.mark.slow
def test_a_damaged_sealed_segment_is_read_from_its_wal_segments() -> None:
    builder, log = ReplicaBuilder(), make_log([[3, 2, 4], [5, 1]])
    generation = builder.add()
    for segment in log:
        generation.ship_segment(segment, cuts=[0])
    generation.snapshot(1)
    objects = builder.objects()
    key = sealed_key(generation.name, 0)
    for at in (20, -20):  # a frame, the footer
        for mode in ("FAILFAST", "DROPMALFORMED"):
            assert values(stored(_damage(objects, key, at=at)), mode=mode, numPartitions=2) == expected(0, 15)


@pytest.mark.slow
def test_partitions_are_pickled_and_hold_all_that_a_task_needs() -> None:
    url = stored(built()[0].objects())
    options = parse_options({"path": url, "numpartitions": "7"})
    made = pickle.loads(pickle.dumps(plan(options)))
    assert values(url, made) == expected(0, 25)


@pytest.mark.slow
def test_threads_end_with_the_iterator() -> None:
    builder, log = ReplicaBuilder(), make_log([[2] * 200])
    generation = builder.add()
    generation.ship_segment(log[0], cuts=range(199))
    url = stored(builder.objects())
    options = parse_options({"path": url})
    runs = read_runs(plan(options).partitions[0].parts[0])
    next(runs)
    assert [thread for thread in threading.enumerate() if thread.name.startswith("litelog-")]
    runs.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("litelog-")]


@pytest.mark.slow
def test_small_pieces_are_coalesced_and_large_ones_cut() -> None:
    builder = ReplicaBuilder()
    generation = builder.add()
    log = make_log([[1] * 300, [30_000]])
    generation.ship_segment(log[0], cuts=range(299))
    generation.ship_segment(log[1], final=None)
    options = parse_options({"path": stored(builder.objects())})
    columns = log_columns(options, has_timestamps=True)
    batches = [batch for made in plan(options).partitions for batch in read_partition(made, columns)]
    sizes = [batch.num_rows for batch in batches]
    assert sum(sizes) == 30_300
    assert len(sizes) <= 5
    assert max(sizes) <= 15_000
    assert all(batch.schema == batches[0].schema for batch in batches)
    assert not batches[0].schema.field("value").nullable


@pytest.mark.slow
@pytest.mark.parametrize("large", [6_000, 10_000, 16_000])
def test_records_keep_their_order_where_small_pieces_go_before_large_ones(large: int) -> None:
    builder = ReplicaBuilder()
    generation = builder.add()
    log = make_log([[100], [large], [100]])
    generation.ship_segment(log[0], cuts=[0])
    generation.ship_segment(log[1], cuts=[0])
    generation.ship_segment(log[2], final=None)
    assert values(stored(builder.objects()), numPartitions=1) == expected(0, large + 200)


def _parts(plan_made: Any) -> list[Any]:
    return [part for partition in plan_made.partitions for part in partition.parts]


def _iso(microseconds: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).isoformat()
