"""Positions in a followed log, and the runs between them: values, no I/O."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine, crc32c
from litelog.dataclass import dataclass
from litelog.formats import Expectation

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from litelog.formats import Scan

CHECKED_BYTES = 64 << 10
"""How many bytes of the last commit are compared with the source before each run: enough to recognise another
history."""

LEAST_CHECKED_BYTES = 1 << 10
"""The fewest bytes that are compared, if as many were read at once: a text's last line may be empty, or one brace."""

FEW_BYTES = 16 << 10
"""The number of bytes up to which a second checksum over them takes less time than joining two checksums."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A follower's position in a log. Offsets are bytes of log segment ``file``."""

    index: int
    file: str
    """Empty at the start of an index that has no log segment yet."""
    finished: str = ""
    """The finished log segment of the index before."""
    finished_end: int | None = None
    """The offset at which it was finished. It may neither grow nor change after that."""
    finished_start: int = 0
    finished_digest: str = ""
    """SHA-256, hex, of its last bytes [finished_start, finished_end)."""
    offset: int = 0
    crc_total: int = 0
    """CRC-32C of [0, offset)."""
    sequence: int | None = None
    """The sequence that follows; None if the log decides."""
    epoch: int = 0
    check_start: int = 0
    check_digest: str = ""
    """SHA-256, hex, of [check_start, offset): the end of the last commit, or of several small ones. A CRC-32C detects
    damage, but does not distinguish histories: if a commit ends with its own CRC-32C, any CRC-32C over it is the same,
    no matter what it holds."""
    checksum: int | None = None
    """The last commit's checksum, if the format states it in its scans."""

    @property
    def expectation(self) -> Expectation:
        """The expectation for the next commit."""
        return Expectation(self.sequence, self.epoch, self.checksum)


@dataclass(frozen=True, slots=True)
class CommitRun:
    """A run of whole commits of one log segment, durable at the source: bytes [start.offset, start.offset + length)."""

    start: SourcePosition
    data: memoryview
    scan: Scan | None
    """None if ``data`` is empty."""
    crc: int
    """CRC-32C of ``data``."""
    end: SourcePosition
    """The position after it, in the same index."""
    final: bool
    """Whether the log segment is finished: the next run belongs to the next index."""
    more: bool = False
    """Whether bytes followed it when it was read."""

    @property
    def after(self) -> SourcePosition:
        """The position at which the next run starts."""
        if not self.final:
            return self.end
        end = self.end
        return SourcePosition(
            index=end.index + 1,
            file="",
            finished=end.file,
            finished_end=end.offset,
            finished_start=end.check_start,
            finished_digest=end.check_digest,
            sequence=end.sequence,
            epoch=end.epoch,
            checksum=end.checksum,
        )


def digest(data: Buffer) -> str:
    """Return the SHA-256, hex, that distinguishes one history from another."""
    return hashlib.sha256(data).hexdigest()


def begin_check(scan: Scan, end: int) -> int:
    """Return from which offset on the bytes up to ``end`` are compared; ``scan`` found the last commit in them."""
    return max(0, end - CHECKED_BYTES, min(scan.last_commit, end - LEAST_CHECKED_BYTES))


def make_run(
    place: SourcePosition, data: memoryview, scan: Scan | None, *, final: bool, more: bool = False
) -> CommitRun:
    """Return the run from ``place`` to the end of ``scan``, which scanned ``data``."""
    if scan is None or scan.end == place.offset:
        return CommitRun(place, memoryview(b""), None, 0, place, final, more or final)
    data = data[: scan.end - place.offset]
    crc = crc32c(data)
    check_start = max(place.offset, begin_check(scan, scan.end))
    end = SourcePosition(
        index=place.index,
        file=place.file,
        finished=place.finished,
        finished_end=place.finished_end,
        finished_start=place.finished_start,
        finished_digest=place.finished_digest,
        offset=scan.end,
        crc_total=crc32c(data, place.crc_total) if len(data) <= FEW_BYTES else combine(place.crc_total, crc, len(data)),
        sequence=scan.next,
        epoch=scan.epoch,
        check_start=check_start,
        check_digest=digest(data[check_start - place.offset :]),
        checksum=scan.checksum,
    )
    return CommitRun(place, data, scan, crc, end, final, more or final)
