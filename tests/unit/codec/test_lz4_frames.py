"""LZ4 frames come back as they went in, and nothing else does."""

from __future__ import annotations

import struct
import subprocess
import sys
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import lz4.block
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.lz4_frames import (
    FRAME_BYTES,
    MAX_FRAME_BYTES,
    BlockDecompressor,
    FrameError,
    block_decompressor,
    compress_frame,
    compress_frames,
    cut_frames,
    decompress_by_package,
    decompress_foreign,
    decompress_frame,
    decompress_frames,
    decompress_joined,
    skippable_frame,
    store_frame,
    store_frames,
    walk_frames,
)

LIMIT = 16 << 20

Decompress = Callable[[memoryview, int], memoryview]

BODY = Random(1).randbytes(700) * 3 + Random(2).randbytes(900)


@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=5), st.binary(max_size=50))
def test_frames_hold_the_bytes_that_were_put_in(pieces: list[bytes], facts: bytes) -> None:
    body = skippable_frame(facts) + b"".join(compress_frame(piece) for piece in pieces)
    frames = list(walk_frames(body))
    assert [(frame.size, frame.skippable) for frame in frames] == [(len(facts), True)] + [
        (len(p), False) for p in pieces
    ]
    assert [frame.start for frame in frames[1:]] + [len(body)] == [frame.end for frame in frames]
    assert decompress_frames(body, LIMIT) == b"".join(pieces)


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES + 7])
def test_large_data_is_cut_into_frames_the_same_with_and_without_threads(size: int) -> None:
    data = Random(size).randbytes(min(size, 100_000)) * (size // 100_000 + 1)
    data = data[:size]
    alone = compress_frames(data)
    with ThreadPoolExecutor(2) as pool:
        assert compress_frames(memoryview(data), pool) == alone
    sizes = [frame.size for frame in walk_frames(b"".join(alone))]
    assert sum(sizes) == size
    assert all(0 < size <= FRAME_BYTES for size in sizes)
    assert decompress_frames(b"".join(alone), size) == data


def test_data_of_wider_items_is_taken_as_bytes() -> None:
    numbers = array("q", range(FRAME_BYTES // 4))
    assert decompress_frames(b"".join(compress_frames(numbers)), LIMIT) == numbers.tobytes()


def test_every_lz4_reader_gets_the_same_bytes() -> None:
    body = skippable_frame(b"facts") + compress_frame(BODY)
    assert lz4.frame.decompress(body[13:]) == BODY


@pytest.mark.parametrize("size", [1, 48, FRAME_BYTES, 2 * FRAME_BYTES + 3])
def test_stored_bytes_are_a_frame_to_every_reader(size: int) -> None:
    data = memoryview(Random(size).randbytes(size))
    body = b"".join(store_frames(data))
    frames = list(walk_frames(body))
    assert [frame.size for frame in frames] == [len(piece) for piece in cut_frames(data)]
    assert decompress_frames(body, size) == data
    assert decompress_joined(body, frames) == data
    assert decompress_foreign(body, size) == data


def test_stored_bytes_are_not_copied() -> None:
    data = memoryview(BODY)
    assert store_frames(data)[1].obj is BODY
    body = b"".join(store_frames(data))
    assert decompress_joined(body, list(walk_frames(body))).obj is body


@pytest.mark.parametrize("size", [0, MAX_FRAME_BYTES + 1])
def test_frame_that_no_reader_would_take_is_not_made(size: int) -> None:
    with pytest.raises(ValueError, match="a frame holds 1 to"):
        store_frame(memoryview(bytes(size)))


@pytest.mark.slow
@pytest.mark.parametrize("make", [compress_frame, lambda data: b"".join(store_frames(data))], ids=["lz4", "stored"])
def test_any_flipped_bit_is_an_error_or_harmless(make: Callable[[bytes], bytes]) -> None:
    body = bytearray(make(BODY))
    found = 0
    for bit in range(len(body) * 8):
        body[bit // 8] ^= 1 << bit % 8
        try:
            assert (
                decompress_frames(body, LIMIT) == BODY
            )  # a match may be copied from another place with the same bytes
        except FrameError:
            found += 1
        body[bit // 8] ^= 1 << bit % 8
    assert found > len(body) * 8 * 0.99


def test_every_cut_is_an_error() -> None:
    body = compress_frame(BODY[:300]) + compress_frame(BODY[300:600])
    whole = len(compress_frame(BODY[:300]))
    for size in range(len(body)):
        if size in {0, whole}:
            continue  # the ends of whole frames
        with pytest.raises(FrameError):
            decompress_frames(body[:size], LIMIT)
    for size in range(8 + 5):
        if size:
            with pytest.raises(FrameError):
                list(walk_frames(skippable_frame(b"facts")[:size]))


@given(st.binary(max_size=300), st.binary(max_size=40))
def test_garbage_is_an_error(garbage: bytes, behind: bytes) -> None:
    head = compress_frame(b"good")
    for body in (garbage, head + garbage, head[:4] + garbage, head[:15] + garbage + behind):
        try:
            content = decompress_frames(body, LIMIT)
        except FrameError:
            continue
        assert content in {b"", b"good"}


def frame_of(**options: object) -> bytes:
    chosen = {"content_checksum": True, "store_size": True, "block_linked": False, "block_size": 4, **options}
    frame: bytes = lz4.frame.compress(BODY * 100, **chosen)
    return frame


@pytest.mark.parametrize("option", ["content_checksum", "store_size"])
def test_a_frame_without_its_checks_is_refused(option: str) -> None:
    with pytest.raises(FrameError, match="flags"):
        list(walk_frames(frame_of(**{option: False})))


def test_a_frame_with_block_checksums_is_refused_by_name() -> None:
    with pytest.raises(FrameError, match="flags"):
        list(walk_frames(frame_of(block_checksum=True)))


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_frames_of_other_writers_are_read(linked: bool, block_size: int) -> None:
    assert decompress_frames(frame_of(block_linked=linked, block_size=block_size), LIMIT) == BODY * 100


def test_declared_sizes_are_bounded() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        list(walk_frames(lz4.frame.compress(bytes(MAX_FRAME_BYTES + 1), content_checksum=True, store_size=True)))
    two = compress_frame(bytes(600)) + compress_frame(bytes(500))
    with pytest.raises(FrameError, match="more than 1099 bytes"):
        decompress_frames(two, 1099)
    assert decompress_frames(two, 1100) == bytes(1100)


def test_a_frame_that_holds_another_length_than_it_declares_is_refused() -> None:
    frame = bytearray(compress_frame(bytes(5000)))
    for declared in (4999, 5001, 1):
        frame[6:14] = struct.pack("<Q", declared)
        with pytest.raises(FrameError):
            decompress_frames(frame, LIMIT)


def test_an_error_says_where() -> None:
    head = compress_frame(b"good")
    with pytest.raises(FrameError) as caught:
        list(walk_frames(head + b"\x04\x22\x4d\x19" + bytes(20)))
    assert caught.value.offset == len(head)


def test_a_skippable_frame_has_no_content() -> None:
    body = skippable_frame(b"facts")
    (frame,) = walk_frames(body)
    with pytest.raises(FrameError):
        decompress_frame(body, frame)


EACH_DECOMPRESSOR = pytest.mark.parametrize("decompress", [block_decompressor(), decompress_by_package])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere extensions keep to themselves what they are made of")
def test_the_faster_decompressor_is_found() -> None:
    assert isinstance(block_decompressor(), BlockDecompressor)


@pytest.mark.slow
def test_frames_are_decompressed_into_pages_without_numpy() -> None:
    """It would take half of the time of a small command."""
    script = """
import sys
from litelog.codec.lz4_frames import compress_frame, decompress_joined, walk_frames
from litelog.codec.page_buffer import lies_in_pages
body = compress_frame(b"a" * 5000) + compress_frame(b"b" * 5000)
found = decompress_joined(body, list(walk_frames(body)), 100)
print(found == b"a" * 5000 + b"b" * 5000, lies_in_pages(found, 100), "numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]


@EACH_DECOMPRESSOR
@pytest.mark.parametrize("size", [0, 1, 12, len(BODY), FRAME_BYTES, MAX_FRAME_BYTES])
def test_a_block_holds_the_bytes_that_were_put_in(decompress: Decompress, size: int) -> None:
    data = (BODY * (size // len(BODY) + 1))[:size]
    block = memoryview(b"before" + lz4.block.compress(data, store_size=False) + b"behind")[6:-6]
    assert decompress(block, size) == data


@EACH_DECOMPRESSOR
def test_decompress_raises_if_a_block_exceeds_the_given_size(decompress: Decompress) -> None:
    block = memoryview(lz4.block.compress(BODY, store_size=False))
    assert decompress(block, len(BODY) + 100) == BODY
    for room in (0, 1, len(BODY) - 1):
        with pytest.raises(RuntimeError):
            decompress(block, room)


@pytest.mark.slow
@EACH_DECOMPRESSOR
def test_a_damaged_block_is_an_error_or_gives_other_bytes(decompress: Decompress) -> None:
    block = lz4.block.compress(BODY, store_size=False)
    for size in range(len(block)):
        with suppress(RuntimeError):
            assert len(decompress(memoryview(block[:size]), len(BODY))) < len(BODY)
    wrong = []
    for bit in range(0, len(block) * 8, 7):
        changed = bytearray(block)
        changed[bit // 8] ^= 1 << bit % 8
        wrong.append(bytes(changed))
    found = 0
    for each in wrong:
        with suppress(RuntimeError):
            found += decompress(memoryview(each), len(BODY)) == BODY
    assert found < len(wrong) / 20
