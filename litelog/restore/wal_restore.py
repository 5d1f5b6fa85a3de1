"""Restores one piece of a plan: reads it, checks it against the one before, decompresses, scans and writes it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    NotFoundError,
    ReplicaGapError,
    StoreError,
)
from litelog.events import fields
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import WalSegment
from litelog.reading.fetch import read_verified
from litelog.reading.search import read_header
from litelog.reading.wal_chain import check_run, expectation, link_after_sealed, next_state
from litelog.reading.wal_cursor import describe_sealed
from litelog.restore.commit_writer import CommitWriterPool
from litelog.restore.repair.repair import UNKNOWN, RepairedRange, Repairer, Work

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from concurrent.futures import Future

    from litelog.formats import LogFormat
    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.wal_chain import ChainState
    from litelog.restore.commit_writer import SegmentFiles, WrittenRun
    from litelog.restore.journal import ResumedWalSegments
    from litelog.restore.plan import RestorePlan
    from litelog.restore.repair.sources import FallbackReplicas
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)


class RestoreStoppedError(LitelogError):
    """The piece was abandoned because an earlier one failed. A restore never ends with this error."""


@dataclass(frozen=True, slots=True)
class RestoredObject:
    """The result for one piece of the plan, and for the missing part before it."""

    parts: tuple[WrittenRun, ...]
    repaired: tuple[RepairedRange, ...]
    objects: int
    """How many objects of the chosen replica were read."""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """The state of the chain between two pieces."""

    link: ChainState
    before: ChainState | None
    """What the object before ``link`` continues; None if that object was reconstructed, or if there is none."""
    digest_confirmed: Future[str]
    """The digest of that object, once its bytes are written. ``link`` has that of the body that was read first."""


class WalRestorer:
    """Restores pieces. Call ``write`` for each on any thread, started in the order of their positions.

    They run concurrently, but follow the chain in order: each one waits for the step of the one before, which is known
    as soon as its header is read. A piece is a WAL segment. The sealed segment that one stands for is restored
    elsewhere.
    """

    def __init__(
        self,
        client: ReplicaClient,
        plan: RestorePlan,
        files: SegmentFiles,
        log_format: LogFormat,
        stopped: threading.Event,
        fallbacks: FallbackReplicas | None = None,
        kept: ResumedWalSegments | None = None,
    ) -> None:
        """``stopped``: set to abandon unfinished work. ``fallbacks``: the source of lost bytes; without fallback
        replicas a loss is an error that names the object. ``kept``: the pieces that do not have to be read."""
        self._client = client
        self._plan = plan
        self._format = log_format
        self._files = files
        self._sealed_entries = {piece.entry.index: piece.entry for piece in plan.sealed}
        self._runs = CommitWriterPool(log_format, plan.end, self._check_stop)
        self._repairer = (
            Repairer(plan, fallbacks, log_format, self._files, self._runs) if fallbacks is not None else None
        )
        self._kept = kept
        self._stopped = stopped
        self._down: StoreError | None = None

    def write(
        self, number: int, before: Future[ChainStep], after: Future[ChainStep], digest_confirmed: Future[str]
    ) -> RestoredObject:
        """Restore the plan's piece of that number, which continues ``before``. Sets ``after`` for the next piece."""
        work = Work()
        try:
            digest_confirmed.set_result(self._restore(number, before, after, digest_confirmed, work))
        except BaseException:
            for future in (after, digest_confirmed):
                if not future.done():
                    future.set_exception(RestoreStoppedError("an earlier object failed"))
            raise
        self._files.done(self._plan.pieces[number].position.index)
        return RestoredObject(tuple(work.parts), tuple(work.repaired), work.objects)

    # --- one piece

    def _restore(
        self,
        number: int,
        before: Future[ChainStep],
        after: Future[ChainStep],
        digest_confirmed: Future[str],
        work: Work,
    ) -> str:
        """Write a piece, and return the digest of its object, or UNKNOWN."""
        position = self._plan.pieces[number].position
        kept = None if self._kept is None else self._kept.find(position)
        segment, error = self._read_or_error(position) if kept is None else (kept, None)
        step = before.result()
        link = step.link
        if link.slot < position:
            link = self._close_gap(link, position, work)
        if segment is not None:
            try:
                link = self._settle(step, link, segment, work)
                behind = self._next_link(link, segment)
            except CorruptionError as broken:
                if self._repairer is None:
                    raise
                error = broken
            else:
                after.set_result(ChainStep(behind, link, digest_confirmed))
                return self._write_object(segment, link, work)
        if error is None or self._repairer is None:
            raise AssertionError("without fallback replicas an error is raised where it is met")
        return self._restore_lost(number, replace(link, digest=UNKNOWN), error, after, digest_confirmed, work)

    def _restore_lost(
        self,
        number: int,
        link: ChainState,
        error: LitelogError,
        after: Future[ChainStep],
        digest_confirmed: Future[str],
        work: Work,
    ) -> str:
        """Write a piece whose object is lost: by its header, if that is left; otherwise up to the next object."""
        assert self._repairer is not None
        position = self._plan.pieces[number].position
        header = self._header(position) if isinstance(error, CorruptObjectError) else None
        behind = self._link_after(link, header)
        if header is not None and behind is not None:
            after.set_result(ChainStep(behind, None, digest_confirmed))
            if header.length:
                file = self._files.open(header.index, header.file)
                self._repairer.replace_data(link, header, file, error, work)
            else:
                work.repaired.append(RepairedRange(wal_key(position), str(error)))
            return UNKNOWN
        last = number + 1 == len(self._plan.pieces)
        upto = self._plan.end if last else self._plan.pieces[number + 1].position
        if position < link.slot or upto <= link.slot:
            work.repaired.append(RepairedRange(wal_key(position), str(error)))
        else:
            link = self._repairer.fill(link, upto, position.index, error, work)
        after.set_result(ChainStep(link, None, digest_confirmed))
        return UNKNOWN

    def _write_object(self, segment: WalSegment, link: ChainState, work: Work) -> str:
        """Write an object's bytes, and return its digest, which differs from the first one if it was read again."""
        header = segment.header
        work.objects += 1
        if header.successor is not None or not header.file:
            return segment.digest
        file = self._files.open(header.index, header.file)
        return self._write_bytes(segment, link, file, work) if header.length else segment.digest

    def _write_bytes(self, segment: WalSegment, link: ChainState, file: int, work: Work) -> str:
        try:
            work.parts.append(self._write_checked(segment, link, file))
        except CorruptionError as error:
            return self._write_again(segment, link, file, error, work)
        if self._kept is not None:
            self._kept.note(segment)
        return segment.digest

    def _write_again(self, segment: WalSegment, link: ChainState, file: int, error: CorruptionError, work: Work) -> str:
        """Read an object with bad bytes again, as they may have changed in transit; then try another replica."""
        try:
            again = self._read(segment.header.position, wal_segment.decode_checked)
            if again.header != segment.header:
                raise error
            work.parts.append(self._write_checked(again, link, file))
        except (CorruptionError, StoreError):
            if self._repairer is None:
                raise error from None
            self._repairer.replace_data(link, segment.header, file, error, work)
            return UNKNOWN
        return again.digest

    def _write_checked(self, segment: WalSegment, link: ChainState, file: int) -> WrittenRun:
        header = segment.header
        part = self._runs.write(header, segment.key, file, segment.pieces(), expectation(link, header))
        check_run(header, segment.key, part.scan, self._format)
        return part

    # --- the chain

    def _close_gap(self, link: ChainState, position: Position, work: Work) -> ChainState:
        """Restore the gap before ``position``: from objects that no listing showed, or from other replicas' bytes."""
        gap = ReplicaGapError(str(link.slot), str(position))
        while link.slot < position and not link.ended:
            segment, _ = self._read_or_error(link.slot, missing=gap)
            if segment is None:
                break
            link = link if link.digest else replace(link, digest=segment.header.previous)
            try:
                behind = next_state(link, segment, self._format)
            except CorruptionError:
                if self._repairer is None:
                    raise
                break
            link = self._write_unlisted(segment, link, behind, position.index, work)
        if link.slot < position and self._repairer is not None:
            extra = fields("gap", replica=self._plan.replica, position=position)
            _logger.warning("%s: %s", self._plan.replica, gap, extra=extra)
            link = self._repairer.fill(replace(link, digest=UNKNOWN), position, position.index, gap, work)
        return link

    def _write_unlisted(
        self, segment: WalSegment, link: ChainState, behind: ChainState, own: int, work: Work
    ) -> ChainState:
        header = segment.header
        if header.index == own:
            digest = self._write_object(segment, link, work)
        else:
            with self._files.opened_apart(header.index, header.file) as file:
                digest = self._write_bytes(segment, link, file, work) if header.length else segment.digest
            work.objects += 1
        return replace(behind, digest=digest)

    def _settle(self, step: ChainStep, link: ChainState, segment: WalSegment, work: Work) -> ChainState:
        """``link`` with the verified digest of the object before. That object is read again, or replaced, if
        ``segment`` names another digest."""
        named = segment.header.previous
        if link.digest == named or (link is not step.link and link.digest != UNKNOWN):
            return link
        if link.digest == UNKNOWN or step.digest_confirmed.result() in (UNKNOWN, named):
            return replace(link, digest=named)
        if step.before is None:
            return link
        if self._digest_again(step.before.slot) == named:
            return replace(link, digest=named)
        return link if self._repairer is None else self._repair_before(self._repairer, step.before, link, segment, work)

    def _repair_before(
        self, repairer: Repairer, before: ChainState, link: ChainState, segment: WalSegment, work: Work
    ) -> ChainState:
        """Replace the object after ``before``, which is whole, but not the one that ``segment`` names."""
        named = segment.header.previous
        broken = CorruptObjectError(wal_key(before.slot), "SHA-256", named, link.digest)
        apart = Work()
        repaired = repairer.fill(replace(before, digest=UNKNOWN), link.slot, segment.header.index, broken, apart)
        work.repaired += apart.repaired  # its bytes are counted already
        if repaired.next is not None and repaired.next != link.next:
            raise broken
        return replace(repaired, digest=named)

    def _next_link(self, link: ChainState, segment: WalSegment) -> ChainState:
        header = segment.header
        if header.sealed is None:
            return next_state(link, segment, self._format)
        entry = self._sealed_entries.get(header.index) or describe_sealed(self._client, header)
        if header.offset == entry.length and header.crc_total != entry.crc:
            raise CorruptObjectError(segment.key, "CRC-32C up to its end", f"{entry.crc:#x}", f"{header.crc_total:#x}")
        return link_after_sealed(link, segment, entry, self._format)

    def _link_after(self, link: ChainState, header: WalHeader | None) -> ChainState | None:
        """The link after an object of which only the header is left; None if the header does not fit."""
        if header is None or header.successor is not None:
            return None
        link = replace(link, digest=header.previous)
        try:
            return next_state(link, WalSegment(header, UNKNOWN, memoryview(b"")), self._format)
        except CorruptionError:
            return None

    # --- reading

    def _read_or_error(
        self, position: Position, missing: ReplicaGapError | None = None
    ) -> tuple[WalSegment | None, LitelogError | None]:
        """Read an object; return the error instead, or raise it if there is no other replica."""
        self._check_stop()
        if self._down is not None:
            return None, self._down
        try:
            return self._read(position, wal_segment.decode), None
        except NotFoundError as error:
            if self._repairer is None:
                raise (missing or ReplicaGapError(str(position))) from error
            return None, missing or ReplicaGapError(str(position))
        except (CorruptionError, StoreError) as error:
            if self._repairer is None:
                raise
            if isinstance(error, StoreError):
                self._down = error
            return None, error

    def _read(self, position: Position, decode: Callable[[str, bytes], WalSegment]) -> WalSegment:
        return read_verified(lambda: self._client.read_wal_segment(position), partial(decode, wal_key(position)))

    def _header(self, position: Position) -> WalHeader | None:
        try:
            return read_header(self._client, position)
        except (CorruptionError, StoreError):
            return None

    def _digest_again(self, position: Position) -> str | None:
        try:
            return self._read(position, wal_segment.decode_checked).digest
        except (CorruptionError, StoreError):
            return None

    def _check_stop(self) -> None:
        if self._stopped.is_set():
            raise RestoreStoppedError("the restore was stopped")
