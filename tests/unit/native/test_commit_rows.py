"""Commits taken in one pass are those that NumPy finds and accepts, with the same records, and no others."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptCommitError, LitelogError, SequenceGapError
from litelog.formats import MAX_COMMIT_BYTES, Expectation
from litelog.formats.litelog import LitelogFormat, SegmentHeader, encode_commit, segment_name
from litelog.formats.litelog.commit_columns import Bodies
from litelog.formats.litelog.commit_walk import FEW_BYTES, walk
from litelog.formats.litelog.encoding import CHECKSUM_BYTES, FRAME_BYTES, HEADER
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.native.commit_rows import TakenCommits, check_bodies, check_commits, find_commits, take_commits
from litelog.native.library import has_fast_checksums, load, without_library
from tests.sampling import examples

if TYPE_CHECKING:
    from litelog.formats.columns import Columns

    Batch = tuple[int | list[int], list[bytes], list[bytes | None] | None]

pytestmark = pytest.mark.skipif(
    load() is None or not has_fast_checksums(), reason="the compiled library is not built, or computes no checksums"
)

FIRST, EPOCH = 7, 3
stamps = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Times, values and keys of one commit."""
    values = draw(st.lists(st.binary(max_size=30), min_size=1, max_size=12))
    count = len(values)
    keys = draw(st.none() | st.lists(st.none() | st.binary(max_size=9), min_size=count, max_size=count))
    return draw(stamps | st.lists(stamps, min_size=count, max_size=count)), values, keys


def encode(log: list[Batch]) -> bytes:
    data, sequence = b"", FIRST
    for number, (times, values, keys) in enumerate(log):
        data += encode_commit(sequence, EPOCH + number // 2, times, values, keys)
        sequence += len(values)
    return data


def lists_of(columns: Columns) -> list[object]:
    found = (columns.sequences, columns.timestamps, columns.value_starts, columns.value_lengths, columns.runs)
    keys = (columns.key_starts, columns.key_lengths)
    return [None if each is None else each.tolist() for each in (*found, *keys)]


def find_slowly(data: bytes, start: int, sequence: int | None, epoch: int) -> list[int]:
    """The bounds of the commits at the front that NumPy accepts, one by one."""
    bounds, expect = [start], Expectation(sequence, epoch)
    while len(data) - bounds[-1] >= HEADER.size:
        position = bounds[-1]
        total = HEADER.unpack_from(data, position)[3] + FRAME_BYTES
        piece = memoryview(data)[position : position + total]
        try:
            found = walk("log", piece, 1, 0, expect)
            if found.positions != [0]:
                break
            Bodies.check("log", piece, 1, [0])
        except (CorruptCommitError, SequenceGapError):
            break
        expect = Expectation(found.next, found.epoch)
        bounds.append(position + total)
    return bounds


def check(data: bytes, start: int = 0, sequence: int | None = FIRST, epoch: int = EPOCH) -> int:
    """Compare with the slow walk. Returns the number of commits."""
    taken = take_commits(memoryview(data), start, sequence, epoch, MAX_COMMIT_BYTES)
    checked = check_commits(memoryview(data), start, sequence, epoch, MAX_COMMIT_BYTES)
    assert (checked is None) == (taken is None)
    if checked is not None and taken is not None:
        run = taken.run
        bounds = (len(run.positions), run.positions[-1], run.end, taken.bodies.columns.shape[1])
        assert (checked.commits, checked.last, checked.end, checked.records) == bounds
        assert (checked.next, checked.epoch, (checked.lowest, checked.highest)) == (run.next, run.epoch, run.times)
        assert checked.crc == crc32c(data[: run.end])
    assert find_commits(memoryview(data), start, sequence, epoch, MAX_COMMIT_BYTES) == (taken and taken.run)
    with without_library():
        bounds = find_slowly(data, start, sequence, epoch)
        if len(bounds) == 1:
            assert taken is None
            return 0
        bodies = Bodies.check("log", memoryview(data), 0, bounds[:-1])
        first, _, count, *_ = HEADER.unpack_from(data, bounds[-2])
        newest = HEADER.unpack_from(data, bounds[-2])[1]
        begin = HEADER.unpack_from(data, start)[0]
        assert taken is not None
        assert (taken.run.positions, taken.run.end) == (bounds[:-1], bounds[-1])
        assert (taken.run.next, taken.run.epoch) == (first + count, newest)
        assert (taken.bodies.lowest, taken.bodies.highest) == taken.run.times == bodies.time_range()
        assert as_lists(taken) == lists_of(bodies.columns(begin))
    records = taken.run.next - begin
    assert check_bodies(memoryview(data), taken.run.positions, records) == taken.run.times
    assert check_bodies(memoryview(data), taken.run.positions, records + 1) is None
    return len(taken.run.positions)


def as_lists(taken: TakenCommits) -> list[object]:
    sequences, times, starts, lengths, *keys = taken.bodies.columns.tolist()
    return [sequences, times, starts, lengths, taken.bodies.firsts.tolist(), *(keys or (None, None))]


def checksummed(data: bytearray, position: int) -> None:
    """Make the checksum of the commit at ``position`` right."""
    end = position + HEADER.unpack_from(data, position)[3] + FRAME_BYTES - CHECKSUM_BYTES
    if position <= end <= len(data) - CHECKSUM_BYTES:
        struct.pack_into("<I", data, end, crc32c(memoryview(data)[position:end]))


@pytest.mark.slow
@given(st.lists(batches(), max_size=5), st.integers(0, 2), st.integers(0, 1 << 32), st.booleans())
@settings(max_examples=examples(600))
def test_commits_are_those_of_numpy(log: list[Batch], words: int, seed: int, damages: bool) -> None:
    chance, data = random.Random(seed), bytearray(8 * words) + encode(log)
    if damages and log:
        position = 8 * words
        for batch in log[: chance.randrange(len(log))]:
            position += len(encode([batch]))
        for _ in range(chance.randrange(3)):
            data[chance.randrange(position, len(data))] ^= 1 << chance.randrange(8)
        if chance.randrange(2):
            checksummed(data, position)
        del data[chance.choice([len(data), chance.randrange(len(data))]) :]
    found = check(bytes(data), 8 * words) if len(data) >= 8 * words else 0
    if not damages:
        assert found == len(log)
        assert check(bytes(data), 8 * words, None, 0) == len(log)


@pytest.mark.slow
@pytest.mark.parametrize("repairs", [False, True])
def test_each_flipped_bit_means_what_it_means_to_numpy(repairs: bool) -> None:
    log: list[Batch] = [
        (5, [b"value", b"", b"v" * 9], None),
        ([6, -9, 1 << 40], [b"", b"a", b"bc"], [None, b"k", b""]),
        (9, [b"last"], [b"key"]),
    ]
    data, begins = encode(log), [0]
    begins += find_slowly(data, 0, FIRST, EPOCH)[1:-1]
    assert check(data) == len(log)
    fewer = 0
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        if repairs:
            checksummed(damaged, max(begin for begin in begins if begin <= bit // 8))
        fewer += check(bytes(damaged)) < len(log)
    assert (fewer == 8 * len(data)) is not repairs


@pytest.mark.slow
def test_a_log_cut_at_any_byte_gives_its_whole_commits() -> None:
    data = encode([(number, [b"v" * number, b""], [b"k", None]) for number in range(1, 6)])
    assert {check(data[:size]) for size in range(len(data) + 1)} == set(range(6))


@pytest.mark.parametrize("length", [0, 21, 22, 0x7FFF_FFFF, 0xFFFF_FFFF, MAX_COMMIT_BYTES])
def test_a_length_that_cannot_be_ends_the_run(length: int) -> None:
    data = bytearray(encode([(1, [b"one"], None), (2, [b"two"], None)]))
    second = len(data) // 2
    struct.pack_into("<I", data, second + 18, length)
    checksummed(data, second)
    assert check(bytes(data)) == 1


@pytest.mark.parametrize("count", [0, 2, 0xFFFF])
def test_a_count_of_records_that_cannot_be_ends_the_run(count: int) -> None:
    data = bytearray(encode([(1, [b"one"], None)]))
    struct.pack_into("<H", data, 16, count)
    checksummed(data, 0)
    assert check(bytes(data)) == 0


def test_sequences_and_epochs_end_where_those_of_numpy_do() -> None:
    assert check(bytes(encode_commit(MAX_SEQUENCE - 1, EPOCH, 1, [b"v"])), 0, None) == 1
    beyond = encode_commit(MAX_SEQUENCE - 1, EPOCH, 1, [b"v"])
    for sequence in (MAX_SEQUENCE, MAX_SEQUENCE + 1, (1 << 64) - 1):
        struct.pack_into("<Q", beyond, 0, sequence)
        checksummed(beyond, 0)
        assert check(bytes(beyond), 0, None) == 0
    newest = bytes(encode_commit(FIRST, (1 << 64) - 1, 1, [b"v"]))
    assert check(newest) == check(newest, 0, FIRST, (1 << 64) - 1) == 1
    assert check(bytes(encode_commit(FIRST, 1 << 63, 1, [b"v"])), 0, FIRST, (1 << 63) + 1) == 0
    assert check(encode([(1, [b"v"], None)]), 0, FIRST + 1) == 0
    assert check(encode([(1, [b"v"], None)]), 0, FIRST, EPOCH + 1) == 0


def test_a_commit_larger_than_allowed_is_left_to_python() -> None:
    data = memoryview(encode([(1, [b"v" * 100], None)]))
    assert take_commits(data, 0, FIRST, EPOCH, len(data)) is not None
    assert take_commits(data, 0, FIRST, EPOCH, len(data) - 8) is None


@pytest.mark.parametrize("offset", [0, 64])
def test_whole_commits_are_scanned_by_their_checksums_alone(offset: int) -> None:
    data = SegmentHeader(UUID(int=1), 0, 0).encode() + b"".join(
        encode_commit(2 * number, 1, number, [b"v" * FEW_BYTES, b"w"]) for number in range(3)
    )
    piece, name, expect = memoryview(data)[offset:], segment_name(0), Expectation(0)
    scan = LitelogFormat().scan(name, piece, offset, expect)
    crc = crc32c(piece)
    assert LitelogFormat().scan_whole(name, piece, offset, expect, crc) == scan
    assert LitelogFormat().scan_whole(name, piece, offset, expect, crc ^ 1) is None
    assert LitelogFormat().scan_whole(name, piece, offset, Expectation(1), crc) is None
    assert LitelogFormat().scan_whole(name, piece[:-8], offset, expect, crc32c(piece[:-8])) is None
    with without_library():
        assert LitelogFormat().scan_whole(name, piece, offset, expect, crc) is None


@pytest.mark.parametrize("size", [0, 40, 2048, 1 << 17, 1 << 19, 17 << 20])
def test_the_checksum_of_a_run_follows_from_those_of_commits_of_any_size(size: int) -> None:
    data = bytes(24) + encode([(1, [bytes(size), b"a"], None), (2, [b"b" * (size // 3)], [b"key"])])
    assert check(data, 24) == 2


@pytest.mark.slow
@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(200))
def test_the_format_reads_and_refuses_the_same_with_the_library_and_without(seed: int) -> None:
    chance, form = random.Random(seed), LitelogFormat()
    log: list[Batch] = []
    size = 0
    while size < 2 * FEW_BYTES:
        count = chance.choice([1, 3, 40])
        keys = [chance.choice([None, b"", b"key"]) for _ in range(count)] if chance.randrange(2) else None
        times = len(log) if chance.randrange(2) else [len(log)] * count
        log.append((times, [bytes(chance.randrange(99)) for _ in range(count)], keys))
        size += len(encode(log[-1:]))
    data = bytearray(SegmentHeader(UUID(int=1), FIRST, EPOCH).encode()) + encode(log)
    for _ in range(chance.randrange(3)):
        data[chance.randrange(64, len(data))] ^= 1 << chance.randrange(8)
    if chance.randrange(2):
        checksummed(data, 64)
    if chance.randrange(2):
        del data[chance.randrange(len(data)) :]

    def outcome() -> object:
        try:
            scan, columns = form.scan_columns(segment_name(FIRST), memoryview(data), 0, Expectation())
            decoded = form.decode(segment_name(FIRST), memoryview(data), 0, Expectation())
            assert lists_of(decoded) == lists_of(columns)
            assert form.scan(segment_name(FIRST), memoryview(data), 0, Expectation()) == scan
        except LitelogError as error:
            return str(error)
        return scan, lists_of(columns)

    found = outcome()
    with without_library():
        assert outcome() == found
