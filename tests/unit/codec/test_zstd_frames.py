"""zstd frames come back as they went in, nothing else does, and no length in them is trusted."""

from __future__ import annotations

import sys
import tracemalloc
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.lz4_frames import MAX_EXPANSION, MAX_FRAME_BYTES, FrameError, content_checksum, skippable_frame
from litelog.codec.zstd_frames import (
    compress_zstd_frame,
    decompress_zstd_frame,
    find_zstd_frame,
    zstandard_problem,
    zstd_checksum,
)
from litelog.errors import ConfigError

BODY = Random(1).randbytes(700) * 3 + b"words and words " * 60

DICTIONARY = zstandard.train_dictionary(
    1024, [b"commit %d of log %d in a replica " % (n, n * n) * 3 for n in range(500)]
)


def decompress(data: bytes) -> bytes:
    return bytes(decompress_zstd_frame(data, find_zstd_frame(data)))


def compressor(**options: object) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(**{"level": 1, "write_checksum": True, **options})  # type: ignore[arg-type]


@given(st.binary(min_size=1, max_size=3000) | st.integers(1, 200_000).map(bytes))
def test_a_frame_holds_the_bytes_that_were_put_in(data: bytes) -> None:
    frame = compress_zstd_frame(memoryview(data))
    assert decompress(frame) == data
    assert len(frame) * MAX_EXPANSION >= len(data)
    assert content_checksum(frame) == zstd_checksum(data)
    assert find_zstd_frame(frame).size == len(data)


def test_rows_that_are_half_random_take_less_than_three_quarters() -> None:
    draw = Random(2)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randrange(3, 10))) for _ in range(2000)]
    rows = [draw.randbytes(500) + " ".join(draw.choices(words, k=125))[:500].encode() for _ in range(1048)]
    lines = [b'{"at":%d,"user":%d,"path":"/v1/items/%d"}' % (n, draw.randrange(10**6), n % 999) for n in range(20_000)]
    content, text = b"".join(rows), b"\n".join(lines)
    assert len(compress_zstd_frame(content)) < 377 / 512 * len(content)
    assert len(compress_zstd_frame(text)) < 1.08 * len(compressor().compress(text))


def test_text_has_a_huffman_code_also_if_nothing_in_it_repeats() -> None:
    draw = Random(3)
    lines = b"\n".join(b'{"at":%d,"body":"%s"}' % (n, b64encode(draw.randbytes(300))) for n in range(2000))
    assert len(compress_zstd_frame(lines)) < 0.8 * len(lines)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4095, 4096, 4097, 70_000])
def test_noise_of_any_size_takes_at_most_some_bytes_more(size: int) -> None:
    data = Random(size).randbytes(size)
    assert decompress(compress_zstd_frame(data)) == data
    assert len(compress_zstd_frame(data)) <= size + 24


@pytest.mark.parametrize("level", [-5, 1, 3, 9])
def test_the_content_is_written_where_it_belongs_whatever_its_blocks_are(level: int) -> None:
    data = Random(1).randbytes(150_000) + bytes(300_000) + b"words and words " * 20_000 + Random(2).randbytes(70_000)
    frame = compressor(level=level).compress(data)
    room = memoryview(bytearray(b"\xaa" * (len(data) + 20)))
    content = decompress_zstd_frame(frame, find_zstd_frame(frame), room[10:-10])
    assert content.obj is room.obj
    assert room == b"\xaa" * 10 + data + b"\xaa" * 10


def test_damage_in_the_checksum_is_found_also_in_a_buffer_of_the_caller() -> None:
    frame, room = compress_zstd_frame(BODY), memoryview(bytearray(len(BODY)))
    for bit in range(len(frame) * 8 - 32, len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError, match="checksum"):
            decompress_zstd_frame(damaged, find_zstd_frame(damaged), room)


def test_threads_make_the_same_frames_and_read_them() -> None:
    pieces = [Random(number).randbytes(300) * (number + 1) for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        frames = list(pool.map(compress_zstd_frame, pieces))
        assert list(pool.map(decompress, frames)) == pieces
    assert frames == list(map(compress_zstd_frame, pieces))


def test_every_cut_and_every_flipped_bit_is_found_or_changes_nothing() -> None:
    frame = compress_zstd_frame(BODY)
    for size in range(len(frame)):
        with pytest.raises(FrameError):
            decompress(frame[:size])
    found = 0
    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert decompress(bytes(damaged)) == BODY
        except FrameError:
            found += 1
    assert found > len(frame) * 8 - 16


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not one zstd frame"),
        (b"x" * 30, "is not one zstd frame"),
        (skippable_frame(b"facts"), "is not one zstd frame"),
        (skippable_frame(b"") * 2 + compress_zstd_frame(BODY), "is not one zstd frame"),
        (skippable_frame(b"facts")[:-1], "cut off"),
        (compress_zstd_frame(BODY)[:5], "not enough data"),
        (compress_zstd_frame(BODY) + b"x", "unused data"),
        (compress_zstd_frame(BODY) * 2, "unused data"),
        (compress_zstd_frame(BODY) + skippable_frame(b""), "unused data"),
        (compressor(write_checksum=False).compress(BODY), "no content checksum"),
        (compressor(write_content_size=False).compress(BODY), "not stated"),
        (compressor(dict_data=DICTIONARY).compress(BODY), "needs a dictionary"),
    ],
)
def test_anything_but_one_frame_of_ours_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        decompress(data)


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 1 << 30])
def test_content_over_the_limit_is_refused_before_it_takes_memory(size: int) -> None:
    chunk = bytes(1 << 20)
    stream = compressor().compressobj(size=size)
    whole, rest = divmod(size, len(chunk))
    bomb = b"".join(stream.compress(chunk) for _ in range(whole)) + stream.compress(bytes(rest)) + stream.flush()
    assert len(bomb) < 1 << 18
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match="over the limit"):
            decompress(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_content_that_is_longer_than_stated_is_refused() -> None:
    frame = bytearray(compressor().compress(bytes(60_000)))
    assert int.from_bytes(frame[5:7], "little") + 256 == 60_000  # a size of two bytes
    frame[5:7] = (1000).to_bytes(2, "little")
    with pytest.raises(FrameError):
        decompress(bytes(frame))


def test_too_large_a_window_is_refused() -> None:
    options = zstandard.ZstdCompressionParameters.from_level(1, window_log=27, write_checksum=True)
    stream = zstandard.ZstdCompressor(compression_params=options).compressobj(size=1 << 28)
    head = stream.compress(bytes(1 << 20)) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    with pytest.raises(FrameError, match="too large a window"):
        find_zstd_frame(head)


def test_the_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = compress_zstd_frame(BODY)
    assert zstandard_problem() is None
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"need zstandard; run: .*pip install .*\[zstd\]"):
        find_zstd_frame(frame)
    assert "zstandard" in (zstandard_problem() or "")
