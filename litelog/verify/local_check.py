"""Local logs: whether the commits of one hold, and whether one is the beginning of another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError, SourceError
from litelog.formats import Expectation, FinishedTail
from litelog.verify.local_compare import READ_BYTES, LocalLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.formats import LogFormat, Scan


def check_log(folder: str, log_format: LogFormat) -> int:
    """Check every commit of the log in ``folder``, by its format: how many records there are.

    CorruptCommitError, SequenceGapError, WrongFormatError; SourceError where it cannot be read.
    """
    log = LocalLog(folder, log_format)
    records, expect = 0, Expectation()
    for name in log.names:
        for scan in _scans(log, name, log_format, expect):
            records += scan.records
            expect = scan.expectation
    return records


def compare_logs(folder: str, source: str, log_format: LogFormat) -> int:
    """Check that every log segment in ``folder`` is, byte for byte, one in ``source`` or the beginning of one: how many
    bytes were compared. CorruptCommitError names the first place where they differ."""
    restored, original = LocalLog(folder, log_format), LocalLog(source, log_format)
    compared = 0
    for name in restored.names:
        size = restored.size(name)
        if original.size(name) < 0 and original.is_older(name):
            continue  # the source has dropped it
        offset = 0
        for mine, theirs in zip(restored.pieces(name, 0, size), _padded(original, name, size), strict=True):
            if mine != theirs:
                at = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), len(theirs))
                path = os.path.join(folder, name)
                raise CorruptCommitError(path, offset + at, "byte", theirs[at : at + 1], mine[at : at + 1])
            offset += len(mine)
        compared += offset
    return compared


def _padded(log: LocalLog, name: str, size: int) -> Iterator[bytes]:
    """A log segment's pieces, as many as one of ``size`` bytes has: empty ones where it is shorter."""
    pieces = log.pieces(name, 0, size) if log.size(name) >= 0 else iter(())
    for _ in range(0, size, READ_BYTES):
        yield next(pieces, b"")


def _scans(log: LocalLog, name: str, log_format: LogFormat, expect: Expectation) -> Iterator[Scan]:
    """The scans of a whole log segment, run by run."""
    path, size = os.path.join(log.folder, name), log.size(name)
    offset, want = 0, READ_BYTES
    while offset < size:
        data = memoryview(b"".join(log.pieces(name, offset, min(size, offset + want))))
        if not data:
            raise SourceError(f"{path}: became shorter while it was read")
        scan = log_format.scan(path, data, offset, expect)
        yield scan
        expect = scan.expectation
        if scan.end > offset:
            offset, want = scan.end, READ_BYTES
        elif len(data) < size - offset:
            want = max(2 * want, scan.wanted)
        else:
            if log_format.finished_tail is FinishedTail.SHIP:
                return
            if scan.damage is None:
                raise CorruptCommitError(path, offset, "commit", "a whole one", "cut off")
            raise CorruptCommitError(path, offset, scan.damage.what, scan.damage.expected, scan.damage.actual)
