"""Columns give the same records one by one, cut, or as Arrow batches."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import ConfigError
from litelog.formats import Expectation
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog import LitelogFormat, SegmentHeader, encode_commit, segment_name
from litelog.installation import install_command
from tests.sampling import examples

if TYPE_CHECKING:
    from litelog.formats.columns import Columns

entries = st.lists(st.tuples(st.none() | st.binary(max_size=5), st.binary(max_size=40)), min_size=1, max_size=30)


def columns_of(commits: list[list[tuple[bytes | None, bytes]]]) -> Columns:
    data, first = bytearray(SegmentHeader(UUID(int=1), 0, 0).encode()), 0
    for commit in commits:
        data += encode_commit(first, 0, 1_700_000_000_000_000, [v for _, v in commit], [k for k, _ in commit])
        first += len(commit)
    return LitelogFormat().decode(segment_name(0), memoryview(bytes(data)), 0, Expectation())


def check_batches(columns: Columns, batches: list[pa.RecordBatch]) -> None:
    records = list(columns.records())
    for batch in batches:
        batch.validate(full=True)
    names = {
        "sequence": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
    }
    assert all(dict(zip(batch.schema.names, batch.schema.types, strict=True)) == names for batch in batches)

    def column(name: str) -> list[object]:
        return [value for batch in batches for value in batch.column(name).to_pylist()]

    assert column("sequence") == [record.sequence for record in records]
    assert column("key") == [record.key for record in records]
    assert column("value") == [record.value for record in records]
    stamps = [value for batch in batches for value in batch.column("timestamp").cast(pa.int64()).to_pylist()]
    assert stamps == [record.timestamp for record in records]


@pytest.mark.slow
@given(st.lists(entries, max_size=6), st.data())
@settings(max_examples=examples(100))
def test_arrow_batches_hold_the_records(commits: list[list[tuple[bytes | None, bytes]]], data: st.DataObject) -> None:
    columns = columns_of(commits)
    check_batches(columns, [columns.to_arrow()])
    check_batches(columns, list(columns.to_arrow_batches()))
    start = data.draw(st.integers(0, len(columns)))
    part = columns.slice(start, data.draw(st.integers(start, len(columns))))
    assert list(part.records()) == list(columns.records())[start : start + len(part)]
    check_batches(part, [part.to_arrow()])
    check_batches(part, list(part.to_arrow_batches()))


def test_one_run_with_keys_is_handed_out_without_a_copy() -> None:
    columns = columns_of([[(b"key" if n % 3 else None, bytes([n]) * 100) for n in range(250)]])
    (batch,) = columns.to_arrow_batches()
    check_batches(columns, [batch])
    begin = pa.py_buffer(columns.data).address
    places = [batch.column(name).buffers()[2].address for name in ("key", "value")]
    assert all(begin <= place < begin + len(columns.data) for place in places)


@pytest.mark.parametrize("commits", [1, 2, 3, 8])
def test_long_runs_are_handed_out_without_a_copy(commits: int) -> None:
    columns = columns_of([[(None, bytes([n]) * 100) for n in range(250)]] * commits)
    batches = list(columns.to_arrow_batches())
    assert len(batches) == commits
    check_batches(columns, batches)
    check_batches(columns, [columns.to_arrow()])
    part = columns.slice(100, len(columns) - 100)
    check_batches(part, list(part.to_arrow_batches()))
    check_batches(part, [part.to_arrow()])
    begin = pa.py_buffer(columns.data).address
    assert all(begin <= batch.column("value").buffers()[2].address < begin + len(columns.data) for batch in batches)


def test_to_arrow_copies_into_new_memory() -> None:
    data = bytearray(b"one\ntwo\nthree\n")
    columns = LinesFormat().decode("x", memoryview(data), 0, Expectation())
    batch = columns.to_arrow()
    data[:] = bytes(len(data))
    assert batch.column("value").to_pylist() == [b"one", b"two", b"three"]
    assert batch.column("timestamp").null_count == 3


def test_a_sequence_is_found_or_the_one_after_it() -> None:
    columns = columns_of([[(None, b"a")], [(None, b"b"), (None, b"c")]])
    assert [columns.find(sequence) for sequence in (-1, 0, 1, 2, 3, 99)] == [0, 0, 1, 2, 3, 3]


@pytest.mark.slow
def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    columns = columns_of([[(None, b"a")]])
    with pytest.raises(ConfigError, match=re.escape(install_command("arrow"))):
        columns.to_arrow()
    assert [record.value for record in columns.records()] == [b"a"]
