"""The framing format of snappy: streams that another library wrote are read, and damage is an error."""

from __future__ import annotations

import sys
from random import Random

import cramjam
import pytest

from litelog.codec.framed_snappy import IDENTIFIER, decompress_framed_snappy
from litelog.errors import ConfigError

LIMIT = 1 << 20


def read(stream: bytes, limit: int = LIMIT) -> bytes:
    return decompress_framed_snappy(memoryview(stream), limit, "netlog")


def written(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(content))


@pytest.mark.parametrize("length", [1, 100, 1 << 16, (1 << 16) + 1, 300_000])
def test_what_another_library_wrote_is_read(length: int) -> None:
    for content in (Random(length).randbytes(length), (b"words " * length)[:length]):
        assert read(written(content)) == content


def test_chunks_that_may_be_skipped_are_skipped() -> None:
    stream = written(b"one")
    padded = IDENTIFIER + bytes.fromhex("fe030000") + b"xyz" + bytes.fromhex("80000000") + stream
    assert read(padded) == b"one"


def test_a_stream_that_holds_more_than_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 99999"):
        read(written(bytes(100_000)), 99_999)


def test_every_flipped_bit_is_an_error_or_changes_nothing() -> None:
    content = b"some words, some words, some words"
    stream = written(content)
    for bit in range(8 * len(stream)):
        flipped = bytearray(stream)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = read(bytes(flipped))
        except ValueError:
            continue
        assert found in (content, b"")  # a chunk whose type became one that may be skipped


@pytest.mark.parametrize(
    "stream", ["", "ff0600", "ff060000734e61507059 02000000", "ff060000734e61507059 0008000000000000ffffff7f"]
)
def test_what_is_no_stream_is_refused(stream: str) -> None:
    with pytest.raises(ValueError, match="snappy"):
        read(bytes.fromhex(stream))


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(ConfigError, match="netlog"):
        read(written(b"one"))
