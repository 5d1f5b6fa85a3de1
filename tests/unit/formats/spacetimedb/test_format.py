"""The format ``spacetimedb``: commits as SpacetimeDB's own crate wrote and read them, repeated ones, and forks."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest

from litelog.errors import CorruptCommitError, SequenceGapError, WrongFormatError
from litelog.formats import MAX_COMMIT_BYTES, Expectation, FinishedTail, LogFormat, Tail
from litelog.formats.capabilities import find_commit, first_sequence, ignores
from litelog.formats.columns import Record
from litelog.formats.registry import open_format
from litelog.formats.spacetimedb import SpacetimeDBFormat
from tests.builders.child import runs_in_child
from tests.builders.recorded_logs import recorded_segments, what_was_read
from tests.builders.stdb_log import HEADERS, encode_commit, logical_bytes, read_slowly, segment_name

FORMAT: LogFormat = SpacetimeDBFormat()
SCENES = ("version_0", "epochs", "torn", "torn_header", "empty", "compressed")
NAME = segment_name(7)
BEGINNING = Expectation()


def records(data: bytes, expect: Expectation = BEGINNING, name: str = NAME, offset: int = 0) -> list[Record]:
    return list(FORMAT.decode(name, memoryview(data), offset, expect).records())


def log_segment(*commits: bytes, version: int = 1) -> bytes:
    return HEADERS[version] + b"".join(commits)


def test_the_format_is_found_by_its_name() -> None:
    assert isinstance(open_format("spacetimedb"), SpacetimeDBFormat)
    assert FORMAT.finished_tail is FinishedTail.PREFIX
    assert FORMAT.self_numbered


def test_a_commit_is_laid_out_as_the_vector_says() -> None:
    header, commit = "286473295e3201000000", "0700000000000000 0100000000000000 0200 02000000 0102 a48541e4"
    data = bytes.fromhex(header + commit)
    assert data == log_segment(encode_commit(7, b"\1\2", 2, epoch=1))
    scan = FORMAT.scan(NAME, memoryview(data), 0, BEGINNING)
    assert (scan.end, scan.commits, scan.records, scan.first, scan.next, scan.epoch) == (len(data), 1, 1, 7, 9, 0)
    assert (scan.checksum, scan.last_commit, scan.tail) == (0xE44185A4, 10, Tail.NOTHING)
    assert records(data) == [Record(7, None, None, b"\1\2", {"epoch": 1, "transactions": 2})]


@pytest.mark.parametrize("scene", SCENES)
def test_recorded_commits_are_those_that_the_crate_reads(scene: str) -> None:
    expect, found = Expectation(), []
    segments = recorded_segments("spacetimedb", scene)
    for number, (name, stored) in enumerate(segments):
        data = memoryview(logical_bytes(stored))
        if scene == "torn_header" and not number:
            with pytest.raises(CorruptCommitError, match="corrupt commit at offset 150"):
                FORMAT.scan(name, data, 0, expect)
            data = data[:150]  # as the next log segment continues there
        scan = FORMAT.scan(name, data, 0, expect)
        assert (scan.end == len(data)) == (scene != "torn" or number > 0)
        whole = read_slowly(bytes(data[: scan.end]))
        values = [record.value for record in FORMAT.decode(name, data, 0, expect).records()]
        assert values == [commit[3] for commit in whole]
        found += [[first, epoch, count, len(body), checksum] for first, epoch, count, body, checksum in whole]
        expect = scan.expectation
    read = what_was_read("spacetimedb", scene)
    assert (found, expect.sequence) == (read["commits"], read["fold"]["transactions"])


def test_a_log_of_version_0_continues_at_any_commit() -> None:
    ((name, stored), *_) = recorded_segments("spacetimedb", "version_0")
    data, whole = memoryview(stored), records(stored, name=segment_name(0))
    assert [record.sequence for record in whole] == [0, 2, 4]
    for number, commit in enumerate(FORMAT.commits(name, data, 0, BEGINNING)):
        before = Expectation(commit.first)
        assert records(data[commit.start :], before, offset=commit.start) == whole[number:]
        cut = FORMAT.scan(name, data[commit.start : commit.end - 1], commit.start, before)
        assert (cut.end, cut.commits, cut.tail) == (commit.start, 0, Tail.INCOMPLETE)
        flipped = bytearray(data[commit.start :])
        flipped[20] ^= 1
        if number < 2:
            with pytest.raises(CorruptCommitError, match=f"offset {commit.start}"):
                FORMAT.scan(name, memoryview(flipped), commit.start, before)


@pytest.mark.parametrize("version", [0, 1])
def test_a_repeated_commit_is_skipped(version: int) -> None:
    one, two = (encode_commit(7, b"one", 2, version=version), encode_commit(9, b"two", version=version))
    data = log_segment(one, one, one, two, two, version=version)
    scan = FORMAT.scan(NAME, memoryview(data), 0, BEGINNING)
    assert (scan.end, scan.commits, scan.records, scan.first, scan.next) == (len(data), 5, 2, 7, 10)
    numbers = [{"epoch": 0, "transactions": count} for count in (2, 1)]
    assert records(data) == [Record(7, None, None, b"one", numbers[0]), Record(9, None, None, b"two", numbers[1])]
    commits = FORMAT.commits(NAME, memoryview(data), 0, BEGINNING)
    assert [(commit.first, commit.next) for commit in commits] == [(7, 9), (9, 9), (9, 9), (9, 10), (10, 10)]
    assert commits[-1].end == len(data)


@pytest.mark.parametrize("known", [True, False])
def test_a_log_segment_may_begin_with_the_last_commit_of_the_one_before(known: bool) -> None:
    one, two = encode_commit(7, b"one", 2), encode_commit(9, b"two")
    before = FORMAT.scan(NAME, memoryview(log_segment(one)), 0, BEGINNING)
    expect = before.expectation if known else Expectation(9)
    scan = FORMAT.scan(NAME, memoryview(log_segment(one, two)), 0, expect)
    assert (scan.commits, scan.records, scan.first, scan.next) == (2, 1, 9, 10)
    alone = FORMAT.scan(NAME, memoryview(log_segment(one)), 0, expect)
    assert (alone.commits, alone.records, alone.first, alone.next) == (1, 0, 9, 9)
    assert alone.expectation == before.expectation
    assert records(log_segment(one), expect) == []


@pytest.mark.parametrize("forked", [encode_commit(7, b"ONE", 2), encode_commit(7, b"one and more", 3)])
def test_a_fork_names_both_checksums(forked: bytes) -> None:
    one, two = encode_commit(7, b"one", 2), encode_commit(9, b"two")
    checksums = [int.from_bytes(commit[-4:], "little") for commit in (forked, one)]
    message = (
        f"transaction 7 is there twice; the checksum of the second commit is {checksums[0]:08x}, "
        f"expected {checksums[1]:08x}"
    )
    with pytest.raises(CorruptCommitError, match=f"offset {10 + len(one)}: forked log: {message}"):
        FORMAT.scan(NAME, memoryview(log_segment(one, forked, two)), 0, BEGINNING)
    before = FORMAT.scan(NAME, memoryview(log_segment(one)), 0, BEGINNING)
    with pytest.raises(CorruptCommitError, match=f"offset 10: forked log: {message}"):
        FORMAT.scan(NAME, memoryview(log_segment(forked)), 0, before.expectation)


def test_an_older_commit_than_the_last_is_a_fork() -> None:
    commits = [encode_commit(first, b"%d" % first) for first in (7, 8, 9)]
    with pytest.raises(CorruptCommitError, match="transaction 8 is there twice"):
        FORMAT.scan(NAME, memoryview(log_segment(*commits, commits[1])), 0, BEGINNING)
    with pytest.raises(CorruptCommitError, match="expected one that ends before 10"):
        FORMAT.scan(NAME, memoryview(log_segment(*commits)), 0, Expectation(10))


def test_a_gap_is_an_error() -> None:
    data = log_segment(encode_commit(7, b"one"), encode_commit(9, b"two"))
    with pytest.raises(SequenceGapError, match="sequence 9 follows, expected 8"):
        FORMAT.scan(NAME, memoryview(data), 0, BEGINNING)
    with pytest.raises(SequenceGapError, match="sequence 7 follows, expected 5"):
        FORMAT.scan(NAME, memoryview(data), 0, Expectation(5))


def test_the_first_commit_is_the_one_in_the_name() -> None:
    data = log_segment(encode_commit(8, b"one"))
    with pytest.raises(SequenceGapError, match="sequence 8 follows, expected 7"):
        FORMAT.scan(NAME, memoryview(data), 0, BEGINNING)
    with pytest.raises(CorruptCommitError, match="first transaction is 6, expected 7, as in its name"):
        FORMAT.scan(NAME, memoryview(log_segment(encode_commit(6, b"one", 2))), 0, Expectation(8))


def test_an_epoch_that_no_column_holds_is_the_largest_one_that_it_holds() -> None:
    (record,) = records(log_segment(encode_commit(7, b"", epoch=(1 << 64) - 1)))
    assert record.extra == {"epoch": (1 << 63) - 1, "transactions": 1}


def test_an_epoch_may_be_lower_than_the_one_before() -> None:
    commits = [encode_commit(7 + number, b"", epoch=epoch) for number, epoch in enumerate((3, 9, 0))]
    scan = FORMAT.scan(NAME, memoryview(log_segment(*commits)), 0, Expectation(7, 20))
    assert (scan.commits, scan.epoch) == (3, 20)


@pytest.mark.parametrize(
    "head", [b"litelog\n\1\0", b"(ds)^2\2\0\0\0", b"(ds)^2\1\1\0\0", b"(ds)^2\1\0\0\1", b"(dx", b"\x28\xb5\x2f\xfd"]
)
def test_another_header_is_another_format(head: bytes) -> None:
    with pytest.raises(WrongFormatError, match="not a log segment of format spacetimedb"):
        FORMAT.scan(NAME, memoryview(head + encode_commit(7, b"")), 0, BEGINNING)


def test_a_version_that_the_commits_do_not_have_is_damage() -> None:
    for version in (0, 1):
        data = HEADERS[1 - version] + encode_commit(7, b"one", version=version)
        with pytest.raises(CorruptCommitError, match="offset 0: version in the header"):
            FORMAT.scan(NAME, memoryview(data), 0, BEGINNING)


@runs_in_child
def test_a_commit_over_the_limit_is_an_error_as_soon_as_so_many_bytes_are_there() -> None:
    body = bytes(MAX_COMMIT_BYTES)
    data = log_segment(encode_commit(7, body))
    few = FORMAT.scan(NAME, memoryview(data)[:1000], 0, BEGINNING)
    assert (few.commits, few.tail, few.wanted) == (0, Tail.DAMAGED, 0)
    with pytest.raises(CorruptCommitError, match=f"offset 10: length is {MAX_COMMIT_BYTES + 26}, expected up to"):
        FORMAT.scan(NAME, memoryview(data), 0, BEGINNING)


@pytest.mark.parametrize("offset", [0, 10])
@pytest.mark.parametrize("first", [0, 7, (1 << 63) - 1, (1 << 64) - 1])
def test_hostile_numbers_allocate_nothing(first: int, offset: int) -> None:
    commit = bytearray(encode_commit(first, b"one"))
    data = memoryview(HEADERS[1][: 10 - offset] + commit + bytes(range(200)))
    tracemalloc.start()
    for place in range(8, 22):
        hostile = bytearray(data)
        hostile[10 - offset + place : 14 - offset + place] = b"\xff" * 4
        scan = FORMAT.scan(NAME if offset else segment_name(7), memoryview(hostile), offset, BEGINNING)
        assert (scan.end, scan.commits) == (offset, 0)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_sequences_end_where_columns_do() -> None:
    last = (1 << 63) - 1
    data = memoryview(encode_commit(last, b""))
    with pytest.raises(CorruptCommitError, match=f"sequence after it is {last + 1}"):
        FORMAT.scan(NAME, data, 10, Expectation(last))


@pytest.mark.parametrize("version", [0, 1])
def test_the_next_commit_after_damage_is_found_at_any_byte(version: int) -> None:
    commits = [encode_commit(7 + number, b"x" * number, version=version) for number in range(20)]
    data = bytearray(log_segment(*commits, version=version))
    at = 10
    for commit, following in pairwise(commits):
        damaged = bytearray(data)
        damaged[at + 3] ^= 0x40
        assert find_commit(FORMAT, memoryview(damaged), 0, at) == at + len(commit)
        rest = memoryview(damaged)[at:]
        assert find_commit(FORMAT, rest, at, 0) == len(commit)
        at += len(commit)
        assert data[at : at + len(following)] == following
    assert find_commit(FORMAT, memoryview(data)[at:], at, 0) is None


@pytest.mark.parametrize(
    ("name", "first"),
    [
        (segment_name(0), 0),
        (segment_name((1 << 63) - 1), (1 << 63) - 1),
        (segment_name(1 << 63), None),
        ("7.stdb.log", None),
        (segment_name(7)[:-4], None),
        ("00000000000000000007.stdb.ofs", None),
        ("00000000000000000007.log", None),
        (".tmpdVx8qd", None),
    ],
)
def test_names_are_transactions_of_20_digits(name: str, first: int | None) -> None:
    assert first_sequence(FORMAT, name) == first
    assert FORMAT.segment_order(name) == (None if first is None else (first,))
    assert ignores(FORMAT, name) == name.endswith(".ofs")
