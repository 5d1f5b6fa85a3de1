"""Log segments of NetLog and of InfluxDB's broker, written from the formats' descriptions."""

from __future__ import annotations

import struct
import zlib

NETLOG_HEADER = struct.pack(">BBI10x", 1, 16, 1_700_000_000)
"""How each log segment of NetLog begins."""


def netlog_name(first: int) -> str:
    return f"{first:020d}.data"


def netlog_message(payload: bytes, codec: int = 0) -> bytes:
    return struct.pack(">BII", codec, zlib.crc32(payload), len(payload)) + payload


def fnv(data: bytes) -> int:
    """FNV-1a of 32 bits, byte by byte."""
    state = 0x811C9DC5
    for byte in data:
        state = (state ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return state


def influx_message(index: int, data: bytes, kind: int = 100, topic: int = 200) -> bytes:
    body = struct.pack(">HQQI", kind, topic, index, len(data)) + data
    return struct.pack(">I", fnv(body)) + body
