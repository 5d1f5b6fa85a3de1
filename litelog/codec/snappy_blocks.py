"""Blocks of raw snappy, which the streams of snappy-java and the framing format consist of.

A block begins with the length of its content, as a varint. cramjam decompresses it, and is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from litelog.errors import ConfigError
from litelog.installation import install_command

_MAX_VARINT_BYTES = 5
_MAX_RATIO = 64  # three bytes of a block copy at most 64


class SnappyBlocks:
    """Decompresses blocks."""

    def __init__(self, extra: str) -> None:
        """``extra``: the extra of litelog that installs cramjam. Raises ConfigError if cramjam is not installed."""
        try:
            self._snappy: Any = importlib.import_module("cramjam").snappy
        except ImportError as error:
            raise ConfigError(f"records compressed with snappy need cramjam; run: {install_command(extra)}") from error

    def decompress_into(self, block: memoryview, content: memoryview) -> None:
        """Fill ``content``, which has the size that the block states. Raises ValueError if the block is damaged."""
        try:
            written = self._snappy.decompress_raw_into(block, content) if len(content) else 0
        except Exception as error:  # noqa: BLE001  # cramjam.DecompressionError, and what else damaged bytes cause
            raise ValueError(f"not a snappy block: {error}") from None
        if written != len(content):
            raise ValueError(f"a snappy block of {written} bytes that states {len(content)}")


def block_size(block: memoryview) -> int:
    """Return how many bytes a block states that it holds. Raises ValueError if it cannot hold that many."""
    size = 0
    for place, byte in enumerate(block[:_MAX_VARINT_BYTES]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if size > len(block) * _MAX_RATIO:
                raise ValueError(f"a snappy block that states {size}, more than {len(block) * _MAX_RATIO} bytes")
            return size
    raise ValueError("a snappy block without a length")
