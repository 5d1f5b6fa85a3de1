"""Replaces the bytes that the chosen replica lost, and checks the replacement by every checksum that is left.

The bytes come from the replica's own WAL segments, or from other replicas.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine, crc32c
from litelog.codec.lz4_frames import xxh32
from litelog.errors import CorruptObjectError, StoreError
from litelog.formats import Expectation, FinishedTail
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import WalSegment
from litelog.reading.wal_chain import check_run, expectation, next_state
from litelog.restore.commit_writer import WrittenRun
from litelog.restore.repair.header_reconstruction import reconstruct_header
from litelog.restore.repair.sources import NoFallbackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from litelog.errors import LitelogError
    from litelog.formats import LogFormat, Scan
    from litelog.objects.position import Position
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.wal_chain import ChainState
    from litelog.restore.commit_writer import CommitWriterPool, SegmentFiles
    from litelog.restore.plan import PlannedFile, RestorePlan, SealedSpan
    from litelog.restore.repair.generation_bytes import ByteRun
    from litelog.restore.repair.sources import FallbackBytes, FallbackReplicas

UNKNOWN = ""
"""The digest in a ChainState after a lost object: the digest that the next object names is then trusted."""


@dataclass(frozen=True, slots=True)
class RepairedRange:
    """An object that the chosen replica lost, and the source of its bytes."""

    key: str
    """The object's position; or that of the first missing one."""
    reason: str
    file: str | None = None
    """The log segment; None if the object held no bytes of the log."""
    start: int = 0
    """The bytes [start, end) of the log segment."""
    end: int = 0
    replica: str | None = None
    """The URL of the replica that had them; None if no bytes were needed."""
    generation: str | None = None
    """The generation in that replica."""


@dataclass(slots=True)
class Work:
    """What was restored of a piece, and of the missing part before it."""

    parts: list[WrittenRun] = field(default_factory=list)
    repaired: list[RepairedRange] = field(default_factory=list)
    objects: int = 0


class Repairer:
    """Restores what the chosen replica lost. Shared by threads, each with its own piece and Work."""

    def __init__(
        self,
        plan: RestorePlan,
        fallbacks: FallbackReplicas,
        log_format: LogFormat,
        files: SegmentFiles,
        runs: CommitWriterPool,
    ) -> None:
        self._plan = plan
        self._planned: dict[int, PlannedFile] = {file.index: file for file in plan.files}
        self._fallbacks = fallbacks
        self._format = log_format
        self._files = files
        self._runs = runs

    def fill(self, link: ChainState, upto: Position, own: int, why: Exception, work: Work) -> ChainState:
        """Restore all between ``link`` and ``upto``; return the link there. ``own``: the index of the caller's piece.

        Raises ``why`` if no replica has the bytes, or if the bytes that others have do not continue the chain.
        """
        try:
            while link.slot < upto:
                planned = self._planned.get(link.slot.index)
                if planned is None or link.file not in ("", planned.name):
                    raise NoFallbackError(f"{link.slot}: the log segment is not known")
                final = link.slot.index < upto.index
                stop = planned.size if final else upto.offset
                link = self._fill_file(link, planned.name, stop, final, own, why, work)
        except (NoFallbackError, CorruptObjectError) as error:
            raise why from error
        return link

    def replace_data(self, link: ChainState, header: WalHeader, file: int, why: Exception, work: Work) -> None:
        """Restore a WAL segment's bytes from its header, which alone is left and continues ``link``. Raises ``why``."""
        key = wal_key(header.position)
        try:
            try:
                proven = header.check_digest is None or (header.check_start or 0) < header.offset
                chunks = list(self._fallbacks.chunks(header.file, header.offset, header.end, proven=proven))
            except NoFallbackError:
                end = self._plan.end
                if header.index != end.index or not header.offset < end.offset < header.end:
                    raise
                self._fill_file(link, header.file, end.offset, False, header.index, why, work)
                return
            self._check_totals(link, chunks)
            _check_bytes(header, key, chunks)
            part = self._runs.write(header, key, file, [chunk.data for chunk in chunks], expectation(link, header))
            check_run(header, key, part.scan, self._format)
        except (NoFallbackError, CorruptObjectError) as error:
            raise why from error
        work.parts.append(part)
        work.repaired += [_repaired(key, why, header.file, chunk) for chunk in chunks]

    def _fill_file(
        self, link: ChainState, name: str, stop: int, final: bool, own: int, why: Exception, work: Work
    ) -> ChainState:
        key = wal_key(link.slot)
        nothing = reconstruct_header(link.claim, link.slot, name, 0, None, final=True)
        self._chain(link, nothing)  # refuses an invalid name before a file gets it
        start = link.slot.offset
        with self._opened(link.slot.index, name, own) as file:
            for chunk in self._fallbacks.chunks(name, start, stop):
                link = self._fill_chunk(link, name, chunk, final and chunk.end == stop, file, work)
                work.repaired.append(_repaired(key, why, name, chunk))
        if start >= stop:
            if final:
                link = self._chain(link, nothing)
            work.repaired.append(RepairedRange(key, str(why)))
        return link

    def _fill_chunk(
        self, link: ChainState, name: str, chunk: ByteRun, final: bool, file: int, work: Work
    ) -> ChainState:
        key = wal_key(link.slot)
        self._check_totals(link, [chunk])
        header = reconstruct_header(
            link.claim, link.slot, name, len(chunk.data), None, crc=crc32c(chunk.data), final=final
        )
        part = self._runs.write(header, key, file, [chunk.data], Expectation(link.next))
        may_have_tail = final and self._format.finished_tail is FinishedTail.SHIP
        if part.scan.end != chunk.end and not may_have_tail:
            raise CorruptObjectError(key, "end of the last whole commit", chunk.end, part.scan.end)
        work.parts.append(part)
        scan = part.scan if part.scan.commits else None
        behind = self._chain(link, _described(header, scan))
        # If commits carry no sequences, the number of records depends on how they were shipped: the next header has it.
        return behind if self._format.self_numbered else replace(behind, next=None)

    def _chain(self, link: ChainState, header: WalHeader) -> ChainState:
        """The link after bytes that continue it, although no object of the replica holds them."""
        total = combine(link.crc_total, header.crc, header.length)
        fitting = replace(header, previous=link.digest, shipped=link.shipped, crc_total=total)
        return next_state(link, WalSegment(fitting, UNKNOWN, memoryview(b"")), self._format)

    def _check_totals(self, link: ChainState, chunks: list[ByteRun]) -> None:
        """Check the other replica's checksum of the log segment's front against our bytes before the hole."""
        total = link.crc_total
        for chunk in chunks:
            total = combine(total, crc32c(chunk.data), len(chunk.data))
            if chunk.crc_total is not None and chunk.crc_total != total:
                place = f"{chunk.replica}, generation {chunk.generation}"
                raise CorruptObjectError(
                    place, f"CRC-32C up to {chunk.end}", f"{total:#010x}", f"{chunk.crc_total:#010x}"
                )

    def _opened(self, index: int, name: str, own: int) -> AbstractContextManager[int]:
        if index == own:
            return nullcontext(self._files.open(index, name))
        return self._files.opened_apart(index, name)


def _check_bytes(header: WalHeader, key: str, chunks: list[ByteRun]) -> None:
    """Check that the bytes are the header writer's: by CRC-32C, and by SHA-256 of the last commit's."""
    crc, sha = 0, hashlib.sha256()
    start = header.end if header.check_start is None else header.check_start
    for chunk in chunks:
        crc = crc32c(chunk.data, crc)
        sha.update(chunk.data[max(0, start - chunk.start) :])
    if crc != header.crc:
        raise CorruptObjectError(key, "CRC-32C of another replica's bytes", f"{header.crc:#010x}", f"{crc:#010x}")
    if header.check_digest is not None and start >= header.offset and sha.hexdigest() != header.check_digest:
        raise CorruptObjectError(key, "SHA-256 of another replica's last commit", header.check_digest, sha.hexdigest())


def _described(header: WalHeader, scan: Scan | None) -> WalHeader:
    facts = ("first", "next", "records", "lowest", "highest")
    return header if scan is None else replace(header, **{name: getattr(scan, name) for name in facts})


def _repaired(key: str, why: Exception, name: str, chunk: ByteRun) -> RepairedRange:
    return RepairedRange(key, str(why), name, chunk.start, chunk.end, chunk.replica, chunk.generation)


class SealedRepairer:
    """Restores what sealed segments lost. Shared by threads."""

    def __init__(self, fallback_bytes: FallbackBytes, log_format: LogFormat) -> None:
        self._fallback_bytes = fallback_bytes
        self._format = log_format

    def replace_group(
        self, footer: SealedFooter, piece: SealedSpan, group: Sequence[range], why: LitelogError
    ) -> tuple[bytearray, list[RepairedRange]]:
        """The bytes of some frames, which match their checksums, and their source. Raises ``why``."""
        frames, repaired = footer.frames, []
        start, last = frames.offsets[group[0].start], frames[group[-1].stop - 1]
        data = bytearray(last.end - start)
        for chunk in self._chunks(piece, start, last.end, why):
            data[chunk.start - start : chunk.end - start] = chunk.data
            repaired.append(_repaired_sealed(piece, chunk, why))
        for number in range(group[0].start, group[-1].stop):
            frame = frames[number]
            if xxh32(memoryview(data)[frame.offset - start : frame.end - start]) != frame.checksum:
                raise why
        return data, repaired

    def replace_all(
        self, piece: SealedSpan, file: int, why: LitelogError
    ) -> tuple[list[WrittenRun], list[RepairedRange]]:
        """Write a piece from a source that has the whole log segment with the stated digest. Raises ``why``."""
        entry, digest = piece.entry, hashlib.sha256()
        parts, repaired, expect = [], [], Expectation(entry.first)
        try:
            for chunk in self._chunks(piece, 0, entry.length, why):
                digest.update(chunk.data)
                for start, data in _cut(chunk, piece):
                    scan = self._format.scan(entry.path, data, start, expect)
                    expect = scan.expectation
                    if piece.start <= start < piece.stop:
                        parts.append(WrittenRun(entry.key, _write(file, data, start), scan, scan))
                repaired.append(_repaired_sealed(piece, chunk, why))
        except CorruptObjectError as error:
            raise why from error
        if digest.hexdigest() != entry.digest:
            raise why
        return parts, repaired

    def _chunks(self, piece: SealedSpan, start: int, stop: int, why: LitelogError) -> Iterator[ByteRun]:
        try:
            yield from self._fallback_bytes.chunks(piece.entry, start, stop, proven=False)
        except (NoFallbackError, StoreError) as error:
            raise why from error


def _cut(chunk: ByteRun, piece: SealedSpan) -> Iterator[tuple[int, memoryview]]:
    """Split a chunk at the ends of ``piece``; yield the offset and bytes of each part."""
    bounds = sorted({chunk.start, chunk.end, *(at for at in (piece.start, piece.stop) if chunk.start < at < chunk.end)})
    for start, end in pairwise(bounds):
        yield start, chunk.data[start - chunk.start : end - chunk.start]


def _write(file: int, data: memoryview, offset: int) -> int:
    length = len(data)
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
    return length


def _repaired_sealed(piece: SealedSpan, chunk: ByteRun, why: LitelogError) -> RepairedRange:
    return RepairedRange(
        piece.entry.key, str(why), piece.entry.file, chunk.start, chunk.end, chunk.replica, chunk.generation
    )
