"""A frame that the compiled library makes is the one that the package makes, byte for byte."""

from __future__ import annotations

import random

import pytest

from litelog.codec.checksum import crc32c
from litelog.codec.lz4_frames import ACCELERATION, compress_frame, decompress_frame, find_frame, make_frame
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
