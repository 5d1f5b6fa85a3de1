"""Replaces the bytes of lost sealed segments by those of the replica's own WAL segments, or of other replicas.

The SHA-256 of the log segment, or the checksums of its frames, prove the bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, CorruptObjectError, StoreError, UnknownVersionError
from litelog.formats import Expectation
from litelog.objects.frame_table import ShipTimes
from litelog.restore.commit_writer import WrittenRun
from litelog.restore.plan import RepairedRange, RestoredObject
from litelog.restore.repair.fallbacks import NoFallbackError
from litelog.system.files import write_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from litelog.formats import Commit, LogFormat
    from litelog.objects.position import Position
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.restore.commit_writer import SegmentFiles
    from litelog.restore.generation_bytes import ByteRun
    from litelog.restore.object_lookup import Lookup
    from litelog.restore.plan import SealedSpan
    from litelog.restore.repair.fallbacks import FallbackBytes
    from litelog.restore.sealed_restore import OpenedSegment, SealedRestorer


class SealedLookup:
    """A plan's look-up that also works for lost sealed segments, if another source has their bytes."""

    def __init__(self, inner: Lookup, fallback_bytes: FallbackBytes, log_format: LogFormat) -> None:
        self._inner = inner
        self._bytes = fallback_bytes
        self._format = log_format

    def headers(self, positions: Sequence[Position]) -> list[WalHeader]:
        return self._inner.headers(positions)

    def commits(self, header: WalHeader) -> list[Commit]:
        return self._inner.commits(header)

    def entry(self, header: WalHeader) -> SnapshotEntry:
        return self._inner.entry(header)

    def commits_around(
        self, entry: SnapshotEntry, run_of: Callable[[SealedFooter], range]
    ) -> tuple[int, Iterable[Commit]]:
        try:
            return self._inner.commits_around(entry, run_of)
        except CorruptionError as error:
            return 0, self._all_commits(entry, error)

    def marks(self, entry: SnapshotEntry) -> ShipTimes:
        try:
            return self._inner.marks(entry)
        except (CorruptionError, UnknownVersionError):
            headers = [header for header in self._bytes.wal_headers(entry) if header.length]
            marks = ShipTimes(tuple(header.end for header in headers), tuple(header.shipped for header in headers))
            if not headers or headers[0].offset or marks.offsets[-1] != entry.length:
                raise
            return marks

    def _all_commits(self, entry: SnapshotEntry, cause: CorruptionError) -> Iterator[Commit]:
        """Yield the commits of a lost sealed segment from other sources; raise ``cause`` at the first commit that no
        source has."""
        expect = Expectation(entry.first)
        try:
            for chunk in self._bytes.chunks(entry, 0, entry.length, proven=True):
                yield from self._format.commits(entry.file, chunk.data, chunk.start, expect)
                expect = self._format.scan(entry.path, chunk.data, chunk.start, expect).expectation
        except NoFallbackError:
            raise cause from None


class SealedRepair:
    """Restores sealed segments through ``inner``, and from other sources those that ``inner`` cannot restore."""

    def __init__(
        self, inner: SealedRestorer, fallback_bytes: FallbackBytes, log_format: LogFormat, files: SegmentFiles
    ) -> None:
        self._inner = inner
        self._bytes = fallback_bytes
        self._format = log_format
        self._files = files

    def jobs(self, piece: SealedSpan, next_before: int | None) -> list[Callable[[], RestoredObject]]:
        """As in ``SealedWriter``. A job raises the damage of the sealed segment if no other source has the bytes."""
        try:
            opened = self._inner.open(piece, next_before)
        except (CorruptionError, StoreError) as error:
            self._files.expect(piece.entry.index, 1)
            return [partial(self._replace_all, piece, error)]
        return [partial(self._write, opened, number) for number in range(len(opened.groups))]

    def _write(self, opened: OpenedSegment, number: int) -> RestoredObject:
        try:
            return self._inner.write(opened, number)
        except (CorruptionError, StoreError) as error:
            return self._replace_group(opened, number, error)

    def _replace_group(self, opened: OpenedSegment, number: int, cause: CorruptionError | StoreError) -> RestoredObject:
        """Restore some frames from bytes that match their checksums."""
        verified, repaired = opened.bytes_of(number), []
        data = bytearray(verified.stop - verified.start)
        for chunk in self._chunks(opened.piece, verified.start, verified.stop, cause):
            data[chunk.start - verified.start : chunk.end - verified.start] = chunk.data
            repaired.append(_repaired(opened.piece, chunk, cause))
        try:
            return replace(self._inner.write_bytes(opened, number, data), repaired=tuple(repaired))
        except CorruptionError as error:
            raise cause from error

    def _replace_all(self, piece: SealedSpan, cause: CorruptionError | StoreError) -> RestoredObject:
        """Restore a sealed segment from sources that have the whole log segment. Checks its digest."""
        entry, digest = piece.entry, hashlib.sha256()
        file = self._files.open(entry.index, entry.file)
        parts, repaired, expect = [], [], Expectation(entry.first)
        try:
            for chunk in self._chunks(piece, 0, entry.length, cause):
                digest.update(chunk.data)
                for start, data in _cut(chunk, piece):
                    scan = self._format.scan(entry.path, data, start, expect)
                    expect = scan.expectation
                    if piece.start <= start < piece.stop:
                        parts.append(WrittenRun(entry.key, write_at(file, data, start), scan, scan))
                repaired.append(_repaired(piece, chunk, cause))
        except CorruptObjectError as error:
            raise cause from error
        if digest.hexdigest() != entry.digest:
            raise cause
        self._files.done(entry.index)
        return RestoredObject(tuple(parts), tuple(repaired), objects=1)

    def _chunks(
        self, piece: SealedSpan, start: int, stop: int, cause: CorruptionError | StoreError
    ) -> Iterator[ByteRun]:
        try:
            yield from self._bytes.chunks(piece.entry, start, stop, proven=False)
        except (NoFallbackError, StoreError) as error:
            raise cause from error


def _cut(chunk: ByteRun, piece: SealedSpan) -> Iterator[tuple[int, memoryview]]:
    """Split a chunk at the ends of ``piece``; yield the offset and bytes of each part."""
    bounds = sorted({chunk.start, chunk.end, *(at for at in (piece.start, piece.stop) if chunk.start < at < chunk.end)})
    for start, end in pairwise(bounds):
        yield start, chunk.data[start - chunk.start : end - chunk.start]


def _repaired(piece: SealedSpan, chunk: ByteRun, cause: CorruptionError | StoreError) -> RepairedRange:
    entry = piece.entry
    return RepairedRange(entry.key, str(cause), entry.file, chunk.start, chunk.end, chunk.replica, chunk.generation)
