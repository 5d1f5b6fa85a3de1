"""A frame that the compiled library makes is the one that the package makes, byte for byte. What it reads in one call
is what the package reads, and it leaves everything else to it."""

from __future__ import annotations

import random

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.codec.lz4_frames import (
    ACCELERATION,
    FrameError,
    compress_frame,
    content_checksum,
    decompress_frame,
    find_frame,
    make_frame,
    read_frame,
    store_frame,
)
from litelog.native import lz4_frame
from litelog.native.library import has_fast_checksums, without_library

pytestmark = pytest.mark.skipif(not has_fast_checksums(), reason="nothing is compiled for this processor")

SIZES = [1, 2, 3, 15, 16, 17, 31, 100, 65536, 65537, 262_144, 262_145, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 4 << 20]


def text(size: int) -> bytes:
    draw = random.Random(size)
    words = [draw.randbytes(draw.randrange(3, 12)) for _ in range(300)]
    found = b"".join(draw.choice(words) for _ in range(min(size, 1 << 17) // 3 + 1))
    return (found * (size // len(found) + 1))[:size]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["text", "random", "zeros"])
def test_both_make_the_same_frame(size: int, kind: str) -> None:
    data = memoryview({"text": text, "random": random.Random(size).randbytes, "zeros": bytes}[kind](size))
    made = make_frame(data)
    with without_library():
        assert make_frame(data) == made
    assert made.body == compress_frame(data, ACCELERATION)
    assert (made.crc, made.stored) == (crc32c(data), crc32c(made.body))
    assert decompress_frame(made.body, find_frame(made.body)) == data


def test_a_frame_of_another_size_is_refused() -> None:
    for size in (0, (4 << 20) + 1):
        with pytest.raises(ValueError, match=f"not {size} bytes"):
            lz4_frame.make_frame(1, 3, memoryview(bytes(size)))


def test_without_the_library_there_is_none() -> None:
    with without_library():
        assert lz4_frame.make_frame(1, 3, memoryview(b"a")) is None


def read(frame: bytes, size: int, into: memoryview | None = None) -> bytes | None:
    """The content of a frame whose own CRC-32C is right."""
    found = read_frame(memoryview(frame), crc32c(frame), size, into, with_crc=True)
    if found is None:
        return None
    assert (found.checksum, found.crc) == (content_checksum(frame), crc32c(found.content))
    return bytes(found.content)


def read_by_package(frame: bytes) -> bytes | None:
    """As ``read``, without the content checksum."""
    try:
        return bytes(decompress_frame(frame, find_frame(frame), known=True))
    except FrameError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["text", "random", "zeros"])
def test_one_call_reads_what_was_put_in(size: int, kind: str) -> None:
    data = {"text": text, "random": random.Random(size).randbytes, "zeros": bytes}[kind](size)
    for frame in (compress_frame(data), b"".join(store_frame(memoryview(data)))):
        room = memoryview(bytearray(size + 2))
        into = room[1:-1]
        assert read(frame, size) == read(frame, size, into) == read_by_package(frame) == data
        assert room[0] == room[-1] == 0
        for other in (size - 1, size + 1, 0, -1, 1 << 40):
            assert read(frame, other) is None
        wanted = read_frame(memoryview(frame), crc32c(frame), size, None, with_crc=False)
        assert wanted is not None
        assert (wanted.content, wanted.checksum, wanted.crc) == (data, content_checksum(frame), 0)


def test_bytes_that_a_frame_stores_are_not_copied() -> None:
    frame = b"".join(store_frame(memoryview(b"record")))
    found = read_frame(memoryview(frame), crc32c(frame), 6, None, with_crc=True)
    assert found is not None
    assert found.content.obj is frame


@pytest.mark.slow
@given(st.binary(min_size=1, max_size=400), st.integers(0, 12), st.booleans(), st.data())
def test_no_damage_is_read_otherwise_than_by_the_package(
    raw: bytes, copies: int, stored: bool, data: st.DataObject
) -> None:
    """Whatever the call reads is what the package reads, even if the frame's own CRC-32C is right."""
    content = raw * (copies + 1)
    frame = bytearray(b"".join(store_frame(memoryview(content))) if stored else compress_frame(content))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    damaged = bytes(frame[: data.draw(st.integers(0, len(frame)))] if data.draw(st.booleans()) else frame)
    damaged += data.draw(st.binary(max_size=4))
    size = data.draw(st.sampled_from([len(content), len(content) - 1, len(content) + 1]))
    found = read(damaged, size)
    expected = read_by_package(damaged)
    assert found in (None, expected)
    if damaged == compress_frame(content) and size == len(content):
        assert found == content


def test_every_flipped_bit_shows_before_anything_is_decompressed() -> None:
    content = b"record" * 50
    frame = bytearray(compress_frame(content))
    crc, into = crc32c(frame), memoryview(bytearray(300))
    for bit in range(8 * len(frame)):
        frame[bit // 8] ^= 1 << bit % 8
        assert read_frame(memoryview(frame), crc, 300, into, with_crc=True) is None
        frame[bit // 8] ^= 1 << bit % 8
    assert into == bytes(300)
    assert read_frame(memoryview(frame), crc, 300, into, with_crc=True) is not None
    assert into == content


@pytest.mark.parametrize("linked", [False, True])
def test_frames_of_several_blocks_are_left_to_the_package(linked: bool) -> None:
    content = text(200_000)
    size = lz4.frame.BLOCKSIZE_MAX64KB
    frame = lz4.frame.compress(content, block_size=size, block_linked=linked, content_checksum=True)
    assert read(frame, len(content)) is None
    assert read_by_package(frame) == content


def test_room_of_another_size_is_refused() -> None:
    frame = compress_frame(b"record")
    for room in (bytearray(5), bytearray(7), bytes(6)):
        with pytest.raises(ValueError, match="no room for 6 bytes"):
            read_frame(memoryview(frame), crc32c(frame), 6, memoryview(room), with_crc=True)


def test_without_the_library_no_frame_is_read_in_one_call() -> None:
    frame = compress_frame(b"record")
    with without_library():
        assert read_frame(memoryview(frame), crc32c(frame), 6, None, with_crc=True) is None
    assert read_frame(memoryview(frame), crc32c(frame), 6, None, with_crc=True) is not None
