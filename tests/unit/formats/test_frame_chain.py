"""The bounds of commits are those that a slow walk finds, with the compiled library and without."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.formats.frame_chain import FEW_COMMITS, MOST_ALIKE, find_frames
from litelog.native.layouts import Checksum, FrameLayout

LENGTH_AT, OTHER_BYTES = 5, 13


pytestmark = pytest.mark.usefixtures("both_ways")


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
    layout = FrameLayout(LENGTH_AT, order == ">", OTHER_BYTES, OTHER_BYTES, 1 << 33)
    return find_frames(memoryview(data), 3, layout).tolist()


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


def test_a_length_outside_of_the_bounds_ends_the_walk() -> None:
    data = memoryview(build([4, 5, 9, 5], "<"))
    layout = FrameLayout(LENGTH_AT, False, OTHER_BYTES, OTHER_BYTES + 4, OTHER_BYTES + 8)
    assert find_frames(data, 3, layout).tolist() == [3, 20, 38]
    assert find_frames(data, 3, layout._replace(fewest_bytes=OTHER_BYTES + 5)).tolist() == [3]


LAYOUTS = [
    FrameLayout(4, False, 12, 12, 1 << 20, Checksum.CRC32C, 0, -4),
    FrameLayout(4, True, 12, 12, 1 << 20, Checksum.CRC32C, 8, -4),
    FrameLayout(4, True, 12, 12, 1 << 20, Checksum.CRC32C, 12, 8),
    FrameLayout(4, True, 12, 13, 1 << 20, Checksum.CRC32, 12, 0),
    FrameLayout(0, False, 4, 12, 1 << 20, Checksum.CRC32, 5, -4),
]
"""Checksums at the end and at the start, of a part or of all, in both orders."""


def build_checked(layout: FrameLayout, sizes: list[int], chance: random.Random) -> bytearray:
    data, order = bytearray(), "big" if layout.is_big_endian else "little"
    for size in sizes:
        frame = bytearray(chance.randbytes(layout.fewest_bytes + size))
        length = len(frame) - layout.other_bytes
        frame[layout.length_at : layout.length_at + 4] = length.to_bytes(4, order)
        at = layout.checksum_at % len(frame)
        covered = frame[layout.checked_from : at if layout.checksum_at < 0 else None]
        computed = crc32c(covered) if layout.checksum is Checksum.CRC32C else zlib.crc32(covered)
        frame[at : at + 4] = computed.to_bytes(4, order)
        data += frame
    return data


def check_slowly(data: bytes, layout: FrameLayout) -> list[int]:
    bounds, order = [0], "big" if layout.is_big_endian else "little"
    while len(data) - bounds[-1] >= layout.fewest_bytes:
        begin = bounds[-1]
        total = layout.other_bytes + int.from_bytes(data[begin + layout.length_at :][:4], order)
        if not layout.fewest_bytes <= total <= min(layout.most_bytes, len(data) - begin):
            break
        frame = data[begin : begin + total]
        at = layout.checksum_at % total
        covered = frame[layout.checked_from : at if layout.checksum_at < 0 else None]
        computed = crc32c(covered) if layout.checksum is Checksum.CRC32C else zlib.crc32(covered)
        if computed != int.from_bytes(frame[at : at + 4], order):
            break
        bounds.append(begin + total)
    return bounds


@pytest.mark.parametrize("layout", LAYOUTS)
@given(
    sizes=st.lists(st.integers(0, 300), max_size=2 * FEW_COMMITS),
    seed=st.integers(0, 1 << 32),
    flips=st.integers(0, 2),
    cut=st.integers(0, 40),
)
def test_checksums_are_those_of_a_slow_walk(
    layout: FrameLayout, sizes: list[int], seed: int, flips: int, cut: int
) -> None:
    chance = random.Random(seed)
    data = build_checked(layout, sizes, chance)
    assert len(check_slowly(bytes(data), layout)) == len(sizes) + 1
    for _ in range(flips if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    found = bytes(data[: max(0, len(data) - cut)])
    assert find_frames(memoryview(found), 0, layout).tolist() == check_slowly(found, layout)


@pytest.mark.parametrize("size", [*range(80), *range(112, 145), *range(240, 290), *range(368, 420, 7), 1000, 70_000])
def test_a_checksum_is_right_for_frames_of_any_size(size: int) -> None:
    for layout in LAYOUTS:
        data = build_checked(layout, [size, 3], random.Random(size))
        assert find_frames(memoryview(data), 0, layout).tolist() == check_slowly(bytes(data), layout)
        data[len(data) // 2] ^= 1
        assert find_frames(memoryview(data), 0, layout).tolist() == check_slowly(bytes(data), layout)
