"""The bounds of commits are those that a slow walk from length to length finds."""

from __future__ import annotations

import random
import struct

import pytest

from litelog.formats.frame_chain import MOST_ALIKE, find_frames

LENGTH_AT, OTHER_BYTES = 5, 13


def build(lengths: list[int], order: str) -> bytes:
    return b"\x09" * 3 + b"".join(
        bytes(LENGTH_AT) + struct.pack(f"{order}I", length) + bytes(4) + b"v" * length for length in lengths
    )


def walk_slowly(data: bytes, start: int, order: str) -> list[int]:
    bounds = [start]
    while len(data) - bounds[-1] >= OTHER_BYTES:
        (length,) = struct.unpack_from(f"{order}I", data, bounds[-1] + LENGTH_AT)
        if bounds[-1] + OTHER_BYTES + length > len(data):
            break
        bounds.append(bounds[-1] + OTHER_BYTES + length)
    return bounds


def find(data: bytes, order: str) -> list[int]:
    return find_frames(memoryview(data), 3, LENGTH_AT, OTHER_BYTES, order).tolist()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("seed", range(30))
def test_bounds_are_those_of_a_slow_walk_at_any_cut(seed: int, order: str) -> None:
    chance = random.Random(seed)
    lengths: list[int] = []
    for _ in range(chance.randrange(6)):
        lengths += [chance.randrange(40)] * chance.choice([1, 1, 2, 3, 17, 40])
    data = build(lengths, order)
    assert find(data, order) == walk_slowly(data, 3, order)
    assert len(find(data, order)) == len(lengths) + 1
    cut = data[: chance.randrange(3, len(data) + 1)]
    assert find(cut, order) == walk_slowly(cut, 3, order)
    noise = bytearray(data)
    for _ in range(3):
        noise[chance.randrange(len(noise))] = chance.randrange(256)
    assert find(bytes(noise), order) == walk_slowly(bytes(noise), 3, order)


def test_a_row_of_one_size_may_have_any_length() -> None:
    data = build([7] * (2 * MOST_ALIKE + 5) + [8], "<")
    assert find(data, "<") == walk_slowly(data, 3, "<")


def test_a_length_of_32_bits_ends_the_walk() -> None:
    data = build([4, 4, 4], "<") + bytes(LENGTH_AT) + b"\xff" * 8
    assert find(data, "<") == walk_slowly(data, 3, "<") == [3, 20, 37, 54]
