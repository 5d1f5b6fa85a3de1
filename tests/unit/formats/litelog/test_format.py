"""The format ``litelog``: records are read as they were written, and damaged bytes never give other records."""

from __future__ import annotations

import struct
import tracemalloc
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptCommitError, SequenceGapError, WrongFormatError
from litelog.formats import MAX_COMMIT_BYTES, Expectation, LogFormat, Tail
from litelog.formats.columns import Record
from litelog.formats.conformance import LogFormatConformance
from litelog.formats.litelog import (
    SEGMENT_HEADER_BYTES,
    LitelogFormat,
    SegmentHeader,
    commit_bytes,
    encode_columns,
    encode_commit,
    segment_name,
)
from litelog.formats.litelog.segment_header import MAGIC
from tests.builders.child import in_child
from tests.sampling import examples

FORMAT: LogFormat = LitelogFormat()
LOG_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
NAME = segment_name(0)
BEGINNING = Expectation()

stamps = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int | None, bytes | None, bytes]]:
    """Records of one commit: (timestamp or None for the commit's, key, value)."""
    keyed, stamped = draw(st.booleans()), draw(st.booleans())
    key = st.none() | st.binary(max_size=12) if keyed else st.none()
    stamp = stamps if stamped else st.none()
    return draw(st.lists(st.tuples(stamp, key, st.binary(max_size=30)), min_size=1, max_size=40))


logs = st.lists(batches(), max_size=6)


def encode_log(log: list[list[tuple[int | None, bytes | None, bytes]]], first: int = 0) -> tuple[bytes, list[int]]:
    """A log segment, and the offsets at which its header and each of its commits end."""
    data = bytearray(SegmentHeader(LOG_ID, first, 7).encode())
    ends = [len(data)]
    for number, batch in enumerate(log):
        times = [stamp for stamp, _, _ in batch if stamp is not None]
        timestamps = times if len(times) == len(batch) else 1000 + number
        data += encode_commit(first, number, timestamps, [value for *_, value in batch], [key for _, key, _ in batch])
        first += len(batch)
        ends.append(len(data))
    return bytes(data), ends


def decode_slowly(data: bytes) -> list[Record]:
    """The records of a whole log segment, from the format's description alone."""
    (sequence,) = struct.unpack_from("<Q", data, 32)
    at, records = 64, []
    while at < len(data):
        first, _epoch, count, length = struct.unpack_from("<QQHI", data, at)
        assert first == sequence
        body = data[at + 22 : at + 22 + length]
        assert struct.unpack_from("<I", data, at + 22 + length)[0] == crc32c(data[at : at + 22 + length])
        flags, place = body[1], 18
        times = [struct.unpack_from("<q", body, 10)[0]] * count
        if flags & 2:
            times = [struct.unpack_from("<q", body, place + 8 * i)[0] for i in range(count)]
            place += 8 * count
        lengths = [struct.unpack_from("<I", body, place + 4 * i)[0] for i in range(count)]
        place += 4 * count
        key_lengths = [-1] * count
        if flags & 1:
            key_lengths = [struct.unpack_from("<i", body, place + 4 * i)[0] for i in range(count)]
            place += 4 * count
        keys: list[bytes | None] = []
        for size in key_lengths:
            keys.append(None if size < 0 else body[place : place + size])
            place += max(size, 0)
        for index, size in enumerate(lengths):
            records.append(Record(sequence + index, times[index], keys[index], body[place : place + size]))
            place += size
        sequence += count
        at += 26 + length
    return records


def decode(data: bytes, offset: int = 0, expect: Expectation = BEGINNING, name: str = NAME) -> list[Record]:
    return list(FORMAT.decode(name, memoryview(data), offset, expect).records())


def seal(commit: bytearray) -> bytes:
    """``commit`` after a change, with the checksum that fits its bytes."""
    commit[-4:] = crc32c(bytes(commit[:-4])).to_bytes(4, "little")
    return bytes(commit)


def small_log() -> tuple[bytes, list[int]]:
    return encode_log(
        [[(None, None, b"one"), (None, None, b"two")], [(5, b"k", b"three"), (6, None, b"")], [(None, None, b"4" * 9)]]
    )


@pytest.mark.slow
class TestConformance(LogFormatConformance):
    other_names = ("12.log", segment_name(0)[:-4] + ".index", f"{1 << 63:020d}.log", "\u0661" * 20 + ".log")

    @pytest.fixture
    def log_format(self) -> LogFormat:
        return LitelogFormat()

    @pytest.fixture
    def segments(self) -> list[tuple[str, bytes]]:
        more = SegmentHeader(LOG_ID, 5, 9).encode() + encode_commit(5, 2, 9, [b"six"])
        more += encode_commit(6, 2, [7, -1], [b"", b"7"], [b"", None]) + encode_commit(8, 4, 9, [b"8" * 20], [b"k"])
        return [(NAME, small_log()[0]), (segment_name(5), bytes(more))]

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        return decode_slowly(data)


def test_zeros_have_the_checksum_that_the_description_says_so_they_never_pass() -> None:
    assert crc32c(bytes(22)) == 0x32707625


def test_header_is_laid_out_as_described() -> None:
    data = SegmentHeader(LOG_ID, 3, -9).encode()
    expected = b"litelog\n" + struct.pack("<HHI", 1, 0, 64) + LOG_ID.bytes + struct.pack("<Qq", 3, -9) + bytes(12)
    assert data == expected + struct.pack("<I", crc32c(expected))
    assert SegmentHeader.decode("x", data) == SegmentHeader(LOG_ID, 3, -9)


def test_commit_is_laid_out_as_described() -> None:
    body = struct.pack("<BBQq2I", 1, 0, 5, 77, 2, 3) + b"abcde"
    padding = -(22 + len(body) + 4) % 8
    head = struct.pack("<QQHI", 9, 4, 2, len(body) + padding) + body + bytes(padding)
    assert encode_commit(9, 4, 77, [b"ab", b"cde"]) == head + struct.pack("<I", crc32c(head))


@pytest.mark.slow
@given(logs, st.integers(0, 1 << 62))
@settings(max_examples=examples(150))
def test_a_log_decodes_as_a_slow_decoder_reads_it(
    log: list[list[tuple[int | None, bytes | None, bytes]]], first: int
) -> None:
    data, ends = encode_log(log, first)
    name = segment_name(first)
    records = decode(data, name=name)
    assert records == decode_slowly(data)
    assert [(record.key, record.value) for record in records] == [(k, v) for batch in log for _, k, v in batch]
    scan = FORMAT.scan(name, memoryview(data), 0, BEGINNING)
    assert (scan.tail, scan.commits, scan.records, scan.next) == (
        Tail.NOTHING,
        len(log),
        len(records),
        first + len(records),
    )
    commits = FORMAT.commits(name, memoryview(data), 0, BEGINNING)
    assert [commit.end for commit in commits] == ends[1:]
    if log:
        times = [record.timestamp for record in records]
        assert (scan.lowest, scan.highest) == (min(times), max(times))
        assert scan.end == ends[-1]
        assert scan.last_commit == commits[-1].start
        for commit in commits:
            held = [r.timestamp for r in records if commit.first <= r.sequence < commit.next]
            assert (commit.lowest, commit.highest) == (min(held), max(held))


@pytest.mark.slow
@given(batches())
@settings(max_examples=examples(60))
def test_columns_and_lists_encode_the_same(batch: list[tuple[int | None, bytes | None, bytes]]) -> None:
    keys, values = [key for _, key, _ in batch], [value for *_, value in batch]
    lengths = np.array(list(map(len, values)), np.uint32)
    key_lengths = np.array([-1 if key is None else len(key) for key in keys], np.int32)
    keyed = any(key is not None for key in keys)
    expected = encode_commit(3, 1, 5, values, keys)
    data, key_data = b"".join(values), b"".join(key or b"" for key in keys)
    assert encode_columns(3, 1, 5, lengths, data, key_lengths if keyed else None, key_data) == expected
    assert len(expected) == commit_bytes(len(batch), len(data) + len(key_data), keyed=keyed)


def test_values_that_no_commit_can_hold_are_refused() -> None:
    for call in (
        lambda: encode_commit(0, 0, 0, []),
        lambda: encode_commit(0, 0, 0, [b""] * 65536),
        lambda: encode_commit(0, 0, 0, [bytes(MAX_COMMIT_BYTES)]),
        lambda: encode_commit(-1, 0, 0, [b""]),
        lambda: encode_commit((1 << 63) - 1, 0, 0, [b""]),
        lambda: encode_commit(0, 0, [1, 2], [b""]),
        lambda: encode_commit(0, 0, 0, [b""], []),
        lambda: encode_commit(0, 0, 1 << 63, [b""]),
        lambda: encode_commit(0, 0, [0, -(1 << 63) - 1], [b"", b""]),
        lambda: encode_columns(0, 0, 0, np.array([2], np.uint32), b"abc"),
        lambda: encode_columns(0, 0, 0, np.array([3], np.uint32), b"abc", np.array([-2], np.int32), b""),
        lambda: encode_columns(0, 0, 0, np.array([3], np.uint32), b"abc", None, b"k"),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()


@pytest.mark.slow
def test_every_prefix_with_zeros_after_it_decodes_to_the_commits_that_are_whole() -> None:
    data, _ = small_log()
    records = decode_slowly(data)
    for cut in range(len(data) + 1):
        torn = data[:cut] + bytes(4096 - cut)
        scan = FORMAT.scan(NAME, memoryview(torn), 0, BEGINNING)
        assert scan.tail in {Tail.ZEROS, Tail.DAMAGED}
        assert decode(torn) == records[: scan.records]


def test_a_commit_wants_exactly_its_bytes() -> None:
    data, ends = small_log()
    scan = FORMAT.scan(NAME, memoryview(data[: ends[1] + 30]), 0, BEGINNING)
    assert (scan.end, scan.wanted) == (ends[1], ends[2] - ends[1])


def test_nothing_and_zeros_are_not_yet_a_header() -> None:
    for data, tail in ((b"", Tail.NOTHING), (bytes(10), Tail.ZEROS), (bytes(64), Tail.ZEROS), (bytes(200), Tail.ZEROS)):
        scan = FORMAT.scan(NAME, memoryview(data), 0, BEGINNING)
        assert (scan.tail, scan.end, scan.commits) == (tail, 0, 0)
        assert FORMAT.log_id(NAME, memoryview(data)) is None


def test_zeros_after_the_last_commit_are_preallocation() -> None:
    data, ends = small_log()
    scan = FORMAT.scan(NAME, memoryview(data + bytes(3 << 20)), 0, BEGINNING)
    assert (scan.tail, scan.end, scan.damage) == (Tail.ZEROS, ends[-1], None)
    scan = FORMAT.scan(NAME, memoryview(data + bytes(3 << 20) + b"x"), 0, BEGINNING)
    assert scan.tail is Tail.DAMAGED


def test_a_damaged_commit_with_a_good_one_after_it_is_named() -> None:
    data, ends = small_log()
    flipped = bytearray(data)
    flipped[ends[1] + 45] ^= 4
    with pytest.raises(CorruptCommitError) as raised:
        FORMAT.scan("/logs/" + NAME, memoryview(flipped), 0, BEGINNING)
    assert (raised.value.path, raised.value.offset, raised.value.what) == ("/logs/" + NAME, ends[1], "checksum")


def test_an_overlong_length_with_the_next_commit_after_it_is_corruption() -> None:
    data, ends = small_log()
    for length in (1 << 16, MAX_COMMIT_BYTES - 26, MAX_COMMIT_BYTES * 2, 0xFFFF_FFFF):
        long = bytearray(data)
        struct.pack_into("<I", long, ends[0] + 18, length)
        with pytest.raises(CorruptCommitError, match=r"length|padding"):
            FORMAT.scan(NAME, memoryview(long), 0, BEGINNING)


def test_a_length_that_is_too_long_is_corruption_if_a_commit_follows() -> None:
    data, ends = encode_log([[(None, b"key", b"value")], [(None, None, b"x")]])
    long = bytearray(data)
    struct.pack_into("<I", long, ends[0] + 18, 8192 - 26)
    with pytest.raises(CorruptCommitError, match="length"):
        FORMAT.scan(NAME, memoryview(long), 0, BEGINNING)
    alone = FORMAT.scan(NAME, memoryview(long[: ends[1]]), 0, BEGINNING)
    assert (alone.tail, alone.wanted) == (Tail.INCOMPLETE, ends[0] + 8192)


def test_a_hole_of_zeros_with_commits_after_it_is_corruption() -> None:
    data, ends = small_log()
    hole = data[: ends[0]] + bytes(ends[1] - ends[0]) + data[ends[1] :]
    with pytest.raises(CorruptCommitError):
        FORMAT.scan(NAME, memoryview(hole), 0, BEGINNING)


def test_garbage_after_the_last_commit_is_not_yet() -> None:
    data, ends = small_log()
    scan = FORMAT.scan(NAME, memoryview(data + b"\xa5" * 500), 0, BEGINNING)
    assert (scan.end, scan.tail) == (ends[-1], Tail.DAMAGED)
    assert scan.damage is not None
    assert scan.damage.offset == ends[-1]


def test_a_missing_commit_is_a_gap() -> None:
    data, ends = small_log()
    with pytest.raises(SequenceGapError) as raised:
        FORMAT.scan(NAME, memoryview(data[: ends[1]] + data[ends[2] :]), 0, BEGINNING)
    assert (raised.value.offset, raised.value.expected, raised.value.actual) == (ends[1], 2, 4)


def test_a_repeated_commit_is_a_gap() -> None:
    data, ends = small_log()
    with pytest.raises(SequenceGapError):
        FORMAT.scan(NAME, memoryview(data + data[ends[-2] :]), 0, BEGINNING)


def test_a_log_segment_that_does_not_continue_is_a_gap() -> None:
    data, _ = small_log()
    with pytest.raises(SequenceGapError):
        FORMAT.scan(NAME, memoryview(data), 0, Expectation(5))


def test_an_epoch_lower_than_the_last_is_refused() -> None:
    data, ends = small_log()
    with pytest.raises(CorruptCommitError, match="epoch"):
        FORMAT.scan(NAME, memoryview(data[ends[1] :]), ends[1], Expectation(2, 9))


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        (22, b"\x02", "layout"),
        (23, b"\x04", "flags"),
        (40, b"\x04", "sum of value lengths"),
        (24, b"\x05", "padding"),
        (-5, b"\x01", "padding"),
    ],
)
def test_a_body_that_does_not_add_up_is_corrupt_though_its_checksum_holds(place: int, value: bytes, what: str) -> None:
    commit = encode_commit(0, 0, 0, [b"abc", b"de", b"f" * 8])
    place %= len(commit)
    commit[place : place + 1] = value
    data = SegmentHeader(LOG_ID, 0, 0).encode() + seal(commit)
    for call in (FORMAT.scan, FORMAT.decode, FORMAT.commits):
        with pytest.raises(CorruptCommitError, match=what):
            call(NAME, memoryview(data), 0, BEGINNING)


def test_a_commit_that_is_not_a_multiple_of_8_is_corrupt_though_its_checksum_holds() -> None:
    commit = encode_commit(0, 0, 0, [b"abcd"])  # 40 + 4 + 4 + 4 and four zeros
    short = commit[:44] + commit[44:48] + bytes(4)
    struct.pack_into("<I", short, 18, len(short) - 26)
    assert len(short) % 8
    with pytest.raises(CorruptCommitError, match="length"):
        decode(SegmentHeader(LOG_ID, 0, 0).encode() + seal(short))


@pytest.mark.slow
def test_a_commit_above_the_limit_is_never_taken() -> None:
    def scan() -> None:
        size = MAX_COMMIT_BYTES + 8
        commit = bytearray(size)
        struct.pack_into("<QQHIBBQqI", commit, 0, 0, 0, 1, size - 26, 1, 0, size - 48, 0, size - 48)
        found = FORMAT.scan(NAME, memoryview(SegmentHeader(LOG_ID, 0, 0).encode() + seal(commit)), 0, BEGINNING)
        assert (found.commits, found.tail) == (0, Tail.DAMAGED)

    in_child(scan)


def test_sequences_that_columns_cannot_hold_are_corrupt() -> None:
    first = (1 << 63) - 1
    commit = encode_commit(0, 0, 0, [b"a", b"b"])
    struct.pack_into("<Q", commit, 0, first)
    with pytest.raises(CorruptCommitError, match="sequence"):
        decode(SegmentHeader(LOG_ID, first, 0).encode() + seal(commit), name=segment_name(first))


def test_key_lengths_and_the_first_timestamp_are_checked() -> None:
    for place, value, what in ((40 + 16 + 8, -2, "key length"), (40 + 16 + 8, 90, "padding"), (32, 99, "timestamp")):
        commit = encode_commit(0, 0, [1, 2], [b"abc", b"de"], [b"k", None])
        struct.pack_into("<i", commit, place, value)
        data = SegmentHeader(LOG_ID, 0, 0).encode() + seal(commit)
        with pytest.raises(CorruptCommitError, match=what):
            decode(data)


def test_payloads_that_hold_commits_of_another_log_are_payload() -> None:
    other, _ = encode_log([[(None, None, b"x")]] * 5, first=5)
    value = other[SEGMENT_HEADER_BYTES:]
    head = SegmentHeader(LOG_ID, 0, 0).encode()
    # 40 + 3 * 4 + 4 bytes precede the payload's commits, so they are aligned as real ones are.
    commit = bytes(encode_commit(0, 0, 0, [b"", b"pad!" + value, b"tail"]))
    assert [record.value for record in decode(head + commit)] == [b"", b"pad!" + value, b"tail"]
    for cut in range(22, len(commit)):
        scan = FORMAT.scan(NAME, memoryview(head + commit[:cut]), 0, BEGINNING)
        assert (scan.tail, scan.wanted) == (Tail.INCOMPLETE, SEGMENT_HEADER_BYTES + len(commit))


def test_a_damaged_header_is_not_yet_alone_and_corrupt_with_commits_after_it() -> None:
    data, ends = small_log()
    for place in range(8, 64):
        flipped = bytearray(data)
        flipped[place] ^= 1
        with pytest.raises(CorruptCommitError) as raised:
            FORMAT.scan(NAME, memoryview(flipped), 0, BEGINNING)
        assert raised.value.offset == 0
        assert FORMAT.scan(NAME, memoryview(flipped[: ends[0]]), 0, BEGINNING).tail is Tail.DAMAGED


def test_another_formats_log_segment_is_refused() -> None:
    for head in (bytes.fromhex("0000000000000000 0000003a 00000000 02 e99b8dd8"), b"2026-11-21 hello\n" * 9):
        if head[0]:
            with pytest.raises(WrongFormatError):
                FORMAT.scan(NAME, memoryview(head), 0, BEGINNING)
        else:
            assert FORMAT.scan(NAME, memoryview(head), 0, BEGINNING).commits == 0
    with pytest.raises(WrongFormatError):
        FORMAT.scan("x.log", memoryview(small_log()[0]), 0, BEGINNING)


KAFKA_BATCH = bytes.fromhex(
    "0000000000000000 0000003a 00000000 02 e99b8dd8 0000 00000000 0000019aa8b3c4d5 0000019aa8b3c4d5"
    "ffffffffffffffff ffff ffffffff 00000001 10 00 00 00 01 04 6869 00 00"
)


@pytest.mark.parametrize("behind", [0, 1, 100_000])
def test_a_kafka_segment_that_begins_with_zeros_is_refused(behind: int) -> None:
    data = KAFKA_BATCH + bytes(behind)
    assert len(KAFKA_BATCH) >= SEGMENT_HEADER_BYTES
    with pytest.raises(WrongFormatError, match="it starts with"):
        FORMAT.scan(NAME, memoryview(data), 0, BEGINNING)
    with pytest.raises(WrongFormatError, match="it starts with"):
        FORMAT.log_id(NAME, memoryview(data))


def test_zeros_where_our_magic_was_are_damage() -> None:
    data, _ = small_log()
    for zeros in (len(MAGIC), SEGMENT_HEADER_BYTES):
        damaged = memoryview(bytes(zeros) + bytes(data[zeros:]))
        with pytest.raises(CorruptCommitError):
            FORMAT.scan(NAME, damaged, 0, BEGINNING)


def test_a_header_of_another_version_is_refused() -> None:
    header = bytearray(SegmentHeader(LOG_ID, 0, 0).encode())
    header[8] = 2
    with pytest.raises(WrongFormatError, match="version 2"):
        FORMAT.scan(NAME, memoryview(seal(header)), 0, BEGINNING)


def test_a_header_that_says_another_sequence_than_the_name_is_corrupt() -> None:
    data, _ = small_log()
    with pytest.raises(CorruptCommitError, match="first sequence"):
        FORMAT.scan(segment_name(7), memoryview(data), 0, BEGINNING)


def test_hostile_headers_do_not_make_us_allocate() -> None:
    head = SegmentHeader(LOG_ID, 0, 0).encode()
    hostile = (
        head + struct.pack("<QQHIBBQq", 0, 0, 65535, MAX_COMMIT_BYTES - 32 - 26 + 32, 1, 0, 1 << 63, 0) + b"\1" * 4096
    )
    tracemalloc.start()
    scan = FORMAT.scan(NAME, memoryview(hostile), 0, BEGINNING)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert scan.commits == 0
    assert peak < 1 << 20


def test_the_log_id_is_in_the_header() -> None:
    assert FORMAT.log_id(NAME, memoryview(small_log()[0])) == LOG_ID


@pytest.mark.slow
def test_a_view_of_wider_items_is_not_a_record() -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        encode_commit(0, 1, 0, [memoryview(b"abcdefgh").cast("Q")])


def test_a_sequence_that_would_pass_the_last_one_is_damage() -> None:
    """Its header is plausible in all else, and states more bytes than there are: the search once overflowed."""
    commit = bytearray(encode_commit(0, 0, 7, [bytes(1000)] * 3))
    commit[:8] = bytes([0xFF] * 8)
    scan = FORMAT.scan(NAME, memoryview(bytes(commit[:200])), 64, BEGINNING)
    assert (scan.end, scan.commits, scan.tail) == (64, 0, Tail.DAMAGED)
