"""Records of batches that are walked alone or side by side are those that a slow decoder gives."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import CorruptCommitError
from litelog.formats import Expectation
from litelog.formats.kafka import KafkaFormat, record_columns
from litelog.formats.kafka.record_columns import find_records
from litelog.formats.kafka.varints import PADDING
from tests.builders.child import runs_in_child
from tests.builders.kafka_log import decode_slowly, seal, varint, write_batch, write_record
from tests.sampling import examples

if TYPE_CHECKING:
    from tests.builders.kafka_log import Entry

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("both_ways")]

FORMAT = KafkaFormat()
NAME = f"{0:020d}.log"

small = st.binary(max_size=12) | st.text(max_size=6).map(str.encode) | st.integers(0, 40).map(bytes)
values = st.none() | small | st.integers(100, 9_000).map(lambda size: b"x" * size)
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | small), max_size=3)
times = st.integers(-3, 200) | st.integers(-(1 << 40), 1 << 40)
parts = st.tuples(st.integers(1, 3), times, st.none() | small, values, st.just([]) | headers)


@st.composite
def batches(draw: st.DrawFn) -> list[Entry]:
    steps = draw(st.lists(parts, min_size=1, max_size=12))
    offsets = accumulate((step for step, *_ in steps), initial=draw(st.integers(0, 300)))
    return [(offset, *rest) for offset, (_, *rest) in zip(offsets, steps, strict=False)]


@given(st.lists(batches(), min_size=1, max_size=5), st.booleans())
@settings(max_examples=examples(400))
def test_records_are_those_of_a_slow_decoder(logs: list[list[Entry]], append_time: bool) -> None:
    data, base = b"", 0
    for entries in logs:
        data += write_batch(base, entries, attributes=8 if append_time else 0)
        base += entries[-1][0] + 1
    columns = FORMAT.decode(NAME, memoryview(data), 0, Expectation())
    assert list(columns.records()) == decode_slowly(data)
    half = len(columns) // 2
    assert list(columns.slice(half, len(columns)).records()) == decode_slowly(data)[half:]
    (rows,) = [columns.to_arrow(["value", "headers", "producerId", "timestampType"]).to_pylist()]
    for row, record in zip(rows, decode_slowly(data), strict=True):
        assert record.extra is not None
        found = row["headers"] and [(each["key"], each["value"]) for each in row["headers"]]
        value = None if record.is_null else record.value
        assert (row["value"], found) == (value, record.extra["headers"])
        assert (row["producerId"], row["timestampType"]) == (-1, int(append_time))


def plain(count: int, value: bytes) -> list[Entry]:
    return [(number, number // 3, b"k%d" % number, value, []) for number in range(count)]


def many(batches: int, value: bytes) -> bytes:
    """Batches with different numbers of records, the last one with the most."""
    counts = [1 + number * 7 % 40 for number in range(batches - 1)] + [90]
    firsts = accumulate(counts, initial=0)
    return b"".join(write_batch(first, plain(count, value)) for first, count in zip(firsts, counts, strict=False))


@pytest.mark.parametrize("size", [1, 30, 100, 2_000, 9_000])
@pytest.mark.parametrize("batches", [1, 2, 7, 8, 9, 40])
@runs_in_child
def test_batches_are_walked_alone_and_side_by_side(batches: int, size: int) -> None:
    data = many(batches, b"v" * size)
    columns = FORMAT.decode(NAME, memoryview(data), 0, Expectation())
    assert list(columns.records()) == decode_slowly(data)


def test_many_batches_take_one_step_a_record_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(write_batch(50 * number, plain(50, b"v" * 100)) for number in range(20))
    monkeypatch.setattr(record_columns, "walk", None)
    columns = FORMAT.decode(NAME, memoryview(data), 0, Expectation())
    assert list(columns.records()) == decode_slowly(data)


def test_one_malformed_batch_of_many_is_named() -> None:
    batches = [write_batch(10 * number, plain(10, b"value")) for number in range(20)]
    damaged = bytearray(batches[12])
    damaged[61] += 2
    at = sum(map(len, batches[:12]))
    data = b"".join([*batches[:12], seal(damaged), *batches[13:]])
    with pytest.raises(CorruptCommitError, match=f"offset {at}: records"):
        FORMAT.decode(NAME, memoryview(data), 0, Expectation())


NESTED = write_record((0, 0, None, b"nested", []))


@pytest.mark.parametrize("value", [bytes(50), b"\0\x10\0" * 20, NESTED * 3])
def test_values_that_look_like_records_are_values(value: bytes) -> None:
    data = write_batch(0, plain(100, b"plain")) + write_batch(100, plain(20, value))
    columns = FORMAT.decode(NAME, memoryview(data), 0, Expectation())
    assert list(columns.records()) == decode_slowly(data)


def test_a_large_run_is_decoded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_columns, "BLOCK_RECORDS", 70)
    data = b"".join(write_batch(40 * number, plain(40, b"v" * 20)) for number in range(20))
    columns = FORMAT.decode(NAME, memoryview(data), 0, Expectation())
    assert list(columns.records()) == decode_slowly(data)


def find(body: bytes, count: int) -> tuple[int, list[int]]:
    data = memoryview(body + bytes(PADDING))
    found, malformed = find_records(data, np.array([0]), np.array([len(body)]), np.array([count]))
    return len(found), malformed


def test_a_batch_with_another_number_of_records_is_malformed() -> None:
    body = b"".join(write_record(entry) for entry in plain(10, b"value"))
    assert find(body, 10) == (10, [])
    assert find(body, 9) == (0, [0])
    assert find(body, 11) == (0, [0])
    assert find(body, 1 << 30) == (0, [0])
    assert find(body[:-1], 10) == (0, [0])


@given(st.binary(min_size=7, max_size=60), st.integers(1, 8))
@settings(max_examples=examples(300))
def test_any_bytes_are_malformed_or_records(body: bytes, count: int) -> None:
    found, malformed = find(body, count)
    assert (found, malformed) in [(count, []), (0, [0])]


@pytest.mark.parametrize("length", [-1, 5, 1 << 20, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("field", ["record", "key", "value", "headers"])
def test_lengths_beyond_the_record_are_malformed(field: str, length: int) -> None:
    fields = {"key": varint(-1), "value": varint(-1), "headers": varint(0)}
    fields[field] = varint(length)
    body = b"\0\0\0" + fields["key"] + fields["value"] + fields["headers"]
    record = varint(length if field == "record" else len(body)) + body
    good = (field in {"key", "value"} and length == -1) or (field == "record" and length == len(body))
    assert find(record, 1) == ((1, []) if good else (0, [0]))
