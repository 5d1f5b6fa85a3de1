"""Sealed segments for tests: made from bytes in memory, and read back with every check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.frame_codecs import Compression
from litelog.formats import Expectation
from litelog.objects.claim import Claim, Relation
from litelog.objects.position import Generation
from litelog.objects.sealed_decoding import decode_run
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.sealed_segment import read_footer

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from litelog.formats import LogFormat
    from litelog.objects.sealed_segment import SealedFooter
    from tests.builders.log_builder import LogBuilder

GENERATION = Generation("0000000100000000")
SHIPPED = 1_700_000_000_000_000


def finished(log: LogBuilder, **changes: Any) -> FinishedSegment:
    """The newest log segment of ``log``, as its ``final`` would describe it."""
    data = log.texts[log.name]
    known: dict[str, Any] = {
        "claim": Claim("0" * 32, log.format.name, "owner", "host", GENERATION, 0, Relation.FIRST, 0),
        "index": 3,
        "file": log.name,
        "length": len(data),
        "crc": crc32c(data),
        "previous": "ab" * 32,
        "shipped": SHIPPED,
        "expect": Expectation(0),
    }
    return FinishedSegment(**{**known, **changes})


def sealing(
    log: LogBuilder,
    executor: Executor | None = None,
    frame_bytes: int = 1 << 20,
    compression: Compression = Compression.LZ4,
    may_hand_over: Callable[[], bool] = lambda: True,
    **changes: Any,
) -> Sealing:
    """The sealing of the newest log segment of ``log``."""
    data = log.texts[log.name]

    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    segment = finished(log, **changes)
    return Sealing(
        segment,
        read,
        log.format,
        executor,
        compression=compression,
        frame_bytes=frame_bytes,
        may_hand_over=may_hand_over,
    )


def footer_of(key: str, body: bytes) -> SealedFooter:
    """The footer, read from the object's end."""
    return read_footer(key, lambda start, length: body[start : start + length], len(body))


def unseal(key: str, body: bytes, log_format: LogFormat) -> tuple[SealedFooter, bytes]:
    """The footer and the log segment's bytes, after every check."""
    footer = footer_of(key, body)
    pieces = []
    for run in footer.frames.runs():
        start, stop = footer.frames.starts[run.start], footer.frames[run.stop - 1].stop
        pieces.append(decode_run(key, footer, run, body[start:stop], log_format).data)
    return footer, b"".join(pieces)
