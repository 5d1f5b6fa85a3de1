"""Data that other programs compressed is decompressed up to a limit. Damage is an error."""

from __future__ import annotations

import gzip
import re
import sys
from typing import TYPE_CHECKING

import cramjam
import lz4.frame
import pytest
import zstandard

from litelog.codec.compression import (
    XERIAL_MAGIC,
    decompress_gzip,
    decompress_lz4,
    decompress_snappy,
    decompress_zstd,
)
from litelog.errors import ConfigError
from litelog.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = b"".join(b"line %d of a text\n" % number for number in range(4_000))


def xerial(content: bytes) -> bytes:
    """As snappy-java writes it: blocks of 32 KiB."""
    blocks = [bytes(cramjam.snappy.compress_raw(content[at : at + 32768])) for at in range(0, len(content), 32768)]
    head = XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
    return head + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[memoryview, int], bytes]]] = {
    "gzip": (gzip.compress, decompress_gzip),
    "lz4": (lz4.frame.compress, decompress_lz4),
    "snappy": (
        lambda content: bytes(cramjam.snappy.compress_raw(content)),
        lambda *at: decompress_snappy(*at, "kafka"),
    ),
    "xerial": (xerial, lambda *at: decompress_snappy(*at, "kafka")),
    "zstd": (zstandard.compress, lambda *at: decompress_zstd(*at, "kafka")),
    "zstd without a size": (
        zstandard.ZstdCompressor(write_content_size=False).compress,
        lambda *at: decompress_zstd(*at, "kafka"),
    ),
}


@pytest.mark.parametrize("codec", CODECS)
def test_content_comes_back_up_to_the_limit(codec: str) -> None:
    compress, decompress = CODECS[codec]
    packed = memoryview(compress(CONTENT))
    assert decompress(packed, len(CONTENT)) == CONTENT
    assert decompress(memoryview(compress(b"")), 0) == b""
    with pytest.raises(ValueError, match=f"more than {len(CONTENT) - 1} bytes"):
        decompress(packed, len(CONTENT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_an_error_or_other_content(codec: str) -> None:
    compress, decompress = CODECS[codec]
    packed = compress(CONTENT)
    errors = 0
    for place in range(0, len(packed), max(1, len(packed) // 60)):
        damaged = bytearray(packed)
        damaged[place] ^= 0x41
        try:
            assert len(decompress(memoryview(damaged), len(CONTENT))) <= len(CONTENT)
        except ValueError:
            errors += 1
    assert errors


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "xerial"])
def test_content_that_ends_early_is_an_error(codec: str) -> None:
    compress, decompress = CODECS[codec]
    with pytest.raises(ValueError, match=r"."):
        decompress(memoryview(compress(CONTENT))[:-20], len(CONTENT))


def test_a_snappy_block_that_states_a_huge_size_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(ValueError, match="more than 448 bytes"):
        decompress_snappy(memoryview(b"\xff\xff\xff\xff\x07ab"), 1 << 31, "kafka")


@pytest.mark.parametrize(("module", "codec"), [("cramjam", "snappy"), ("zstandard", "zstd")])
def test_a_missing_package_is_named_with_the_command_that_adds_it(
    module: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress, decompress = CODECS[codec]
    packed = memoryview(compress(CONTENT))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=f"need {module}; run: {re.escape(install_command('kafka'))}"):
        decompress(packed, len(CONTENT))
