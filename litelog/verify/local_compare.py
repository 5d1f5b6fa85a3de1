"""Compares a replica with the local log, which is only read: its commits, and its bytes, log segment by log segment."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.errors import (
    CorruptCommitError,
    CorruptionError,
    SourceError,
    SourceMissingError,
    StoreError,
    UnknownVersionError,
    WrongFormatError,
)
from litelog.formats import Expectation, FinishedTail
from litelog.formats.capabilities import check_head, rewrites_finished
from litelog.formats.signatures import recognise_log
from litelog.log.failed_syncs import FailedSyncs
from litelog.log.manifest import listed_segments
from litelog.log.source import open_segment
from litelog.objects.layout import parse_sealed
from litelog.objects.position import Position
from litelog.verify.findings import Anomaly, AnomalyKind
from litelog.verify.inventory import wal_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.formats import LogFormat, Scan
    from litelog.formats.signatures import Signature
    from litelog.log.source import OpenSegment
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.fetch import OrderedPool
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.chain import ChainSegment
    from litelog.verify.findings import Findings, Scope
    from litelog.verify.sealed import SealedVerifier
    from litelog.verify.wal import WalReader

READ_BYTES = 1 << 20

HEAD_BYTES = 64 << 10
"""How many bytes of a log segment are read for the log's id."""


MAX_NOT_COMPARED = 1000
"""How many log segments that were not compared are listed. A replica that was down for a month lacks millions."""


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A log segment as the replica holds it."""

    key: str
    """The key of the sealed segment, or of the first WAL segment if it is not sealed."""
    file: str
    length: int
    crc: int
    digest: str | None
    """SHA-256; None if it is not sealed."""
    place: Position
    """The position of its start in its generation."""
    other: tuple[int, int] | None = None
    """Bytes [start, stop) that the log has others of, if it is not sealed and its WAL segments were compared. Commits
    that end with their own CRC-32C have the same one, whatever they hold."""
    is_finished: bool = True
    """Whether nothing follows in the log segment."""

    @classmethod
    def of_entry(cls, entry: SnapshotEntry, generation: Generation) -> HeldSegment:
        """From a snapshot's entry."""
        place = Position(generation, entry.index, 0)
        return cls(entry.key, entry.file, entry.length, entry.crc, entry.digest, place)

    @classmethod
    def of_wal(cls, key: str, shipped: ChainSegment, generation: Generation) -> HeldSegment:
        """From its WAL segments."""
        place = Position(generation, shipped.index, 0)
        facts = (shipped.file, shipped.length, shipped.crc, shipped.digest)
        return cls(key, *facts, place, shipped.other, shipped.is_finished)


class NotComparedReason(StrEnum):
    """Why a log segment of the local log was not compared. None of these is an anomaly."""

    NEWER = "newer"
    """It is newer than all that the replica holds, and still to be shipped."""
    EARLIER = "earlier"
    """It is older than the latest generation, which diverged. An earlier generation holds a log segment of its name."""
    EMPTY = "empty"
    """It holds nothing that could be shipped."""
    SAMPLED = "sampled"
    """It is not in the requested sample."""
    REWRITTEN = "rewritten"
    """The log's writer has rewritten, merged or removed it since it was shipped, as this format's writers do. The
    replica keeps what was shipped."""


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A log segment of the local log that was not compared."""

    file: str
    bytes: int
    reason: NotComparedReason


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison with the local log. Its anomalies are in the findings."""

    folder: str
    generation: str
    """The replica's latest generation, which was compared."""
    files: int
    """The number of compared log segments."""
    bytes: int
    """Those of their bytes that the replica holds."""
    gone: int
    """The number of older log segments of the replica that the local log has dropped."""
    behind: int
    """Bytes at the local log's end that the replica does not hold yet."""
    not_compared: tuple[NotCompared, ...]
    """The log segments of the local log that were not compared, oldest first; at most MAX_NOT_COMPARED."""
    left_out: int
    """How many these are in all."""
    missing: int
    """How many log segments the replica lacks and should hold: each is an anomaly."""

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values, for programs."""
        return {
            "log": self.folder,
            "generation": self.generation,
            "log_segments": self.files,
            "compared_bytes": self.bytes,
            "dropped_segments": self.gone,
            "lag_bytes": self.behind,
            "not_compared": [{"file": each.file, "reason": each.reason} for each in self.not_compared],
            "not_compared_count": self.left_out,
            "missing_segments": self.missing,
        }


@dataclass(frozen=True, slots=True)
class _Judged:
    """The result for one log segment of the replica."""

    segment: HeldSegment
    problem: Anomaly | None = None
    is_compared: bool = False
    is_gone: bool = False
    """Whether the local log has dropped it."""


class LocalLog:
    """A log's folder, opened for reading."""

    def __init__(self, folder: str, log_format: LogFormat) -> None:
        """Raises as ``refresh``."""
        self.folder = folder
        self._format = log_format
        self._order = log_format.segment_order
        self._failed_syncs = FailedSyncs()
        self.rewrites_finished = rewrites_finished(log_format)
        self.names: list[str] = []
        self.refresh()

    def refresh(self) -> None:
        """List the folder again: a writer or daemon may remove the oldest log segments. Raises SourceMissingError, and
        SourceError for a manifest that cannot be read."""
        try:
            names = os.listdir(self.folder)
        except OSError as error:
            raise SourceMissingError(self.folder, f"cannot be opened: {error.strerror}") from error
        ordered = ((self._order(name), name) for name in listed_segments(self.folder, self._format, names))
        self.names = [name for order, name in sorted((order, name) for order, name in ordered if order is not None)]

    def log_id(self) -> str | None:
        """The log's id, hex, from its first log segment that states one; None without one. Raises SourceError."""
        for name in self.names if self._format.has_log_id else ():
            head = memoryview(b"".join(self.pieces(name, 0, HEAD_BYTES)))
            with suppress(CorruptionError):  # the comparison reports damage
                if (found := self._format.log_id(name, head)) is not None:
                    return found.hex
        return None

    def other_format(self) -> Signature | None:
        """The signature of the log in the folder, if it is of another format; None if that is not known. Raises
        SourceError."""
        found = recognise_log(self.folder)
        if found is None or found.format == self._format.name:
            return None
        name = next(iter(self.names), None)
        if name is None:
            return found
        try:
            with suppress(FileNotFoundError, CorruptCommitError), self._open(name) as segment:
                check_head(self._format, os.path.join(self.folder, name), segment.read(0, HEAD_BYTES))
        except WrongFormatError:
            return found
        return None

    def size(self, name: str) -> int:
        """The size of a log segment in bytes; -1 if it is missing. Raises SourceError if it is not a file."""
        try:
            with self._open(name) as segment:
                return segment.size()
        except FileNotFoundError:
            return -1

    def is_older(self, name: str) -> bool:
        """Whether ``name`` sorts before all existing ones."""
        return bool(self.names) and self._key(name) < self._key(self.names[0])

    def is_newer(self, name: str) -> bool:
        """Whether ``name`` sorts after all existing ones."""
        return not self.names or self._key(name) > self._key(self.names[-1])

    def is_after(self, name: str, other: str) -> bool:
        """Whether one name sorts after another."""
        return self._key(name) > self._key(other)

    def _key(self, name: str) -> tuple[object, ...]:
        return self._order(name) or ()

    def sums(self, name: str, length: int) -> tuple[int, str]:
        """CRC-32C and SHA-256 of a log segment's first ``length`` bytes. Raises SourceError."""
        crc, sha = 0, hashlib.sha256()
        for piece in self.pieces(name, 0, length):
            crc = crc32c(piece, crc)
            sha.update(piece)
        return crc, sha.hexdigest()

    def has_bytes(self, file: str, start: int, stop: int, digest: str) -> bool:
        """As ``ComparedLog`` has it: a log segment that was dropped is judged later, as is one that cannot be read."""
        sha = hashlib.sha256()
        try:
            for piece in self.pieces(file, start, stop):
                sha.update(piece)
        except (SourceError, CorruptionError):
            return True
        return sha.hexdigest() == digest

    def has_grown(self, name: str, end: int) -> bool:
        """Whether a log segment that was finished at ``end`` continues. Zeros do not count, nor does what its
        writer leaves or rewrites, in formats that do so. Raises SourceError."""
        if self.rewrites_finished or self._format.finished_tail is FinishedTail.PREFIX:
            return False
        try:
            with self._open(name) as segment:
                return segment.has_grown(end)
        except FileNotFoundError:
            return False

    def pieces(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """The bytes [start, stop) of a log segment."""
        path = os.path.join(self.folder, name)
        try:
            with self._open(name) as segment:
                while start < stop and (piece := segment.read(start, min(READ_BYTES, stop - start))):
                    yield piece
                    start += len(piece)
        except OSError as error:
            raise SourceError(f"{path}: cannot be read: {error.strerror}") from error

    def _open(self, name: str) -> OpenSegment:
        return open_segment(self.folder, name, self._format, self._failed_syncs)


class LocalComparison:
    """Compares a replica with a local log, and reports where they differ."""

    def __init__(
        self,
        local: LocalLog,
        scope: Scope,
        store: ObjectStore,
        sealed: SealedVerifier,
        wal: WalReader,
    ) -> None:
        self._local = local
        self._scope = scope
        self._store = store
        self._sealed = sealed
        self._wal = wal

    def compare(
        self,
        generation: Generation,
        held: Iterable[HeldSegment],
        earlier: frozenset[str],
        findings: Findings,
        pool: OrderedPool,
    ) -> Comparison:
        """Compare, oldest first. Differences go to the findings. ``earlier``: the names of log segments that only
        earlier generations have to hold."""
        local, names, files, size, gone = self._local, set[str](), 0, 0, 0
        last: HeldSegment | None = None
        rewritten: list[NotCompared] = []
        for judged in pool.map(self._check_one, held):
            last = judged.segment
            names.add(last.file)
            findings.raise_if_stopped()
            gone += judged.is_gone
            if self._is_rewritten(judged):
                rewritten.append(NotCompared(last.file, max(0, local.size(last.file)), NotComparedReason.REWRITTEN))
                continue
            if judged.problem is not None:
                findings.anomalies.take(judged.problem)
            files += judged.is_compared
            size += last.length if judged.is_compared else 0
        missing, left_out = self._find_not_held(names, earlier)
        left_out[:0] = rewritten
        for name in missing:
            path = os.path.join(local.folder, name)
            findings.anomalies.add(AnomalyKind.MISSING, path, "is a log segment that the replica does not hold")
        return Comparison(
            local.folder,
            generation,
            files,
            size,
            gone,
            self._behind(last),
            tuple(left_out[:MAX_NOT_COMPARED]),
            len(left_out),
            len(missing),
        )

    def _check_one(self, segment: HeldSegment) -> _Judged:
        local, file = self._local, segment.file
        size = local.size(file)
        if size < 0:
            return self._check_missing(segment)
        is_compared = self._scope.takes(file)
        if size < segment.length:
            kind = AnomalyKind.AHEAD if file == local.names[-1] else AnomalyKind.DIFFERS
            what = f"holds {segment.length} bytes of {file}, which has {size} in {local.folder}"
            return _Judged(segment, Anomaly(kind, segment.key, what), is_compared=is_compared)
        if not is_compared:
            return _Judged(segment)
        try:
            crc, digest = local.sums(file, segment.length)
            is_same = crc == segment.crc and segment.digest in (None, digest) and segment.other is None
            continues = is_same and segment.is_finished and local.has_grown(file, segment.length)
        except SourceError:
            if local.size(file) >= 0:
                raise
            return self._check_missing(segment)  # it was removed in the meantime
        if is_same and not continues:
            return _Judged(segment, is_compared=True)
        if continues:
            what = f"holds {segment.length} bytes as all of {file}, which continues in {local.folder}"
        else:
            what = f"holds other bytes of {file} than {local.folder}{self._where(segment)}"
        return _Judged(segment, Anomaly(AnomalyKind.DIFFERS, segment.key, what), is_compared=True)

    def _check_missing(self, segment: HeldSegment) -> _Judged:
        """Judge a log segment that the local log lacks. It may have dropped its oldest log segments just now."""
        local, file = self._local, segment.file
        if not local.is_older(file):
            local.refresh()
        if local.is_older(file):
            return _Judged(segment, is_gone=True)
        kind = AnomalyKind.AHEAD if local.is_newer(file) else AnomalyKind.DIFFERS
        return _Judged(segment, Anomaly(kind, segment.key, f"holds {file}, which is not in {local.folder}"))

    def _is_rewritten(self, judged: _Judged) -> bool:
        """Whether a difference is what the log's writer may do with finished log segments, in a format that does so."""
        if judged.problem is None or judged.problem.kind is not AnomalyKind.DIFFERS:
            return False
        return self._local.rewrites_finished and judged.segment.file != self._local.names[-1]

    def _where(self, segment: HeldSegment) -> str:
        """The range of offsets in which the first difference lies, from the CRC-32C of each part, if that is known."""
        try:
            if segment.other is not None:
                return ": the first at offset {} or above, below {}".format(*segment.other)
            for start, stop, crc in self._ranges(segment):
                here = 0
                for piece in self._local.pieces(segment.file, start, stop):
                    here = crc32c(piece, here)
                if here != crc:
                    return f": the first at offset {start} or above, below {stop}"
        except (StoreError, CorruptionError, UnknownVersionError, SourceError):
            pass
        return ""

    def _ranges(self, segment: HeldSegment) -> Iterator[tuple[int, int, int]]:
        """(start, stop, CRC-32C) of each part of a log segment."""
        parsed = parse_sealed(segment.key)
        if parsed is not None:
            frames = self._sealed.footer(*parsed).frames
            for frame in (frames[number] for number in range(len(frames))):
                yield frame.offset, frame.end, frame.crc
            return
        place = segment.place
        for listed in wal_between(self._store, place, Position(place.generation, place.index + 1, 0)):
            header = self._wal.header(listed[0])
            if header is not None:
                yield header.offset, header.end, header.crc

    def _find_not_held(self, held: set[str], earlier: frozenset[str]) -> tuple[list[str], list[NotCompared]]:
        """Find the local log segments that the replica should hold and does not, and those that were not compared for a
        good reason."""
        missing: list[str] = []
        left_out: list[NotCompared] = []
        names = self._local.names
        newest = max((number for number, name in enumerate(names) if name in held), default=-1)
        for number, name in enumerate(names):
            size = self._local.size(name)
            if size < 0 or (name in held and self._scope.takes(name)):
                continue
            if name in held:
                reason = NotComparedReason.SAMPLED
            elif size == 0:
                reason = NotComparedReason.EMPTY
            elif number > newest:
                reason = NotComparedReason.NEWER
            elif name in earlier:
                reason = NotComparedReason.EARLIER
            else:
                missing.append(name)
                continue
            left_out.append(NotCompared(name, size, reason))
        return missing, left_out

    def _behind(self, last: HeldSegment | None) -> int:
        names = self._local.names
        if last is None or last.file not in names:
            newer = names if last is None else [name for name in names if self._local.is_after(name, last.file)]
            return sum(max(0, self._local.size(name)) for name in newer)
        rest = names[names.index(last.file) + 1 :]
        return max(0, self._local.size(last.file) - last.length) + sum(max(0, self._local.size(name)) for name in rest)


def check_log(folder: str, log_format: LogFormat) -> int:
    """Check every commit of the log in ``folder`` by its format, and return the number of records.

    Raises CorruptCommitError, SequenceGapError and WrongFormatError; SourceError if the log cannot be read.
    """
    log = LocalLog(folder, log_format)
    records, expect = 0, Expectation()
    for name in log.names:
        for scan in _scans(log, name, log_format, expect):
            records += scan.records
            expect = scan.expectation
    return records


def compare_logs(folder: str, source: str, log_format: LogFormat) -> int:
    """Check that every log segment in ``folder`` equals one in ``source``, or the beginning of one, byte for byte.
    Return the number of compared bytes. A CorruptCommitError names the first difference."""
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
    """A log segment's pieces, as many as a log segment of ``size`` bytes has; some are empty if it is shorter."""
    pieces = log.pieces(name, 0, size) if log.size(name) >= 0 else iter(())
    for _ in range(0, size, READ_BYTES):
        yield next(pieces, b"")


def _scans(log: LocalLog, name: str, log_format: LogFormat, expect: Expectation) -> Iterator[Scan]:
    """The scans of a whole log segment, run by run."""
    path, size = os.path.join(log.folder, name), log.size(name)
    offset, length = 0, READ_BYTES
    while offset < size:
        data = memoryview(b"".join(log.pieces(name, offset, min(size, offset + length))))
        if not data:
            raise SourceError(f"{path}: became shorter while it was read")
        scan = log_format.scan(path, data, offset, expect)
        yield scan
        expect = scan.expectation
        if scan.end > offset:
            offset, length = scan.end, READ_BYTES
        elif len(data) < size - offset:
            length = max(2 * length, scan.wanted)
        else:
            if log_format.finished_tail is FinishedTail.SHIP:
                return
            if scan.damage is None:
                raise CorruptCommitError(path, offset, "commit", "a whole one", "cut off")
            raise CorruptCommitError(path, offset, scan.damage.what, scan.damage.expected, scan.damage.actual)
