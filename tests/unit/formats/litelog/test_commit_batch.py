"""Commits as Arrow arrays: the same records as decoded one by one, and lengths that do not add up."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptCommitError
from litelog.formats import Expectation
from litelog.formats.columns import Record
from litelog.formats.litelog import LitelogFormat, SegmentHeader, encode_commit, segment_name
from litelog.formats.litelog.commit_batch import CommitGatherer, Commits
from litelog.formats.litelog.encoding import HEADER
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("sequence", "timestamp", "key", "value")

entries = st.tuples(
    st.lists(st.tuples(st.none() | st.binary(max_size=5), st.binary(max_size=40)), min_size=1, max_size=30),
    st.booleans(),
    st.booleans(),
)
"""A commit's keys and values, whether it has keys, and whether each record has a timestamp."""

Commit = tuple[list[tuple[bytes | None, bytes]], bool, bool]


def written(commits: Sequence[Commit], first: int = 0) -> tuple[Commits, list[Record]]:
    """The commits of a log segment, and the records in them."""
    data, records, sequence = bytearray(SegmentHeader(UUID(int=1), first, 0).encode()), [], first
    for entries_, keyed, stamped in commits:
        keys = [key if keyed else None for key, _ in entries_]
        found = [value for _, value in entries_]
        stamps = [1_000 * number + 7 if stamped else 55 for number in range(len(found))]
        data += encode_commit(sequence, 0, stamps if stamped else 55, found, keys)
        sequences = range(sequence, sequence + len(found))
        records += map(Record, sequences, stamps, keys, found)
        sequence += len(found)
    return opened(bytes(data), first), records


def opened(data: bytes, first: int = 0) -> Commits:
    scan, commits = LitelogFormat().scan_commits(segment_name(first), memoryview(data), 0, Expectation())
    assert commits is not None
    assert (scan.records, scan.first) == (commits.records, commits.first)
    return commits


def records_of(batches: Sequence[tuple[int, dict[str, Any]]]) -> list[Record]:
    found: list[Record] = []
    for count, arrays in batches:
        for array in arrays.values():
            array.validate(full=True)
            assert len(array) == count
        stamps = arrays["timestamp"].cast(pa.int64()).to_pylist()
        columns = [arrays["sequence"].to_pylist(), stamps, arrays["key"].to_pylist(), arrays["value"].to_pylist()]
        found += map(Record, *columns)
    return found


def gather(runs: Sequence[Commits], names: Sequence[str] = NAMES, rows: int = 40, most: int = 1 << 20) -> Any:
    gatherer = CommitGatherer(names, rows, most)
    return [*(made for run in runs for made in gatherer.add(run)), *gatherer.rest()]


@pytest.mark.slow
@given(st.lists(st.lists(entries, min_size=1, max_size=5), min_size=1, max_size=3), st.integers(1, 60))
@settings(max_examples=examples(200))
def test_arrays_hold_the_records(runs: list[list[Commit]], rows: int) -> None:
    made, expected, first = [], [], 5
    for commits in runs:
        found, records = written(commits, first)
        made.append(found)
        expected += records
        first += len(records) + 3
    assert records_of(gather(made, rows=rows)) == expected
    assert records_of(gather(made, rows=1000, most=1)) == expected
    assert [record for run in made for record in run.columns().records()] == expected


@pytest.mark.parametrize("names", [(), ("value",), ("key",), ("sequence", "timestamp"), ("key", "value")])
def test_only_requested_columns_are_made(names: tuple[str, ...]) -> None:
    found, records = written([([(b"a", b"1"), (None, b"22")], True, True)] * 3)
    ((count, arrays),) = gather([found], names)
    assert count == len(records)
    assert set(arrays) == set(names)
    for name in names:
        values = arrays[name].cast(pa.int64()) if name == "timestamp" else arrays[name]
        assert values.to_pylist() == [getattr(record, name) for record in records]


def test_batches_are_of_whole_commits() -> None:
    found, _ = written([([(None, b"x")] * count, False, False) for count in (4, 4, 4, 30, 1)])
    assert [count for count, _ in gather([found], rows=10)] == [8, 4, 30, 1]


def test_a_commit_alone_is_handed_out_without_a_copy() -> None:
    found, _ = written([([(b"key", b"v" * 50)] * 20, True, True)])
    ((_, arrays),) = gather([found])
    begin = pa.py_buffer(found.data).address
    places = [arrays[name].buffers()[-1].address for name in ("timestamp", "key", "value")]
    assert all(begin <= place < begin + len(found.data) for place in places)


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (HEADER.size, 9, "sum of value lengths"),
        (HEADER.size, (1 << 32) - 1, "sum of lengths"),
        (HEADER.size + 8, 2_000, "bytes of padding"),
        (HEADER.size + 8, -900, "bytes of padding"),
    ],
)
def test_lengths_that_do_not_add_up_are_reported(at: int, value: int, what: str) -> None:
    head = SegmentHeader(UUID(int=1), 0, 0).encode()
    good = encode_commit(0, 0, 55, [b"one", b"two"], [b"k" * 9, b"l" * 9])
    second = encode_commit(2, 0, 55, [b"one", b"two"], [b"k" * 9, b"l" * 9])
    second[at : at + 4] = struct.pack("<I", value & 0xFFFF_FFFF)
    second[-4:] = struct.pack("<I", crc32c(second[:-4]))
    with pytest.raises(CorruptCommitError, match=f"at offset {len(head) + len(good)}: {what}"):
        gather([opened(bytes(head + good + second))])
