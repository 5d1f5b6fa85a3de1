"""A search for a commit finds the same in little data, without arrays, as in much data."""

from __future__ import annotations

import random

import pytest

from litelog.formats import Expectation
from litelog.formats.litelog import encode_commit
from litelog.formats.litelog.commit_walk import PLAIN_SEARCH_BYTES, find_commit

EXACT, EPOCH = 0x0706_0504_0302_0107, 3


def pieces(seed: int) -> bytes:
    """Good commits of the wanted sequence and of another, damaged ones, cut ones, and bytes that look like a start."""
    chance, data = random.Random(seed), b""
    for _ in range(chance.randrange(1, 7)):
        commit = bytearray(encode_commit(EXACT + chance.choice([0, 0, 1]), EPOCH - chance.choice([0, 0, 1]), 5, [b"v"]))
        if chance.random() < 0.6:
            commit[chance.randrange(len(commit))] ^= 1 << chance.randrange(8)
        cut = bytes(commit[: chance.choice([8, 24, len(commit)])])
        data += EXACT.to_bytes(8, "little") * chance.randrange(2) + bytes(chance.choice([0, 8, 3])) + cut
    return data


@pytest.mark.slow
def test_little_data_is_searched_as_much_data_is() -> None:
    found = set()
    for seed in range(300):
        data = pieces(seed)
        expect = Expectation(EXACT - 1, EPOCH)
        little = find_commit(memoryview(data), 0, expect, exact=EXACT)
        much = find_commit(memoryview(data + bytes(PLAIN_SEARCH_BYTES)), 0, expect, exact=EXACT)
        assert little == much, seed
        before = 8 * (seed % 4) + PLAIN_SEARCH_BYTES  # bytes before the position do not count
        assert find_commit(memoryview(bytes(before) + data), before + seed % 8, expect, exact=EXACT) == (
            None if little is None else before + little
        ), seed
        found.add(little)
    assert None in found
    assert len(found) > 5


def test_a_commit_that_ends_with_the_data_is_found() -> None:
    commit = encode_commit(EXACT, EPOCH, 5, [b""])
    data = memoryview(bytes(16) + commit)
    assert find_commit(data, 0, Expectation(None, EPOCH), exact=EXACT) == 16
    assert find_commit(data, 16, Expectation(None, EPOCH), exact=EXACT) is None
    assert find_commit(data[:-1], 0, Expectation(None, EPOCH), exact=EXACT) is None
