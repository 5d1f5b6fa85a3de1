"""A commit of few records is read as ``Bodies`` reads it, and refused whenever ``Bodies`` refuses it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptCommitError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat, encode_commit
from litelog.formats.litelog.commit_columns import Bodies
from litelog.formats.litelog.encoding import CHECKSUM_BYTES, HEADER
from litelog.formats.litelog.small_commit import MOST_RECORDS, SmallCommit
from tests.sampling import examples

stamps = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def commits(draw: st.DrawFn) -> bytearray:
    """One commit, with and without keys and timestamps of its records."""
    count = draw(st.integers(1, 40) | st.just(MOST_RECORDS))
    key = st.none() | st.binary(max_size=9)
    few = min(count, 40)
    each = draw(st.lists(st.binary(max_size=20), min_size=few, max_size=few)) + [b"more"] * (count - few)
    keys = draw(st.none() | st.lists(key, min_size=few, max_size=few).map(lambda some: some + [None] * (count - few)))
    times = draw(stamps | st.lists(stamps, min_size=few, max_size=few).map(lambda some: some + [1] * (count - few)))
    return encode_commit(7, 2, times, each, keys)


@pytest.mark.slow
def test_small_commit_is_read_as_one_of_a_run() -> None:
    @given(commits(), st.integers(0, 3))
    @settings(max_examples=examples(200))
    def check(commit: bytearray, words: int) -> None:
        position = 8 * words
        data = memoryview(bytes(position) + bytes(commit))
        small, bodies = SmallCommit.read(data, position), Bodies.check("log", data, 0, [position])
        assert small is not None
        assert small.time_range() == bodies.time_range()
        found, expected = small.columns(7), bodies.columns(7)
        assert list(found.records()) == list(expected.records())
        assert np.array_equal(found.value_starts, expected.value_starts)
        assert np.array_equal(found.runs, expected.runs)

    check()


def test_columns_that_bodies_refuses_are_refused() -> None:
    """Each byte of the columns and the padding is changed, and the checksum made right again."""
    commit = encode_commit(7, 2, [5, 6, 4], [b"a", b"bc", b"d" * 6], [None, b"k", b"lm"])
    refused = 0
    for at in range(24, len(commit) - CHECKSUM_BYTES):
        for flipped in (1, 0x80):
            damaged = bytearray(commit)
            damaged[at] ^= flipped
            data = memoryview(damaged)
            damaged[-CHECKSUM_BYTES:] = crc32c(data[:-CHECKSUM_BYTES]).to_bytes(4, "little")
            try:
                expected = list(Bodies.check("log", data, 0, [0]).columns(7).records())
            except CorruptCommitError:
                refused += 1
                assert SmallCommit.read(data, 0) is None, at
            else:
                found = SmallCommit.read(data, 0)
                assert found is not None
                assert list(found.columns(7).records()) == expected
    assert refused > HEADER.size


def test_error_of_a_small_commit_says_what_is_wrong() -> None:
    commit = encode_commit(7, 2, 5, [b"abc", b"d"])
    commit[HEADER.size] = 2
    commit[-CHECKSUM_BYTES:] = crc32c(commit[:-CHECKSUM_BYTES]).to_bytes(4, "little")
    with pytest.raises(CorruptCommitError, match="sum of value lengths"):
        LitelogFormat().scan("log", memoryview(commit), 64, Expectation(7, 0))


def test_commit_of_many_records_is_left_to_bodies() -> None:
    commit = encode_commit(7, 2, 5, [b"v"] * (MOST_RECORDS + 1))
    assert SmallCommit.read(memoryview(commit), 0) is None
