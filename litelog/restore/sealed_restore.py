"""Restores sealed segments: reads footers ahead, then runs of frames concurrently, and writes each at its place.

It checks the footer, including its SHA-256, against the object that names the sealed segment. It checks each frame
against the footer, by the CRC-32C of its bytes, the content checksum that it ends with and the CRC-32C of its content.
It checks the commits' checksums and sequences, also against the footer. So it accepts only bytes that were sealed under
that SHA-256. It can read frames in any order, and restore a log segment whole or in part.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Protocol

from litelog.codec.checksum import combine, crc32c
from litelog.codec.frame_codecs import DECODERS
from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, ReplicaGapError
from litelog.formats import Expectation
from litelog.objects.frame_table import frames_of
from litelog.objects.sealed_decoding import DecodedRun, check_run
from litelog.reading.sealed_reader import open_sealed
from litelog.restore.commit_writer import WrittenRun
from litelog.restore.journal import VerifiedBytes
from litelog.restore.plan import RestoredObject
from litelog.system.files import begin_write_back, write_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from litelog.formats import LogFormat, Scan
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.reading.sealed_reader import OpenedSealed
    from litelog.restore.commit_writer import SegmentFiles
    from litelog.restore.journal import Journal
    from litelog.restore.plan import SealedSpan
    from litelog.stores.replica_client import ReplicaClient

GROUP_LOG_BYTES = 12 << 20
"""The most bytes of the log that one ranged GET reads; more if a commit is larger. A worker holds one run of them at a
time, and all of them only if an earlier restore has written them."""


@dataclass(frozen=True, slots=True)
class OpenedSegment:
    """A sealed segment whose footer matches the plan, and the groups into which its frames are divided."""

    piece: SealedSpan
    sealed: OpenedSealed
    groups: tuple[tuple[range, ...], ...]
    """Runs of frames that are read together; at least one group."""
    next_before: int | None
    """The sequence that follows the log segment before it; None if it is not known."""

    @property
    def footer(self) -> SealedFooter:
        return self.sealed.footer

    def bytes_of(self, number: int) -> VerifiedBytes:
        """The bytes of the log segment that the group of that number covers."""
        entry, content = self.piece.entry, self.footer.frames.content_range(frames_of(self.groups[number]))
        return VerifiedBytes(entry.file, entry.digest, content.start, content.stop)


class SealedWriter(Protocol):
    """Restores sealed segments."""

    def jobs(self, piece: SealedSpan, next_before: int | None) -> Sequence[Callable[[], RestoredObject]]:
        """Open a sealed segment. Returns the jobs that restore it. They run on any threads, and are started in
        order."""


class SealedRestorer:
    """Restores sealed segments from a replica, in groups of frames."""

    def __init__(
        self,
        client: ReplicaClient,
        files: SegmentFiles,
        log_format: LogFormat,
        journal: Journal,
        check_stop: Callable[[], None],
    ) -> None:
        """``check_stop`` raises if the restore was stopped."""
        self._client = client
        self._files = files
        self._format = log_format
        self._journal = journal
        self._check_stop = check_stop

    def jobs(self, piece: SealedSpan, next_before: int | None) -> list[Callable[[], RestoredObject]]:
        """As in ``SealedWriter``. This method and the jobs raise CorruptionError or StoreError for unreadable data."""
        opened = self.open(piece, next_before)
        return [partial(self.write, opened, number) for number in range(len(opened.groups))]

    def open(self, piece: SealedSpan, next_before: int | None) -> OpenedSegment:
        """Read a sealed segment's footer."""
        self._check_stop()
        try:
            sealed = open_sealed(self._client, piece.entry)
        except NotFoundError as error:
            raise ReplicaGapError(piece.entry.key) from error
        opened = OpenedSegment(piece, sealed, _groups(piece, sealed.footer), next_before)
        self._files.expect(piece.entry.index, len(opened.groups))
        return opened

    def write(self, opened: OpenedSegment, number: int) -> RestoredObject:
        """Restore the group of that number."""
        file = self._open_file(opened)
        parts = self._reuse(opened, number, file)
        if parts is None:
            parts = self._write(opened, opened.groups[number], file)
            self._note(opened, number, file, parts)
        return self._finish(opened, number, parts)

    def write_bytes(self, opened: OpenedSegment, number: int, data: Buffer) -> RestoredObject:
        """Restore a group from its bytes, which come from another source. Raises CorruptionError if they do not
        match."""
        file = self._open_file(opened)
        parts = self._write_runs(opened, opened.groups[number], file, data)
        self._note(opened, number, file, parts)
        return self._finish(opened, number, parts)

    def _open_file(self, opened: OpenedSegment) -> int:
        return self._files.open(opened.piece.entry.index, opened.piece.entry.file)

    def _note(self, opened: OpenedSegment, number: int, file: int, parts: Sequence[WrittenRun]) -> None:
        """Begin to write a group to disk, and add it to the journal."""
        if parts:
            verified = opened.bytes_of(number)
            begin_write_back(file, verified.start, verified.stop - verified.start)
            self._journal.add(verified)

    def _finish(self, opened: OpenedSegment, number: int, parts: Sequence[WrittenRun]) -> RestoredObject:
        is_last = number == len(opened.groups) - 1
        self._files.done(opened.piece.entry.index)
        if is_last:
            self._journal.sync()
        return RestoredObject(tuple(parts), objects=int(is_last))

    def _write(self, opened: OpenedSegment, group: Sequence[range], file: int) -> list[WrittenRun]:
        """Write a group as it is received, and return its parts."""
        parts, sealed = [], opened.sealed
        try:
            for run, body in sealed.receive(group):
                self._check_stop()
                decoded = sealed.read_run(run, self._format, body)
                parts.append(self._write_run(opened, run, decoded, file))
        except NotFoundError as error:
            raise ReplicaGapError(sealed.entry.key) from error
        return parts

    def _reuse(self, opened: OpenedSegment, number: int, file: int) -> list[WrittenRun] | None:
        """The parts of a group whose bytes an earlier restore left; None if it left none, or if they have changed."""
        verified, piece = opened.bytes_of(number), opened.piece
        if not self._journal.holds(verified) or verified.start < piece.start or verified.stop > piece.stop:
            return None
        data = os.pread(file, verified.stop - verified.start, verified.start)
        try:
            return self._write_runs(opened, opened.groups[number], None, data)
        except CorruptionError:
            return None

    def _write_runs(
        self, opened: OpenedSegment, group: Sequence[range], file: int | None, data: Buffer
    ) -> list[WrittenRun]:
        """Check a group's bytes of the log, and write them to ``file``; None: they are written already.

        Raises CorruptionError if they do not match the footer's checksums.
        """
        parts, key, frames, whole = [], opened.piece.entry.key, opened.footer.frames, memoryview(data)
        first = frames.content_range(frames_of(group)).start
        for run in group:
            for number in run:
                at = frames.offsets[number] - first
                _check_frame(key, opened.footer, number, whole[at : at + frames.lengths[number]])
            content = frames.content_range(run)
            view = whole[content.start - first : content.stop - first]
            scan = check_run(key, opened.footer, run, view, self._format)
            parts.append(self._write_run(opened, run, DecodedRun(view, scan), file))
        return parts

    def _write_run(self, opened: OpenedSegment, run: range, decoded: DecodedRun, file: int | None) -> WrittenRun:
        piece, scan = opened.piece, decoded.scan
        if run.start == 0 and piece.start == 0:
            self._check_continues(opened, decoded)
        start, stop = max(piece.start, decoded.start), min(piece.stop, decoded.start + len(decoded.data))
        if piece.start and start == piece.start:
            _check_before(piece, opened.footer, run, decoded.data[: start - decoded.start])
        if (start, stop) != (decoded.start, decoded.start + len(decoded.data)):
            scan = self._scan_part(opened, run, decoded, start, stop)
        if file is not None:
            write_at(file, decoded.data[start - decoded.start : stop - decoded.start], start)
        return WrittenRun(piece.entry.key, stop - start, decoded.scan, scan)

    def _check_continues(self, opened: OpenedSegment, decoded: DecodedRun) -> None:
        """Raise SequenceGapError if the first commit does not follow the log segment before. Some formats do not
        show that."""
        expected = opened.next_before
        if expected is not None and decoded.scan.first not in (None, expected):
            self._format.scan(opened.footer.path, decoded.data, 0, Expectation(expected))

    def _scan_part(self, opened: OpenedSegment, run: range, decoded: DecodedRun, start: int, stop: int) -> Scan:
        """The scan of bytes [start, stop) of a run, which begin and end with commits."""
        piece, expect = opened.piece, Expectation(opened.footer.frames.firsts[run.start])
        path, data, at = opened.footer.path, decoded.data, decoded.start
        if start > at:
            head = self._format.scan(path, data[: start - at], at, expect)
            _require_end(piece, start, head.end)
            data, at, expect = data[start - at :], start, head.expectation
        scan = self._format.scan(path, data[: stop - at], at, expect)
        if stop < piece.entry.length:
            _require_end(piece, stop, scan.end)
        return scan


def _check_frame(key: str, footer: SealedFooter, number: int, data: memoryview) -> None:
    """Check the content of a frame by the checksum with which the frame ends."""
    stated, checksum = footer.frames.checksums[number], DECODERS[footer.codec].checksum(data)
    if checksum != stated:
        raise CorruptObjectError(key, f"content checksum of frame {number}", f"{stated:#010x}", f"{checksum:#010x}")


def _require_end(piece: SealedSpan, expected: int, actual: int) -> None:
    if expected != actual:
        raise CorruptObjectError(piece.entry.key, "end of the last whole commit", expected, actual)


def _groups(piece: SealedSpan, footer: SealedFooter) -> tuple[tuple[range, ...], ...]:
    """At least one group: also an empty piece has a file."""
    frames = footer.frames
    runs = frames.runs(frames.for_offsets(piece.start, piece.stop))
    return tuple(map(tuple, frames.groups(runs, GROUP_LOG_BYTES))) or ((),)


def _check_before(piece: SealedSpan, footer: SealedFooter, run: range, head: memoryview) -> None:
    """Check the bytes before ``piece`` (the frames before ``run``, and ``head``) against the CRC-32C that the WAL
    segments state."""
    total = crc32c(head, _crc_of(footer, run.start))
    if total != piece.crc_before:
        what = f"CRC-32C up to {piece.start}"
        raise CorruptObjectError(piece.entry.key, what, f"{piece.crc_before:#x}", f"{total:#x}")


def _crc_of(footer: SealedFooter, frames: int) -> int:
    """CRC-32C of the content of the first ``frames`` frames."""
    total = 0
    for crc, length in zip(footer.frames.crcs[:frames], footer.frames.lengths[:frames], strict=True):
        total = combine(total, crc, length)
    return total
