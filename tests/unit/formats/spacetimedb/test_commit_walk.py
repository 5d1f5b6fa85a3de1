"""The walk over many commits at once finds what the walk over one commit after the other finds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from litelog.codec.checksum import crc32c
from litelog.errors import LitelogError
from litelog.formats import Expectation, frame_chain
from litelog.formats.spacetimedb import SpacetimeDBFormat
from litelog.native.library import without_library
from tests.builders.stdb_log import HEADERS, encode_commit, read_slowly, segment_name

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = SpacetimeDBFormat()
NAME = segment_name(7)


def log_segment(chance: random.Random, version: int) -> bytes:
    """Rows of commits of one size and of any, of which now and then one repeats the one before."""
    parts, number = [HEADERS[version]], 7
    for _ in range(chance.randrange(1, 5)):
        size = chance.randrange(60)
        for _ in range(chance.choice([3, 20, 60])):
            size = size if chance.random() < 0.8 else chance.randrange(60)
            count = chance.randrange(1, 4)
            parts.append(encode_commit(number, chance.randbytes(size), count, chance.randrange(3), version))
            number += count
            if chance.random() < 0.004:
                parts.append(parts[-1])
    return b"".join(parts)


def damage(chance: random.Random, data: bytes) -> bytes:
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data))] + bytes(chance.choice([0, 30, 900]))
    broken = bytearray(data)
    for _ in range(chance.randrange(4)):
        broken[chance.randrange(10, len(data))] ^= 1 << chance.randrange(8)
    return bytes(broken)


def read(data: bytes) -> Any:
    """All that is found in the bytes, or the error."""
    try:
        scan, columns = FORMAT.scan_columns(NAME, memoryview(data), 0, Expectation())
        return scan, list(columns.records()), FORMAT.commits(NAME, memoryview(data), 0, Expectation())
    except LitelogError as error:
        return repr(error)


@pytest.fixture
def read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Any]:
    def read_so(data: bytes) -> Any:
        with monkeypatch.context() as changed, without_library():
            changed.setattr(frame_chain, "FEW_COMMITS", 1 << 40)
            return read(data)

    return read_so


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("seed", range(40))
def test_damaged_logs_read_as_one_commit_after_the_other(
    seed: int, version: int, read_one_by_one: Callable[[bytes], Any]
) -> None:
    chance = random.Random(seed)
    data = log_segment(chance, version)
    assert read(data) == read_one_by_one(data)
    broken = damage(chance, data)
    assert read(broken) == read_one_by_one(broken)


def test_commits_that_follow_each_other_are_not_checked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data = HEADERS[1] + b"".join(encode_commit(7 + number, b"v" * (number % 50)) for number in range(500))
    checked: list[int] = []

    def count(part: memoryview) -> int:
        checked.append(len(part))
        return crc32c(part)

    monkeypatch.setattr(frame_chain, "crc32c", count)
    with without_library():
        columns = FORMAT.decode(NAME, memoryview(data), 0, Expectation())
    assert columns.sequences.tolist() == [first for first, *_ in read_slowly(data)]
    assert checked == [len(data) - len(HEADERS[1])]
