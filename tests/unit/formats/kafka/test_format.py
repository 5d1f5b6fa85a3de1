"""Kafka's record batches: the suite for formats, and what brokers recorded."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from litelog.errors import CorruptCommitError, SequenceGapError, WrongFormatError
from litelog.formats import Expectation, Tail, shown_lowest
from litelog.formats.capabilities import find_commit
from litelog.formats.conformance import LogFormatConformance
from litelog.formats.kafka import KafkaFormat
from litelog.formats.litelog import SegmentHeader
from tests.builders.kafka_log import (
    HEADER,
    PLAIN_SCENES,
    SERVED_SCENES,
    as_served,
    decode_slowly,
    recording,
    seal,
    write_batch,
)
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.formats.columns import Record
    from litelog.formats.log_format import LogFormat
    from tests.builders.kafka_log import Entry

pytestmark = pytest.mark.slow

FORMAT = KafkaFormat()
NAME = f"{0:020d}.log"


class TestKafka(LogFormatConformance):
    """The suite, over log segments that a broker wrote."""

    other_names = (
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000000.snapshot",
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.log.swap",
        "0000000000000000000.log",
        "99999999999999999999.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    )

    @pytest.fixture
    def log_format(self) -> LogFormat:
        return KafkaFormat()

    @pytest.fixture(params=["rolled", "after_compaction"])
    def segments(self, request: pytest.FixtureRequest) -> list[tuple[str, bytes]]:
        return recording(request.param).segments[:2]

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        return decode_slowly(data)

    def is_unchecked(self, name: str, data: bytes, place: int) -> bool:
        return place in {start + at for start in _starts(data) for at in range(12, 16)}  # leader epoch

    def may_renumber(self, name: str, data: bytes, place: int) -> bool:
        starts = _starts(data)
        scan = FORMAT.scan(name, memoryview(data), 0, Expectation())
        has_gaps = scan.next != int(name[:20]) + scan.records
        return any(start <= place < start + 8 for start in (starts if has_gaps else starts[-1:]))

    def choose(self, places: Sequence[int]) -> Sequence[int]:
        return sampled(places, 40, "kafka batches")


def _starts(data: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return starts


def decode_all(segments: list[tuple[str, bytes]]) -> list[Record]:
    records: list[Record] = []
    expect = Expectation()
    for name, data in segments:
        scan, columns = FORMAT.scan_columns(name, memoryview(data), 0, expect)
        assert scan.tail in {Tail.NOTHING, Tail.ZEROS}
        records += columns.records()
        expect = scan.expectation
    return records


@pytest.mark.parametrize("scene", SERVED_SCENES)
def test_records_are_those_that_the_broker_served(scene: str) -> None:
    recorded = recording(scene)
    first = recorded.bounds["read_uncommitted"]["first"]
    found = [as_served(record) for record in decode_all(recorded.segments) if record.sequence >= first]
    assert found == recorded.served["read_uncommitted"]


def test_a_scan_ends_at_the_offset_that_the_broker_states() -> None:
    for scene in PLAIN_SCENES:
        recorded = recording(scene)
        name, data = recorded.segments[-1]
        assert FORMAT.scan(name, memoryview(data), 0, Expectation()).next == recorded.bounds["read_uncommitted"]["end"]


def test_the_metadata_log_is_read_with_its_markers() -> None:
    ((name, data),) = recording("cluster_metadata").segments
    scan, columns = FORMAT.scan_columns(name, memoryview(data), 0, Expectation())
    assert (scan.end, scan.tail) == (len(data), Tail.NOTHING)
    assert 0 < len(columns) < scan.records
    assert list(columns.records()) == decode_slowly(data)


def test_zeros_of_a_preallocated_log_segment_are_not_yet_a_batch() -> None:
    ((name, data),) = recording("killed").segments
    scan = FORMAT.scan(name, memoryview(data), 0, Expectation())
    assert (scan.tail, scan.commits) == (Tail.ZEROS, 30)
    assert data[scan.end :] == bytes(len(data) - scan.end)


def test_compaction_leaves_gaps_between_and_inside_batches() -> None:
    records = decode_all(recording("after_compaction").segments)
    sequences = [record.sequence for record in records]
    assert sequences == sorted(set(sequences))
    assert len(sequences) < sequences[-1] + 1


def log_of(*batches: bytes) -> memoryview:
    return memoryview(b"".join(batches))


def entry(offset: int, value: bytes | None = b"value") -> Entry:
    return (offset, 0, None, value, [])


def test_a_batch_without_records_is_a_commit() -> None:
    data = log_of(write_batch(3, [], last=4), write_batch(8, [entry(0)]))
    scan, columns = FORMAT.scan_columns(NAME, data, 0, Expectation())
    assert (scan.commits, scan.first, scan.next, scan.end) == (2, 3, 9, len(data))
    assert columns.sequences.tolist() == [8]
    assert [(commit.first, commit.next) for commit in FORMAT.commits(NAME, data, 0, Expectation())] == [(3, 8), (8, 9)]


def test_an_offset_that_goes_back_is_an_error() -> None:
    data = log_of(write_batch(5, [entry(0)]), write_batch(4, [entry(0)]))
    with pytest.raises(SequenceGapError, match="expected 6"):
        FORMAT.scan(NAME, data, 0, Expectation())


def test_a_log_segment_that_begins_before_its_name_is_an_error() -> None:
    with pytest.raises(SequenceGapError):
        FORMAT.scan(f"{9:020d}.log", log_of(write_batch(4, [entry(0)])), 0, Expectation())


def test_a_name_below_the_expected_offset_is_an_error() -> None:
    with pytest.raises(SequenceGapError):
        FORMAT.scan(f"{9:020d}.log", log_of(write_batch(9, [entry(0)])), 0, Expectation(12))


def test_a_leader_epoch_that_goes_back_is_an_error() -> None:
    data = log_of(write_batch(0, [entry(0)], epoch=3), write_batch(1, [entry(0)], epoch=2))
    with pytest.raises(CorruptCommitError, match="epoch"):
        FORMAT.scan(NAME, data, 0, Expectation())
    assert FORMAT.scan(NAME, log_of(write_batch(0, [entry(0)], epoch=-1)), 0, Expectation()).epoch == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_versions_are_refused_by_version(magic: int) -> None:
    time = struct.pack(">q", 5) if magic else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">i", -1) + b"\0\0\0\3old"
    message = struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body
    with pytest.raises(WrongFormatError, match=f"messages of version {magic}"):
        FORMAT.scan(NAME, log_of(message), 0, Expectation())


def test_a_log_of_litelog_is_named() -> None:
    with pytest.raises(WrongFormatError, match="use --format litelog"):
        FORMAT.check_head(NAME, SegmentHeader(UUID(int=1), 0, 0).encode())


@pytest.mark.parametrize("change", ["length", "offset", "count"])
def test_malformed_records_under_a_good_checksum_are_an_error(change: str) -> None:
    batch = bytearray(write_batch(0, [entry(0), entry(1)]))
    if change == "length":
        batch[61] += 2
    elif change == "offset":
        batch = bytearray(write_batch(0, [entry(1), entry(1)]))
    else:
        batch[57:61] = struct.pack(">i", 1)
    with pytest.raises(CorruptCommitError, match="offset 0: "):
        FORMAT.decode(NAME, log_of(seal(batch)), 0, Expectation())


def test_records_of_an_unknown_codec_are_shipped_and_not_read() -> None:
    data = log_of(write_batch(0, [entry(0)], attributes=6))
    assert FORMAT.scan(NAME, data, 0, Expectation()).commits == 1
    with pytest.raises(CorruptCommitError, match="codec of the records"):
        FORMAT.decode(NAME, data, 0, Expectation())


def test_a_batch_that_lies_in_a_record_is_not_found_as_a_commit() -> None:
    inner = write_batch(1_000, [entry(0)])
    data = log_of(write_batch(0, [entry(0)]), write_batch(1, [entry(0, inner)]))[: -len(inner) // 8]
    scan = FORMAT.scan(NAME, data, 0, Expectation())
    assert (scan.commits, scan.tail) == (1, Tail.INCOMPLETE)


def test_the_next_good_batch_after_damage_is_found() -> None:
    first, second, third = (write_batch(number, [entry(0)]) for number in range(3))
    damaged = bytearray(first + second + third)
    damaged[len(first) + 30] ^= 1
    assert find_commit(FORMAT, memoryview(damaged), 0, len(first)) == len(first + second)


def test_times_of_a_batch_bound_those_of_its_records() -> None:
    entries = [(0, 0, None, b"a", []), (1, -7_000, None, b"b", []), (2, 9_000, None, b"c", [])]
    data = log_of(write_batch(0, entries))
    scan, columns = FORMAT.scan_columns(NAME, data, 0, Expectation())
    assert columns.timestamps is not None
    assert scan.lowest is not None
    assert scan.lowest <= columns.timestamps.min()
    assert scan.highest == columns.timestamps.max()
    assert shown_lowest(scan.lowest) is None
    one = FORMAT.scan(NAME, log_of(write_batch(0, entries[:1])), 0, Expectation())
    assert shown_lowest(one.lowest) == one.highest == 1_700_000_000_000_000
    appended = FORMAT.scan(NAME, log_of(write_batch(0, entries, attributes=8)), 0, Expectation())
    assert shown_lowest(appended.lowest) == appended.highest


def test_only_files_of_the_partition_are_side_files_or_known() -> None:
    recorded = recording("retained")
    assert FORMAT.side_files(list(recorded.files)) == ["leader-epoch-checkpoint", "partition.metadata"]
    rest = [name for name in recorded.files if FORMAT.segment_order(name) is None]
    assert [name for name in rest if not FORMAT.ignores(name)] == ["leader-epoch-checkpoint", "partition.metadata"]
    snapshots = ["00000000000000000007-0000000001.checkpoint", "00000000000000000000-0000000000.checkpoint"]
    assert FORMAT.side_files([*snapshots, "quorum-state"]) == [snapshots[0], "quorum-state"]


@pytest.mark.parametrize(
    ("name", "is_log"),
    [
        ("orders-0", True),
        ("my-topic.v2-12", True),
        ("__cluster_metadata-0", True),
        ("orders-0.5f1c-delete", False),
        ("orders-0.5f1c-future", False),
        ("orders-0.5f1c-stray", False),
        ("orders", False),
    ],
)
def test_folders_of_partitions_are_recognised(name: str, is_log: bool) -> None:
    assert FORMAT.is_log_folder(name) is is_log


def test_the_watermark_is_the_partitions_high_watermark() -> None:
    assert FORMAT.watermark_file("/var/kafka/a-b-1") == "/var/kafka/replication-offset-checkpoint"
    content = b"0\n3\na-b 1 17\na 1 5\nother 0 9\n"
    assert [FORMAT.read_watermark(f"/var/kafka/{name}", content) for name in ("a-b-1", "a-1", "new-0")] == [17, 5, 0]
    assert FORMAT.read_watermark("/var/kafka/a-1", None) == 0
    assert FORMAT.read_watermark("/var/kafka/__cluster_metadata-0", content) is None


@pytest.mark.parametrize("content", [b"", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff\n"])
def test_a_checkpoint_that_is_not_whole_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        FORMAT.read_watermark("/var/kafka/a-0", content)


def test_a_gap_of_a_log_segments_size_is_not_a_batch() -> None:
    data = log_of(write_batch(0, [entry(0)]), write_batch(1 << 31, [entry(0)]))
    with pytest.raises(SequenceGapError, match="2147483648"):
        FORMAT.scan(NAME, data, 0, Expectation())


def test_the_header_is_sixty_one_bytes() -> None:
    assert HEADER.size == 61
    vector = (
        "0000000000000000 0000003a 00000000 02 e99b8dd8 0000 00000000 0000018bcfe56800 0000018bcfe56800 "
        "ffffffffffffffff ffff ffffffff 00000001 10 00 00 00 02 6b 02 76 00"
    )
    ((record),) = FORMAT.decode(NAME, memoryview(bytes.fromhex(vector)), 0, Expectation()).records()
    assert (record.sequence, record.key, record.value) == (0, b"k", b"v")
