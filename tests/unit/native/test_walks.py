"""The compiled functions give what a slow walk gives, and refuse what does not lie in their buffers."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.formats.kafka import record_columns
from litelog.formats.kafka.record_columns import find_records
from litelog.formats.redis_aof.command_lines import MIN_COMMAND_BYTES, find_commands, name_number
from litelog.native import walks
from litelog.native.layouts import Checksum, FrameLayout
from litelog.native.library import has_fast_checksums, load, without_library
from tests.builders.kafka_log import write_record
from tests.sampling import examples

pytestmark = pytest.mark.skipif(load() is None, reason="the compiled library is not built")

NO_KEY, SECOND_KEY = (np.array([name_number(name)]) for name in (b"SELECT", b"XGROUP"))
KEYS = st.one_of(st.none(), st.binary(max_size=70))
ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 1 << 20),
        st.integers(-(1 << 62), 1 << 62),
        KEYS,
        KEYS,
        st.lists(st.tuples(st.text(max_size=3).map(str), KEYS), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def as_lists(data: bytes, begins: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> object:
    """The result of ``find_records``: the columns, or that the batches are malformed."""
    found, malformed = find_records(memoryview(data), begins, ends, counts)
    return malformed or [getattr(found, name).tolist() for name in record_columns._FIELDS]


@pytest.mark.slow
@given(ENTRIES, st.integers(0, 3), st.integers(0, 1 << 32), st.integers(-1, 1))
@settings(max_examples=examples(600))
def test_records_are_those_of_numpy(entries: list[tuple], flips: int, seed: int, more: int) -> None:
    chance = random.Random(seed)
    whole = b"".join(map(write_record, entries))
    damaged = bytearray(whole)
    for _ in range(flips):
        damaged[chance.randrange(min(len(damaged), 40))] ^= 1 << chance.randrange(8)
    data = b"before" + whole + bytes(damaged)
    begins, ends = numbers(6, 6 + len(whole)), numbers(6 + len(whole), len(data))
    counts = numbers(len(entries), max(1, len(entries) + more))
    found = as_lists(data, begins, ends, counts)
    with without_library():
        assert found == as_lists(data, begins, ends, counts)
    if not flips and not more:
        assert walks.find_records(memoryview(data), begins, ends, counts) is not None


@pytest.mark.slow
def test_each_flipped_bit_of_records_means_what_it_means_to_numpy() -> None:
    headers = [("h", b"v"), ("", None)]
    entries = [(1, -5, None, b"v" * 70, []), (70, 9_000, b"key", None, headers), (71, 1 << 40, b"", b"", [])]
    whole = b"".join(map(write_record, entries))
    places = numbers(0), numbers(len(whole)), numbers(len(entries))
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        found = as_lists(bytes(data), *places)
        with without_library():
            assert found == as_lists(bytes(data), *places), bit


@given(st.binary(min_size=7, max_size=80), st.integers(1, 11))
@settings(max_examples=examples(600))
def test_any_bytes_are_the_records_that_they_are_to_numpy(data: bytes, count: int) -> None:
    places = numbers(0), numbers(len(data)), numbers(count)
    found = as_lists(data, *places)
    with without_library():
        assert found == as_lists(data, *places)


@pytest.mark.parametrize(("begin", "end"), [(-1, 9), (0, 10), (5, 4), (1 << 62, 9), (0, 1 << 62)])
def test_records_outside_of_the_buffer_are_not_read(begin: int, end: int) -> None:
    data = memoryview(write_record((0, 0, None, b"vv", [])))
    assert walks.find_records(data, numbers(0), numbers(len(data)), numbers(1)) is not None
    assert walks.find_records(data, numbers(begin), numbers(end), numbers(1)) is None


def test_layouts_that_cannot_be_are_refused() -> None:
    good = FrameLayout(0, False, 8, 8, 100, Checksum.CRC32, 4, -4)
    if not has_fast_checksums():
        pytest.skip("this processor computes checksums slowly")
    assert walks.find_frames(memoryview(bytes(20)), 0, good) is not None
    wrong = [
        {"length_at": -1},
        {"length_at": 5},
        {"other_bytes": -1},
        {"checked_from": 5},
        {"checked_from": -1},
        {"checksum_at": -9},
        {"checksum_at": -3},
        {"checksum_at": 5},
    ]
    for change in wrong:
        with pytest.raises(ValueError, match="is not a layout"):
            walks.find_frames(memoryview(bytes(20)), 0, good._replace(**change))
    for start in (-1, 21):
        with pytest.raises(ValueError, match="is not a layout"):
            walks.find_frames(memoryview(bytes(20)), start, good)


WORDS = st.lists(st.binary(max_size=40), min_size=1, max_size=5)
NAMES = st.sampled_from([b"SET", b"set", b"SELECT", b"XGROUP", b"MULTI", b"A-LONG-NAME"])


def write_command(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


@pytest.mark.slow
@given(st.lists(st.tuples(NAMES, WORDS), max_size=12), st.integers(0, 3), st.integers(0, 1 << 32))
@settings(max_examples=examples(600))
def test_commands_are_those_of_numpy_and_no_fewer(
    commands: list[tuple[bytes, list[bytes]]], flips: int, seed: int
) -> None:
    chance = random.Random(seed)
    data = bytearray(b"".join(write_command([name, *words]) for name, words in commands))
    for _ in range(flips if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    if len(data) < 2:
        return
    found = find_commands(memoryview(bytes(data)), NO_KEY, SECOND_KEY)
    if not flips:
        assert len(found.starts) == len(commands)
    with without_library():
        known = find_commands(memoryview(bytes(data)), NO_KEY, SECOND_KEY)
    for column, others in zip(known, found, strict=True):
        assert column.tolist() == others[: len(column)].tolist()
    assert found.starts[1:].tolist() == found.ends[:-1].tolist()


@pytest.mark.parametrize(
    "line",
    [
        b"*2\r\n",
        b"*2\r\n$1\r\na\r\n$",
        b"*1\r\n$-1\r\n\r\n",
        b"*1\r\n$999999999\r\nx\r\n",
        b"*0\r\n",
        b"*1234567890\r\n",
    ],
)
def test_a_command_that_is_not_whole_is_not_found(line: bytes) -> None:
    whole = write_command([b"SET", b"k", b"v"])
    found = walks.find_commands(memoryview(whole + line), NO_KEY, SECOND_KEY, MIN_COMMAND_BYTES)
    assert found is not None
    assert found[1].tolist() == [len(whole)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_breaks_are_where_entries_do_not_continue_those_before(steps: list[tuple[int, int]]) -> None:
    starts, at = [], 0
    for gap, length in steps:
        starts.append(at + gap)
        at += gap + length
    lengths = [length for _, length in steps]
    expected = [
        number + 1
        for number, ((start, length), (after, _)) in enumerate(pairwise(zip(starts, lengths, strict=True)))
        if start + length != after
    ]
    for most in (0, 1, 2, 99):
        found = walks.find_breaks(numbers(*starts), numbers(*lengths), most)
        assert found is not None
        assert found.tolist() == ([0, *expected] if steps else [])[:most]


@given(st.binary(max_size=3000), st.data())
def test_entries_are_gathered_in_their_order(data: bytes, draw: st.DataObject) -> None:
    entries = draw.draw(
        st.lists(
            st.integers(0, len(data)).flatmap(
                lambda start: st.tuples(st.just(start), st.integers(-1, len(data) - start))
            ),
            max_size=12,
        )
    )
    joined = b"".join(data[start : start + length] for start, length in entries if length > 0)
    offsets, into = np.empty(len(entries) + 1, np.int32), bytearray(len(joined))
    starts, lengths = (numbers(*(entry[place] for entry in entries)) for place in (0, 1))
    assert walks.gather(memoryview(data), starts, lengths, offsets, into)
    assert bytes(into) == joined
    assert offsets.tolist() == [0, *np.cumsum(np.maximum(lengths, 0)).tolist()]


@pytest.mark.parametrize(
    ("start", "length", "room"), [(-1, 2, 2), (9, 2, 2), (11, 1, 1), (0, 4, 3), (0, 3, 4), (0, 1 << 62, 4)]
)
def test_entries_outside_of_the_buffers_are_not_copied(start: int, length: int, room: int) -> None:
    offsets, into = np.empty(2, np.int32), bytearray(room)
    with pytest.raises(ValueError, match=f"do not fill {room}"):
        walks.gather(memoryview(bytes(10)), numbers(start), numbers(length), offsets, into)
