"""Formats read the same records, and report the same damage, with the compiled library and without it."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import LitelogError
from litelog.formats import Expectation
from litelog.formats.capabilities import scan_columns
from litelog.formats.kafka.batch_header import CHECKED_FROM
from litelog.formats.litelog import SegmentHeader, encode_commit
from litelog.formats.registry import open_format
from litelog.native.library import load, without_library
from tests.builders import stdb_log
from tests.builders.kafka_log import seal, write_batch
from tests.builders.stdb_log import HEADERS, segment_name
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow

pytestmark = pytest.mark.skipif(load() is None, reason="the compiled library is not built")

BYTES = st.binary(max_size=90)
KEYS = st.one_of(st.none(), BYTES)
PAIRS = st.lists(st.tuples(st.text(max_size=3), KEYS), max_size=2)
RECORDS = st.lists(st.tuples(st.integers(-3, 1 << 40), KEYS, KEYS, PAIRS), max_size=8)
BATCHES = st.lists(
    st.tuples(RECORDS, st.sampled_from([0, 0, 0, 0x08, 0x10, 0x20, 0x40, 0x01]), st.integers(-1, 3)), max_size=6
)


def write_kafka(batches: list[tuple[list[tuple], int, int]]) -> tuple[str, bytes]:
    found, base = [], 5
    for records, attributes, producer in batches:
        entries = [(number, *record) for number, record in enumerate(records)]
        found.append(write_batch(base, entries, attributes=attributes, producer=producer, epoch=min(base // 5, 3)))
        base += len(entries) + 1
    return f"{5:020d}.log", b"".join(found)


def write_spacetimedb(commits: list[tuple[bytes, int, int]]) -> tuple[str, bytes]:
    found, first = [HEADERS[1]], 7
    for records, count, epoch in commits:
        found.append(stdb_log.encode_commit(first, records, count=count, epoch=epoch))
        if count == 3:
            found.append(found[-1])  # a repeated commit
        first += count
    return segment_name(7), b"".join(found)


def write_netlog(messages: list[tuple[int, list[bytes]]]) -> tuple[str, bytes]:
    found = [struct.pack(">BBI10x", 1, 16, 1_700_000_000)]
    for codec, payloads in messages:
        inner = [struct.pack(">BII", 0, zlib.crc32(each), len(each)) + each for each in payloads]
        content = b"".join(inner) if codec == 1 else payloads[0] or b"x"
        found.append(struct.pack(">BII", codec, zlib.crc32(content), len(content)) + content)
    return f"{3:020d}.data", b"".join(found)


def write_redis(commands: list[list[bytes]]) -> tuple[str, bytes]:
    found = (
        b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words) for words in commands
    )
    return "appendonly.aof.1.incr.aof", b"".join(found)


def write_litelog(commits: list[tuple[list[tuple[bytes, bytes | None]], list[int]]]) -> tuple[str, bytes]:
    found, first = [SegmentHeader(UUID(int=1), 2, 0).encode()], 2
    for records, times in commits:
        values, keys = [value for value, _ in records], [key for _, key in records]
        stamps = times[0] if len(times) == 1 else [times[number % len(times)] for number in range(len(records))]
        found.append(bytes(encode_commit(first, 1, stamps, values, keys)))
        first += len(records)
    return f"{2:020d}.log", b"".join(found)


OWN = st.lists(
    st.tuples(
        st.lists(st.tuples(BYTES, KEYS), min_size=1, max_size=6),
        st.lists(st.integers(-(1 << 55), 1 << 57), min_size=1, max_size=3),
    ),
    max_size=5,
)
COMMITS = st.lists(st.tuples(BYTES, st.integers(1, 3), st.integers(0, (1 << 64) - 1)), max_size=8)
MESSAGES = st.lists(st.tuples(st.integers(0, 1), st.lists(BYTES, min_size=1, max_size=4)), max_size=8)
COMMANDS = st.lists(
    st.tuples(st.sampled_from([b"SET", b"MULTI", b"exec", b"XGROUP"]), st.lists(BYTES, max_size=3)).map(
        lambda each: [each[0], *each[1]]
    ),
    max_size=8,
)
LOGS: dict[str, tuple[Callable[[Any], tuple[str, bytes]], st.SearchStrategy[Any]]] = {
    "kafka": (write_kafka, BATCHES),
    "litelog": (write_litelog, OWN),
    "spacetimedb": (write_spacetimedb, COMMITS),
    "netlog": (write_netlog, MESSAGES),
    "redis-aof": (write_redis, COMMANDS),
}


def rows_of(batch: pyarrow.RecordBatch) -> list[dict[str, object]]:
    """The rows, with timestamps as numbers: Python has no dates that late."""
    place = batch.schema.names.index("timestamp")
    rows: list[dict[str, object]] = batch.set_column(place, "timestamp", batch["timestamp"].cast("int64")).to_pylist()
    return rows


def what_is_read(format_name: str, name: str, data: bytes, offset: int) -> object:
    """The scan, the Arrow batches as lists, the places, and all and some of the records; or the error."""
    form = open_format(format_name)
    try:
        scan, columns = scan_columns(form, name, memoryview(data), offset, Expectation())
        assert form.scan(name, memoryview(data), offset, Expectation()) == scan
    except LitelogError as error:
        return type(error), str(error)
    names = ["sequence", "timestamp", "key", "value", *(columns.extra or {})]
    middle = columns.slice(len(columns) // 3, len(columns)).take(columns.sequences[len(columns) // 3 :] % 2 == 0)
    rows = [row for batch in columns.to_arrow_batches(names) for row in rows_of(batch)]
    assert rows_of(columns.to_arrow(names)) == rows
    places = columns.places.tolist()
    assert all(0 <= place <= len(data) for place in places)
    return scan, rows, places, list(columns.records()), list(middle.records())


@pytest.mark.slow
@pytest.mark.parametrize("format_name", sorted(LOGS))
@given(draw=st.data(), flips=st.integers(0, 2), seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(300))
def test_random_logs_are_read_the_same(format_name: str, draw: st.DataObject, flips: int, seed: int) -> None:
    write, strategy = LOGS[format_name]
    name, whole = write(draw.draw(strategy))
    chance, data = random.Random(seed), bytearray(whole)
    for _ in range(flips if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    cut = bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)
    found = what_is_read(format_name, name, cut, 0)
    with without_library():
        assert found == what_is_read(format_name, name, cut, 0)


def few(format_name: str) -> tuple[str, bytes]:
    """A small log with every kind of commit."""
    if format_name == "kafka":
        pairs = [("h", b"v"), ("", None)]
        records = [(1, None, b"value" * 9, []), (2, b"k", None, pairs), (3, b"", b"", [])]
        return write_kafka([(records, 0, -1), (records[:1], 0x08, 4), (records[1:], 0x20, 4), (records, 0, 2)])
    if format_name == "spacetimedb":
        return write_spacetimedb([(b"first" * 9, 1, 0), (b"", 3, 1 << 63), (b"x", 2, 1)])
    if format_name == "litelog":
        plain, keyed = [(b"value" * 9, None), (b"", None)], [(b"x", b"key"), (b"yy", None), (b"", b"")]
        return write_litelog([(plain, [7]), (keyed, [9, 3]), (plain[:1], [1, 2])])
    if format_name == "netlog":
        return write_netlog([(0, [b"plain" * 9]), (1, [b"a", b"", b"c"]), (0, [b"\x01"]), (0, [bytes(18)])])
    return write_redis([[b"SET", b"k", b"v" * 40], [b"MULTI"], [b"DEL", b"k"], [b"EXEC"], [b"XGROUP", b"a", b"b"]])


@pytest.mark.slow
@pytest.mark.parametrize("format_name", sorted(LOGS))
def test_each_flipped_bit_is_read_the_same(format_name: str) -> None:
    name, whole = few(format_name)
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        found = what_is_read(format_name, name, bytes(data), 0)
        with without_library():
            assert found == what_is_read(format_name, name, bytes(data), 0), bit


@pytest.mark.slow
@pytest.mark.parametrize("time", [1_700_000_000_000, (1 << 63) // 1000 - 301])
def test_each_flipped_bit_below_a_right_checksum_of_kafka_is_read_the_same(time: int) -> None:
    """Records that a writer wrote wrongly: a checksum does not show them."""
    short, long = (
        [(0, 1, None, b"v", []), (1, 2, None, b"", [])],
        [(2, 300, None, b"x" * 70, []), (200, 3, b"k", b"", [])],
    )
    whole = write_batch(5, [*short, *long], time=time, epoch=1)
    for bit in range(8 * CHECKED_FROM, 8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        sealed = bytes(seal(data))
        found = what_is_read("kafka", f"{5:020d}.log", sealed, 0)
        with without_library():
            assert found == what_is_read("kafka", f"{5:020d}.log", sealed, 0), bit


@pytest.mark.slow
@pytest.mark.parametrize("format_name", sorted(LOGS))
def test_each_cut_is_read_the_same(format_name: str) -> None:
    name, whole = few(format_name)
    for size in range(len(whole) + 1):
        found = what_is_read(format_name, name, whole[:size], 0)
        with without_library():
            assert found == what_is_read(format_name, name, whole[:size], 0), size


@pytest.mark.parametrize("first_key", [None, b"key"])
def test_rows_that_are_taken_in_several_parts_are_read_the_same(first_key: bytes | None) -> None:
    """The first batch has few records for its bytes, so that there is room for too few rows."""
    long, short = [(1, first_key, bytes(9000), [])], (1, None, b"v", [])
    keyed = [(1, b"key", None, [("h", b"v")]), short]
    name, data = write_kafka([(long, 0, -1), *[([short] * 20, 0, -1)] * 100, *[(keyed, 0, -1)] * 200])
    found = what_is_read("kafka", name, data, 0)
    with without_library():
        assert found == what_is_read("kafka", name, data, 0)


@pytest.mark.slow
def test_rows_take_no_more_memory_than_their_bytes_can_need() -> None:
    """Large batches mislead the guesses again and again, and then come batches with many records for their bytes."""
    large, empty = [(1, None, bytes(9000), [])], [(1, None, b"", [])]
    batches = []
    for part in range(5):
        batches += [(large, 0, -1), *[(empty, 0, -1)] * ((64 << part) + 80)]
    name, data = write_kafka([*batches, *[(empty * 4000, 0, -1)] * 100])
    tracemalloc.start()
    scan, columns = scan_columns(open_format("kafka"), name, memoryview(data), 0, Expectation())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert scan.records == len(columns) == 5 + 5 * 80 + 64 * 31 + 400_000
    assert peak < 30 * len(data)
