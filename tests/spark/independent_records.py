"""Decodes the records in a log's bytes with struct alone, as FORMATS describes them: a second opinion."""

from __future__ import annotations

import struct
from typing import NamedTuple


class Row(NamedTuple):
    """A record, and where it lies."""

    sequence: int
    timestamp: int
    """Microseconds since 1970."""
    key: bytes | None
    value: bytes
    index: int
    offset: int


def decode(texts: dict[int, bytes]) -> list[Row]:
    """The records of log segments, by their index; each with its header and whole commits."""
    rows: list[Row] = []
    for index, text in sorted(texts.items()):
        at = 64
        while at < len(text):
            found, at = _commit(text, index, at)
            rows += found
    return rows


def _commit(text: bytes, index: int, at: int) -> tuple[list[Row], int]:
    first, _, count, length = struct.unpack_from("<QQHI", text, at)
    body = at + 22
    _, flags, _, stamp = struct.unpack_from("<BBQq", text, body)
    place = body + 18
    stamps = [stamp] * count
    if flags & 2:
        stamps = list(struct.unpack_from(f"<{count}q", text, place))
        place += 8 * count
    lengths = struct.unpack_from(f"<{count}I", text, place)
    place += 4 * count
    keys: list[bytes | None] = [None] * count
    if flags & 1:
        held = struct.unpack_from(f"<{count}i", text, place)
        place += 4 * count
        for number, size in enumerate(held):
            keys[number] = None if size < 0 else text[place : place + size]
            place += max(size, 0)
    rows = []
    for number, size in enumerate(lengths):
        value = text[place : place + size]
        rows.append(Row(first + number, stamps[number], keys[number], value, index, place))
        place += size
    return rows, body + length + 4
