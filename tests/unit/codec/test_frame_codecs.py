"""Each compression makes frames that its codec reads, and that state what a footer states of them."""

from __future__ import annotations

from random import Random

import pytest

from litelog.codec.checksum import crc32c
from litelog.codec.frame_codecs import DECODERS, Compression, FrameCodec
from litelog.codec.lz4_frames import content_checksum

WORDS = b" ".join(Random(5).choices([b"commit", b"log", b"segment", b"replica", b"sealed"], k=30_000))
LINES = b"".join(b'{"user":%d,"item":"%s"}\n' % (n * n % 9973, WORDS[n : n + 9]) for n in range(9000))


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("data", [b"x", LINES, bytes(100_000), Random(6).randbytes(70_000)])
def test_its_codec_reads_what_a_compression_makes(compression: Compression, data: bytes) -> None:
    made = compression.compress(memoryview(data))
    frame = memoryview(made.body)
    assert (made.crc, made.stored) == (crc32c(data), crc32c(frame))
    decoder = DECODERS[compression.codec]
    found = decoder.find(frame)
    assert (found.end, found.size) == (len(frame), len(data))
    assert decoder.decompress(frame, found, None) == data
    assert decoder.checksum(data) == content_checksum(frame)
    assert compression.problem() is None


def test_each_compression_stores_less_than_the_one_before_it() -> None:
    sizes = [
        len(memoryview(compression.compress(memoryview(LINES)).body))
        for compression in (Compression.LZ4, Compression.LZ4HC)
    ]
    assert sizes[1] < sizes[0]
    assert len(memoryview(Compression.ZSTD.compress(memoryview(LINES)).body)) < sizes[1]


def test_both_kinds_of_lz4_are_one_codec() -> None:
    assert [compression.codec for compression in Compression] == [FrameCodec.LZ4, FrameCodec.LZ4, FrameCodec.ZSTD]
    assert set(DECODERS) == set(FrameCodec)
