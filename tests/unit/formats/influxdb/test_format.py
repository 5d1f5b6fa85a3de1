"""The format ``influxdb``, over topics that the broker of InfluxDB 0.9 wrote."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptCommitError, SequenceGapError, WrongFormatError
from litelog.formats import MAX_COMMIT_BYTES, Expectation, FinishedTail, LogFormat, Tail
from litelog.formats.capabilities import first_sequence, is_log_folder, removed_by_owner, side_files
from litelog.formats.columns import Record
from litelog.formats.conformance import LogFormatConformance
from litelog.formats.influxdb import InfluxdbFormat
from tests.builders.old_logs import fnv, influx_message
from tests.builders.recorded_logs import recorded_segments, what_was_read
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT: LogFormat = InfluxdbFormat()
BEGINNING = Expectation()


def decode(data: bytes, offset: int = 0, expect: Expectation = BEGINNING, name: str = "6") -> list[Record]:
    return list(FORMAT.decode(name, memoryview(data), offset, expect).records())


def decode_messages(data: bytes) -> list[tuple[int, int, bytes]]:
    """(index, type, data) of each message, from the format's description alone."""
    found, at = [], 0
    while at < len(data):
        checksum, kind, _, index, length = struct.unpack_from(">IHQQI", data, at)
        end = at + 26 + length
        assert fnv(data[at + 4 : end]) == checksum
        found.append((index, kind, data[at + 26 : end]))
        at = end
    return found


@pytest.mark.slow
class TestConformance(LogFormatConformance):
    other_names = ("012", "-1", "+1", "1.5", "tombstone", "meta", "0x6", "6.tmp", "\u0661", f"{1 << 63}")

    @pytest.fixture
    def log_format(self) -> LogFormat:
        return InfluxdbFormat()

    @pytest.fixture
    def segments(self) -> list[tuple[str, bytes]]:
        found = recorded_segments("influxdb", "topic_1", "")
        return sorted(found, key=lambda segment: int(segment[0]))[:3]

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        return [Record(index, None, None, text) for index, kind, text in decode_messages(data) if kind < 0x8000]

    def choose(self, places: Sequence[int]) -> Sequence[int]:
        return sampled(places, 8, f"influxdb {len(places)}")


@pytest.mark.parametrize("scene", ["topic_1", "topic_20", "truncated"])
def test_a_topic_is_read_as_its_broker_read_it(scene: str) -> None:
    records: list[Record] = []
    expect = Expectation()
    segments = [segment for segment in recorded_segments("influxdb", scene, "") if segment[0].isdigit()]
    for name, data in sorted(segments, key=lambda segment: int(segment[0])):
        scan = FORMAT.scan(name, memoryview(data), 0, expect)
        records += decode(data, expect=expect, name=name)
        expect = scan.expectation
    read = what_was_read("influxdb", scene)["messages"]
    assert len(read) > 5
    assert [[r.sequence, r.value.hex()] for r in records] == [[i, d] for i, kind, d in read if kind < 0x8000]
    assert expect.sequence == read[-1][0] + 1


def test_a_message_is_laid_out_as_described() -> None:
    written = influx_message(300, b"ABCD")
    assert written.hex() == "8e086224006400000000000000c8000000000000012c0000000441424344"
    assert decode(written, name="300") == [Record(300, None, None, b"ABCD")]


def test_log_segments_are_names_in_decimal_digits_and_sort_as_numbers() -> None:
    names = ["12", "118332", "6", "xxx", "tombstone"]
    orders = {name: FORMAT.segment_order(name) for name in names}
    assert sorted((name for name in names if orders[name]), key=lambda name: orders[name] or ()) == [
        "6",
        "12",
        "118332",
    ]
    assert [first_sequence(FORMAT, name) for name in names] == [12, 118332, 6, None, None]
    assert side_files(FORMAT, names) == ["tombstone"]


def test_folders_in_decimal_digits_are_topics() -> None:
    assert [name for name in ("1", "312", "raft", "meta", "01", "") if is_log_folder(FORMAT, name)] == ["1", "312"]


def test_messages_of_the_broker_have_a_sequence_and_are_no_records() -> None:
    data = influx_message(6, b"a") + influx_message(7, b"internal", 0x8001) + influx_message(9, b"b")
    assert [record.sequence for record in decode(data)] == [6, 9]
    scan = FORMAT.scan("6", memoryview(data), 0, BEGINNING)
    assert (scan.commits, scan.first, scan.next) == (3, 6, 10)
    only = FORMAT.scan("7", memoryview(influx_message(7, b"internal", 0x8001)), 0, BEGINNING)
    assert (only.commits, only.first, only.next) == (1, 7, 8)
    assert decode(influx_message(7, b"internal", 0x8001), name="7") == []


def test_indexes_may_jump_and_must_rise() -> None:
    data = influx_message(6, b"a") + influx_message(700, b"b") + influx_message(700, b"c")
    with pytest.raises(SequenceGapError) as raised:
        decode(data)
    assert (raised.value.offset, raised.value.expected, raised.value.actual) == (54, 701, 700)
    assert [r.sequence for r in decode(influx_message(700, b"b"), 27, Expectation(7))] == [700]
    with pytest.raises(SequenceGapError):
        decode(influx_message(700, b"b"), 27, Expectation(701))


def test_the_first_message_has_the_index_in_the_name() -> None:
    with pytest.raises(SequenceGapError):
        decode(influx_message(7, b"a"), name="/broker/1/6")
    with pytest.raises(WrongFormatError):
        decode(influx_message(7, b"a"), name="/broker/1/xxx")


def test_a_flipped_byte_in_message_2_of_3_is_no_reason_to_drop_message_3() -> None:
    data = bytearray(influx_message(6, b"one") + influx_message(7, b"two") + influx_message(8, b"three"))
    data[29 + 27] ^= 1
    with pytest.raises(CorruptCommitError) as raised:
        FORMAT.scan("/broker/1/6", memoryview(data), 0, BEGINNING)
    assert (raised.value.path, raised.value.offset, raised.value.what) == ("/broker/1/6", 29, "checksum")


def test_a_torn_message_is_not_yet_and_may_be_written_again() -> None:
    data = influx_message(6, b"one") + influx_message(7, b"two") + influx_message(8, b"three")
    torn = FORMAT.scan("6", memoryview(data[:-5]), 0, BEGINNING)
    assert (torn.commits, torn.tail, torn.wanted) == (2, Tail.INCOMPLETE, 31)
    again = FORMAT.scan("6", memoryview(data[: torn.end] + influx_message(8, b"again")), 0, BEGINNING)
    assert (again.commits, again.tail) == (3, Tail.NOTHING)


@pytest.mark.parametrize("length", [0, 2, 30, 900, MAX_COMMIT_BYTES, 0xFFFF_FFFF])
def test_a_damaged_length_is_corruption_if_a_message_follows(length: int) -> None:
    data = bytearray(influx_message(6, b"one") + influx_message(7, b"two") + influx_message(8, b"three"))
    struct.pack_into(">I", data, 29 + 22, length)
    with pytest.raises(CorruptCommitError) as raised:
        FORMAT.scan("6", memoryview(data), 0, BEGINNING)
    assert raised.value.offset == 29


def test_a_torn_message_that_holds_messages_of_another_topic_is_not_yet() -> None:
    torn = influx_message(6, b"a") + influx_message(7, influx_message(8, b"inner") * 3 + b"rest")[:-2]
    assert FORMAT.scan("6", memoryview(torn), 0, BEGINNING).tail is Tail.INCOMPLETE


def test_the_broker_owns_its_files() -> None:
    assert FORMAT.finished_tail is FinishedTail.ERROR
    assert removed_by_owner(FORMAT)
