"""Puts any JSON documents into objects, valid or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.lz4_frames import compress_frames, skippable_frame
from litelog.objects import sealed_segment

if TYPE_CHECKING:
    from collections.abc import Callable


def frames_of(document: bytes) -> bytes:
    return b"".join(compress_frames(document))


def footer_of(body: bytes) -> bytes:
    """A sealed segment that consists of a footer alone, with the right checksum.

    ``body``: the footer's document, in frames.
    """
    size = 8 + len(body) + 16
    whole = skippable_frame(body + sealed_segment._TRAILER.pack(1, 0, size, 0, b"seal"))
    return whole[:-8] + crc32c(whole[:-8]).to_bytes(4, "little") + b"seal"


def set_field(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    """A function that sets a field of decoded JSON. A dot in ``name`` leads into an object."""
    *parts, last = name.split(".")

    def change(fields: dict[str, Any]) -> None:
        for part in parts:
            fields = fields[part]
        fields[last] = value

    return change
