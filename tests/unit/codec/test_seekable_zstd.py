"""Files of zstd frames with a seek table: read at any place, and refused where a length does not hold."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest
import zstandard

from litelog.codec.seekable_zstd import MAX_FRAME_BYTES, ZSTD_MAGIC, SeekableZstd
from litelog.errors import ConfigError, CorruptCommitError
from tests.builders.recorded_logs import recorded_segments
from tests.sampling import sampled

CONTENT = Random(3).randbytes(3000) + b"compressible " * 2000


def compress(parts: list[bytes], *, checksums: bool = False, states_size: bool = False) -> bytes:
    """A file with a frame for each part, and its seek table."""
    compressor = zstandard.ZstdCompressor(write_content_size=states_size)
    frames = [compressor.compress(part) for part in parts]
    return b"".join(frames) + seek_table(
        [(len(frame), len(part)) for frame, part in zip(frames, parts, strict=True)], checksums
    )


def seek_table(sizes: list[tuple[int, int]], checksums: bool = False, count: int | None = None) -> bytes:
    entries = b"".join(struct.pack("<II", *pair) + bytes(4) * checksums for pair in sizes)
    footer = struct.pack("<IBI", len(sizes) if count is None else count, 0x80 * checksums, 0x8F92EAB1)
    return struct.pack("<II", 0x184D2A5E, len(entries) + len(footer)) + entries + footer


def opened(data: bytes) -> SeekableZstd:
    return SeekableZstd("log", lambda offset, length: data[offset : offset + length], len(data), extra="spacetimedb")


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("states_size", [False, True])
@pytest.mark.parametrize("frame_bytes", [1, 700, 4096, len(CONTENT)])
def test_any_part_of_the_content_is_read(frame_bytes: int, checksums: bool, states_size: bool) -> None:
    content = CONTENT if frame_bytes > 1 else CONTENT[:200]
    parts = [content[at : at + frame_bytes] for at in range(0, len(content), frame_bytes)]
    log = opened(compress(parts, checksums=checksums, states_size=states_size))
    assert log.size() == len(content)
    assert log.read(0, 1 << 40) == content
    random = Random(5)
    for _ in range(200):
        start, length = random.randrange(len(content) + 9), random.choice([0, 1, 10, 5000, len(content)])
        assert log.read(start, length) == content[start : start + length]


def test_a_file_without_content_is_empty() -> None:
    log = opened(compress([b""]))
    assert (log.size(), log.read(0, 10)) == (0, b"")


def test_what_the_real_writer_compressed_is_read() -> None:
    segments = recorded_segments("spacetimedb", "compressed")
    assert [data[:4] == ZSTD_MAGIC for _, data in segments] == [True, True, False]
    for (name, data), (following, _) in pairwise(segments):
        log = opened(data)
        content = log.read(0, log.size())
        assert content.startswith(b"(ds)^2\1\0\0\0" + int(name[:20]).to_bytes(8, "little"))
        assert log.size() == len(content) > 2 * 4096
        assert content.count(b"transaction ") == int(following[:20]) - int(name[:20])


def test_a_file_that_is_cut_anywhere_is_an_error() -> None:
    data = compress([CONTENT[:100], CONTENT[100:180]])
    for cut in range(len(data)):
        with pytest.raises(CorruptCommitError, match="log: corrupt commit at offset"):
            opened(data[:cut])


@pytest.mark.slow
def test_a_flipped_bit_is_an_error_or_leaves_the_lengths() -> None:
    content = b"plain words, many of them " * 30
    data = compress([content[at : at + 100] for at in range(0, len(content), 100)])
    for bit in sampled(range(8 * len(data)), 4, "flipped bits of a compressed file"):
        flipped = bytearray(data)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        with suppress(CorruptCommitError):
            log = opened(bytes(flipped))
            assert len(log.read(0, 1 << 30)) == log.size()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([(20, MAX_FRAME_BYTES + 1)], "bytes of the content of a frame is 1048577, expected up to 1048576"),
        ([(20, 0xFFFF_FFFF)], "bytes of the content of a frame is 4294967295"),
        ([(0xFFFF_FFFF, 10)], "bytes before the seek table is 20, expected 4294967295"),
        ([(10, 10)], "bytes before the seek table is 20, expected 10"),
        ([], "bytes before the seek table is 20, expected 0"),
    ],
)
def test_lengths_that_the_file_cannot_have_are_refused(sizes: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(CorruptCommitError, match=message):
        opened(ZSTD_MAGIC + bytes(16) + seek_table(sizes))


@pytest.mark.parametrize("count", [2, 1000, 0xFFFF_FFFF])
def test_more_frames_than_the_table_has_are_refused(count: int) -> None:
    with pytest.raises(CorruptCommitError, match=r"header of the seek table|frames in the seek table is"):
        opened(ZSTD_MAGIC + bytes(16) + seek_table([(20, 20)], count=count))


def test_a_frame_with_more_content_than_stated_allocates_nothing() -> None:
    huge = 256 << 20
    bomb = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(huge))
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(huge))
    for frame in (bomb, silent):
        tracemalloc.start()
        log = opened(frame + seek_table([(len(frame), 100)]))
        with pytest.raises(CorruptCommitError, match=r"compressed frame|bytes of a frame's content"):
            log.read(0, 10)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


@pytest.mark.parametrize("change", [slice(0, 1), slice(1, 2)])
def test_less_content_than_stated_and_bytes_after_a_frame_are_errors(change: slice) -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"content")
    cases = [frame + seek_table([(len(frame), 8)]), frame + b"more" + seek_table([(len(frame) + 4, 7)])]
    for data in cases[change]:
        with pytest.raises(CorruptCommitError, match=r"offset 0: .*content"):
            opened(data).read(0, 8)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        ConfigError, match=r"log is compressed; reading it needs zstandard; run: pip install .*\[spacetimedb\]"
    ):
        opened(compress([b"content"]))
