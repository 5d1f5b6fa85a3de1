"""Replaces the bytes of lost WAL segments by other replicas' bytes, and checks them by every remaining checksum."""

from __future__ import annotations

import hashlib
import logging
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import field, replace
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine, crc32c
from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, CorruptObjectError, ReplicaGapError, StoreError
from litelog.events import fields
from litelog.formats import Expectation, FinishedTail
from litelog.objects.chain import check_run, expectation, next_state
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import WalSegment
from litelog.reading.search import read_header, read_segment
from litelog.restore.plan import RepairedRange, RestoredObject
from litelog.restore.repair.fallbacks import NoFallbackError
from litelog.restore.repair.header_reconstruction import UNKNOWN, reconstruct_header
from litelog.restore.wal_restore import ChainStep

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from litelog.formats import LogFormat, Scan
    from litelog.objects.chain import ChainState
    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalHeader
    from litelog.restore.commit_writer import CommitWriterPool, SegmentFiles, WrittenRun
    from litelog.restore.generation_bytes import ByteRun
    from litelog.restore.plan import PlannedFile, RestorePlan
    from litelog.restore.repair.fallbacks import FallbackReplicas
    from litelog.restore.wal_restore import WalRestorer
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Replacement:
    """The parts that were replaced for one object of the plan."""

    parts: list[WrittenRun] = field(default_factory=list)
    repaired: list[RepairedRange] = field(default_factory=list)

    def add_to(self, restored: RestoredObject) -> RestoredObject:
        """Return ``restored``, with the replaced parts before it."""
        return replace(restored, parts=(*self.parts, *restored.parts), repaired=(*self.repaired, *restored.repaired))


class WalRepair:
    """Restores WAL segments through ``inner``, and from other replicas those that ``inner`` cannot restore.

    Shared by threads, each with its own object. There are two ways to replace an object: by its header, if that is left
    and continues the chain; otherwise all up to the next object, whose statements about the lost one are then trusted.
    """

    def __init__(
        self,
        inner: WalRestorer,
        client: ReplicaClient,
        plan: RestorePlan,
        fallbacks: FallbackReplicas,
        log_format: LogFormat,
        files: SegmentFiles,
        runs: CommitWriterPool,
    ) -> None:
        self._inner = inner
        self._client = client
        self._plan = plan
        self._planned: dict[int, PlannedFile] = {file.index: file for file in plan.files}
        self._fallbacks = fallbacks
        self._format = log_format
        self._files = files
        self._runs = runs
        self._down: StoreError | None = None
        """The error of a failed request; after it, the replica gets no more requests."""

    def write(self, number: int, before: Future[ChainStep], after: Future[ChainStep]) -> RestoredObject:
        """As in ``WalWriter``. Raises the damage of the WAL segment if no other replica has the bytes."""
        cause: CorruptionError | StoreError | None = self._down
        if cause is None:
            try:
                return self._inner.write(number, before, after)
            except (CorruptionError, StoreError) as error:
                cause = self._note(error)
        return self._replace(number, before.result(), after, cause)

    def _note(self, error: CorruptionError | StoreError) -> CorruptionError | StoreError:
        if isinstance(error, StoreError):
            self._down = error
        return error

    def _replace(
        self, number: int, step: ChainStep, after: Future[ChainStep], cause: CorruptionError | StoreError
    ) -> RestoredObject:
        """Replace the objects that are missing before an object, and try that one once more; then replace it, too."""
        done, position = Replacement(), self._plan.pieces[number].position
        header = self._header(position)
        link = self._repair_before(step, position, header, done)
        if link != step.link and not after.done() and self._down is None:
            before: Future[ChainStep] = Future()
            before.set_result(ChainStep(link))
            try:
                return done.add_to(self._inner.write(number, before, after))
            except (CorruptionError, StoreError) as error:
                cause = self._note(error)
        if not self._replace_by_header(link, header, after, cause, done):
            if after.done():
                raise cause
            after.set_result(ChainStep(self._replace_unknown(number, replace(link, digest=UNKNOWN), cause, done)))
        self._files.done(position.index)
        return done.add_to(RestoredObject(()))

    def _replace_by_header(
        self,
        link: ChainState,
        header: WalHeader | None,
        after: Future[ChainStep],
        cause: CorruptionError | StoreError,
        done: Replacement,
    ) -> bool:
        """Replace an object by its header. Returns False if no header continues ``link``."""
        if header is None or header.successor is not None:
            return False
        link = replace(link, digest=header.previous)
        try:
            following = self._inner.next_link(link, WalSegment(header, UNKNOWN, memoryview(b"")))
        except CorruptionError:
            return False
        if not after.done():
            after.set_result(ChainStep(following))
        if header.length:
            self._replace_data(link, header, cause, done)
        else:
            done.repaired.append(RepairedRange(wal_key(header.position), str(cause)))
        return True

    def _replace_unknown(
        self, number: int, link: ChainState, cause: CorruptionError | StoreError, done: Replacement
    ) -> ChainState:
        """Replace an object of which nothing is left, up to the next one. Returns the link there."""
        position = self._plan.pieces[number].position
        is_last = number + 1 == len(self._plan.pieces)
        end = self._plan.end if is_last else self._plan.pieces[number + 1].position
        if position < link.slot or end <= link.slot:
            done.repaired.append(RepairedRange(wal_key(position), str(cause)))
            return link
        return self._fill(link, end, position.index, cause, done)

    def _repair_before(
        self, step: ChainStep, position: Position, header: WalHeader | None, done: Replacement
    ) -> ChainState:
        """Replace the objects that are missing before ``position``. Returns the link after them, with the digest that
        the object at ``position`` names. Raises the damage of the object before it, if that digest shows some."""
        link = step.link
        if link.slot < position:
            gap = ReplicaGapError(str(link.slot), str(position))
            extra = fields("gap", replica=self._plan.replica, position=position)
            _logger.warning("%s: %s", self._plan.replica, gap, extra=extra)
            link = self._fill(replace(link, digest=UNKNOWN), position, position.index, gap, done)
        if header is None or header.previous == link.digest:
            return link
        if link.digest != UNKNOWN and step.before is not None:
            self._check_before(step.before.slot, header.previous, done)
        return replace(link, digest=header.previous)

    def _check_before(self, position: Position, named: str, done: Replacement) -> None:
        """Check an object that is whole, but does not have the digest ``named``. It must hold the same bytes of the log
        as another replica: it may differ from the shipped object only in other bytes."""
        try:
            found = read_segment(self._client, position)
        except (CorruptionError, StoreError):
            return  # this object is replaced anyway
        if found.digest == named:
            return  # the bytes had changed in transit
        header, crc = found.header, 0
        broken = CorruptObjectError(found.key, "SHA-256", named, found.digest)
        repaired = []
        try:
            for chunk in self._fallbacks.chunks(header.file, header.offset, header.end):
                crc = crc32c(chunk.data, crc)
                repaired.append(_repaired(found.key, broken, header.file, chunk))
        except NoFallbackError as error:
            raise broken from error
        if crc != header.crc:
            raise broken
        done.repaired += repaired or [RepairedRange(found.key, str(broken))]

    def _header(self, position: Position) -> WalHeader | None:
        if self._down is not None:
            return None
        try:
            return read_header(self._client, position)
        except (CorruptionError, StoreError):
            return None

    def _fill(
        self, link: ChainState, end: Position, own: int, cause: CorruptionError | StoreError, done: Replacement
    ) -> ChainState:
        """Restore all bytes between ``link`` and ``end``; return the link there. ``own``: the caller's own index.

        Raises ``cause`` if no replica has the bytes, or if the bytes that others have do not continue the chain.
        """
        try:
            while link.slot < end:
                planned = self._planned.get(link.slot.index)
                if planned is None or link.file not in ("", planned.name):
                    raise NoFallbackError(f"{link.slot}: the log segment is not known")
                final = link.slot.index < end.index
                stop = planned.size if final else end.offset
                link = self._fill_file(link, planned.name, stop, final, own, cause, done)
        except (NoFallbackError, CorruptObjectError) as error:
            raise cause from error
        return link

    def _replace_data(
        self, link: ChainState, header: WalHeader, cause: CorruptionError | StoreError, done: Replacement
    ) -> None:
        """Restore a WAL segment's bytes by its header, which continues ``link``. Raises ``cause``."""
        key, file = wal_key(header.position), self._files.open(header.index, header.file)
        try:
            try:
                proven = header.check_digest is None or (header.check_start or 0) < header.offset
                chunks = list(self._fallbacks.chunks(header.file, header.offset, header.end, proven=proven))
            except NoFallbackError:
                end = self._plan.end
                if header.index != end.index or not header.offset < end.offset < header.end:
                    raise
                self._fill_file(link, header.file, end.offset, False, header.index, cause, done)
                return
            self._check_totals(link, chunks)
            _check_bytes(header, key, chunks)
            part = self._runs.write(header, key, file, [chunk.data for chunk in chunks], expectation(link, header))
            check_run(header, key, part.scan, self._format)
        except (NoFallbackError, CorruptObjectError) as error:
            raise cause from error
        done.parts.append(part)
        done.repaired += [_repaired(key, cause, header.file, chunk) for chunk in chunks]

    def _fill_file(
        self,
        link: ChainState,
        name: str,
        stop: int,
        final: bool,
        own: int,
        cause: CorruptionError | StoreError,
        done: Replacement,
    ) -> ChainState:
        key = wal_key(link.slot)
        nothing = reconstruct_header(self._plan.claim, link.slot, name, 0, None, final=True)
        self._chain(link, nothing)  # refuses an invalid name before a file is created
        start = link.slot.offset
        with self._opened(link.slot.index, name, own) as file:
            for chunk in self._fallbacks.chunks(name, start, stop):
                link = self._fill_chunk(link, name, chunk, final and chunk.end == stop, file, done)
                done.repaired.append(_repaired(key, cause, name, chunk))
        if start >= stop:
            if final:
                link = self._chain(link, nothing)
            done.repaired.append(RepairedRange(key, str(cause)))
        return link

    def _fill_chunk(
        self, link: ChainState, name: str, chunk: ByteRun, final: bool, file: int, done: Replacement
    ) -> ChainState:
        key = wal_key(link.slot)
        self._check_totals(link, [chunk])
        header = reconstruct_header(
            self._plan.claim, link.slot, name, len(chunk.data), None, crc=crc32c(chunk.data), final=final
        )
        part = self._runs.write(header, key, file, [chunk.data], Expectation(link.next))
        may_have_tail = final and self._format.finished_tail is FinishedTail.SHIP
        if part.scan.end != chunk.end and not may_have_tail:
            raise CorruptObjectError(key, "end of the last whole commit", chunk.end, part.scan.end)
        done.parts.append(part)
        scan = part.scan if part.scan.commits else None
        after = self._chain(link, _described(header, scan))
        # Without sequences in commits, the number of records depends on how they were shipped: the next header has it.
        return after if self._format.self_numbered else replace(after, next=None)

    def _chain(self, link: ChainState, header: WalHeader) -> ChainState:
        """The link after bytes that continue it, and that no object of the replica holds."""
        total = link.total_after(header)
        crc_total = header.crc_total if total is None else total
        fitting = replace(header, previous=link.digest, shipped=link.shipped, crc_total=crc_total)
        return next_state(link, WalSegment(fitting, UNKNOWN, memoryview(b"")), self._format)

    def _check_totals(self, link: ChainState, chunks: list[ByteRun]) -> None:
        """Check the other replica's checksum of the log segment's beginning against the restored bytes."""
        total = link.crc_total
        if total is None:
            return
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
    """Check another replica's bytes against the header: by their CRC-32C, and by the SHA-256 of the last commit."""
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


def _repaired(key: str, cause: Exception, name: str, chunk: ByteRun) -> RepairedRange:
    return RepairedRange(key, str(cause), name, chunk.start, chunk.end, chunk.replica, chunk.generation)
