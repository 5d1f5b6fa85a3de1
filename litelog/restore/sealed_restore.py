"""Restores sealed segments: reads footers ahead, then runs of frames concurrently, and writes each at its place.

It checks the footer, including its SHA-256, against the object that names the sealed segment. It checks each frame
against the footer, by the CRC-32C of its bytes, the content checksum that it ends with and the CRC-32C of its content.
It checks the commits' checksums and sequences, also against the footer. So only bytes pass that were sealed under that
SHA-256. Frames can be read in any order, from log segments that are restored whole or in part. Damaged bytes are
replaced from other sources (``repair``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine, crc32c
from litelog.codec.lz4_frames import xxh32
from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, ReplicaGapError, StoreError
from litelog.formats import Expectation
from litelog.objects.position import generation
from litelog.objects.sealed_decoding import DecodedRun, check_run, decode_run
from litelog.reading.fetch import read_verified
from litelog.reading.sealed_reader import open_sealed
from litelog.restore.commit_writer import WrittenRun
from litelog.restore.journal import VerifiedBytes
from litelog.restore.wal_restore import RestoredObject
from litelog.system.files import begin_write_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Buffer

    from litelog.errors import LitelogError
    from litelog.formats import LogFormat, Scan
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.restore.commit_writer import SegmentFiles
    from litelog.restore.journal import Journal
    from litelog.restore.plan import SealedSpan
    from litelog.restore.repair.repair import RepairedRange, SealedRepairer
    from litelog.stores.replica_client import ReplicaClient

GROUP_BYTES = 4 << 20
"""The approximate size of one ranged GET of a sealed segment, in bytes; more if a commit is larger."""

GROUP_LOG_BYTES = 12 << 20
"""The most bytes of the log in one ranged GET: a worker holds them."""


@dataclass(frozen=True, slots=True)
class OpenedSegment:
    """A sealed segment whose footer matches the plan, and the division of its frames."""

    piece: SealedSpan
    footer: SealedFooter
    body: bytes | None
    """The whole object, if it is small."""
    groups: tuple[tuple[range, ...], ...]
    """Runs of frames that are read together; at least one group."""
    next_before: int | None
    """The sequence that follows the log segment before it; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A sealed segment that is damaged as a whole, or missing."""

    piece: SealedSpan
    error: LitelogError
    groups: tuple[None] = (None,)


class SealedRestorer:
    """Restores sealed segments: ``open`` each, then ``write`` each of its groups, on any threads, begun in order."""

    def __init__(
        self,
        client: ReplicaClient,
        files: SegmentFiles,
        log_format: LogFormat,
        check_stop: Callable[[], None],
        repairer: SealedRepairer,
        journal: Journal,
    ) -> None:
        """``check_stop`` raises if the rest is to be abandoned."""
        self._client = client
        self._files = files
        self._format = log_format
        self._check_stop = check_stop
        self._repairer = repairer
        self._journal = journal

    def open(self, piece: SealedSpan, next_before: int | None) -> OpenedSegment | Broken:
        """Read a sealed segment's footer."""
        self._check_stop()
        opened: OpenedSegment | Broken
        try:
            footer, body = open_sealed(self._client, piece.entry)
            opened = OpenedSegment(piece, footer, body, tuple(_groups(piece, footer)), next_before)
        except (CorruptionError, StoreError) as error:
            opened = Broken(piece, _named(piece, error))
        self._files.expect(piece.entry.index, len(opened.groups))
        return opened

    def write(self, opened: OpenedSegment | Broken, number: int) -> RestoredObject:
        """Restore a group. Raises CorruptionError if no other source has the damaged bytes."""
        entry = opened.piece.entry
        file = self._files.open(entry.index, entry.file)
        if isinstance(opened, Broken):
            parts, repaired = self._repairer.replace_all(opened.piece, file, opened.error)
        else:
            parts, repaired = self._write_group(opened, opened.groups[number], file)
        self._files.done(entry.index)
        if number == len(opened.groups) - 1:
            self._journal.sync()
        return RestoredObject(tuple(parts), tuple(repaired), objects=int(number == len(opened.groups) - 1))

    def _write_group(
        self, opened: OpenedSegment, group: Sequence[range], file: int
    ) -> tuple[list[WrittenRun], list[RepairedRange]]:
        repaired: list[RepairedRange] = []
        verified = _range_of(opened, group)
        if self._journal.holds(verified):
            reused = self._reuse(opened, group, file, verified)
            if reused is not None:
                return reused, repaired
        try:
            parts = self._write(opened, group, file)
        except (CorruptionError, StoreError) as error:
            piece = opened.piece
            data, repaired = self._repairer.replace_group(opened.footer, piece, group, _named(piece, error))
            parts = self._write_runs(opened, group, file, data)
        if parts:
            begin_write_back(file, verified.start, verified.stop - verified.start)
            self._journal.add(verified)
        return parts, repaired

    def _write(self, opened: OpenedSegment, group: Sequence[range], file: int) -> list[WrittenRun]:
        """Write a group, and return its parts."""
        entry, frames = opened.piece.entry, opened.footer.frames

        def write(body: memoryview) -> list[WrittenRun]:
            parts = []
            first = frames.starts[group[0].start] if group else 0
            for run in group:
                self._check_stop()
                stored = _stored(opened.footer, run)
                part = body[stored.start - first : stored.stop - first]
                decoded = decode_run(entry.key, opened.footer, run, part, self._format)
                parts.append(self._write_run(opened, run, decoded, file))
            return parts

        return read_verified(lambda: self._read(opened, group), write, _held(opened, group))

    def _reuse(
        self, opened: OpenedSegment, group: Sequence[range], file: int, verified: VerifiedBytes
    ) -> list[WrittenRun] | None:
        """As ``_write``, for bytes that an earlier restore left; None if they have changed."""
        frames, piece = opened.footer.frames, opened.piece
        if verified.start < piece.start or verified.stop > piece.stop:
            return None
        data = os.pread(file, verified.stop - verified.start, verified.start)
        if len(data) != verified.stop - verified.start:
            return None
        view = memoryview(data)
        for number in range(group[0].start, group[-1].stop):
            at = frames.offsets[number] - verified.start
            if xxh32(view[at : at + frames.lengths[number]]) != frames.checksums[number]:
                return None
        try:
            return self._write_runs(opened, group, None, data)
        except CorruptionError:
            return None

    def _write_runs(
        self, opened: OpenedSegment, group: Sequence[range], file: int | None, data: Buffer
    ) -> list[WrittenRun]:
        """Write a group from its bytes, which match its checksums. ``file`` None: they were written before."""
        parts, frames = [], opened.footer.frames
        for run in group:
            start, last = frames.offsets[run.start] - frames.offsets[group[0].start], frames[run.stop - 1]
            view = memoryview(data)[start : last.end - frames.offsets[group[0].start]]
            scan = check_run(opened.piece.entry.key, opened.footer, run, view, self._format)
            parts.append(self._write_run(opened, run, DecodedRun(view, scan), file))
        return parts

    def _read(self, opened: OpenedSegment, group: Sequence[range]) -> memoryview:
        if not group:
            return memoryview(b"")
        entry, stored = opened.piece.entry, _stored_of(opened, group)
        name = generation(entry.generation)
        return memoryview(self._client.read_sealed_segment(name, entry.sealed_index, stored.start, len(stored)))

    def _write_run(self, opened: OpenedSegment, run: range, decoded: DecodedRun, file: int | None) -> WrittenRun:
        piece, scan = opened.piece, decoded.scan
        if run.start == 0 and piece.start == 0:
            self._check_continues(opened, decoded)
        start, stop = max(piece.start, decoded.start), min(piece.stop, decoded.start + len(decoded.data))
        if piece.start and start == piece.start:
            _check_before(piece, opened.footer, run, decoded.data[: start - decoded.start])
        if (start, stop) != (decoded.start, decoded.start + len(decoded.data)):
            scan = self._scan_part(opened, run, decoded, start, stop)
        data, at = decoded.data[start - decoded.start : stop - decoded.start], start
        while data and file is not None:
            written = os.pwrite(file, data, at)
            data, at = data[written:], at + written
        return WrittenRun(piece.entry.key, stop - start, decoded.scan, scan)

    def _check_continues(self, opened: OpenedSegment, decoded: DecodedRun) -> None:
        """Check that the first commit follows the log segment before, if the format can tell. SequenceGapError."""
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


def _held(opened: OpenedSegment, group: Sequence[range]) -> memoryview | None:
    """The group's bytes of the object, if they were read with its footer."""
    if opened.body is None or not group:
        return None
    stored = _stored_of(opened, group)
    return memoryview(opened.body)[stored.start : stored.stop]


def _stored_of(opened: OpenedSegment, group: Sequence[range]) -> range:
    return _stored(opened.footer, range(group[0].start, group[-1].stop))


def _range_of(opened: OpenedSegment, group: Sequence[range]) -> VerifiedBytes:
    """The bytes of the log segment that a group covers."""
    entry, frames = opened.piece.entry, opened.footer.frames
    start, stop = (frames.offsets[group[0].start], frames[group[-1].stop - 1].end) if group else (0, 0)
    return VerifiedBytes(entry.file, entry.digest, start, stop)


def _named(piece: SealedSpan, error: LitelogError) -> LitelogError:
    return ReplicaGapError(piece.entry.key) if isinstance(error, NotFoundError) else error


def _require_end(piece: SealedSpan, expected: int, actual: int) -> None:
    if expected != actual:
        raise CorruptObjectError(piece.entry.key, "end of the last whole commit", expected, actual)


def _stored(footer: SealedFooter, run: range) -> range:
    """The place of a run of frames in the object."""
    return range(footer.frames.starts[run.start], footer.frames[run.stop - 1].stop)


def _groups(piece: SealedSpan, footer: SealedFooter) -> Iterator[tuple[range, ...]]:
    frames = footer.frames
    group: list[range] = []
    stored = held = 0
    for run in frames.runs(frames.for_offsets(piece.start, piece.stop)):
        more, longer = len(_stored(footer, run)), sum(frames.lengths[run.start : run.stop])
        if group and (stored + more > GROUP_BYTES or held + longer > GROUP_LOG_BYTES):
            yield tuple(group)
            group, stored, held = [], 0, 0
        group.append(run)
        stored, held = stored + more, held + longer
    yield tuple(group)


def _check_before(piece: SealedSpan, footer: SealedFooter, run: range, head: memoryview) -> None:
    """Check the bytes before ``piece`` (the frames before ``run``, and its ``head``) against the WAL segments."""
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
