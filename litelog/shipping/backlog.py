"""Seals the backlog: log segments that were finished while no daemon shipped the log.

When a generation begins, these are all finished log segments, and its first snapshot names them. Those that the
predecessor's newest snapshot names are not uploaded again, once the local bytes are found to be the same. After a
downtime these are the log segments that were finished meanwhile, and an empty ``final`` stands for each.

Specified in litelog/shipping/README.md#seal.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from litelog.dataclass import dataclass
from litelog.errors import ExistsError
from litelog.formats import Expectation
from litelog.formats.capabilities import scan_front
from litelog.objects import wal_segment
from litelog.objects.frame_table import ShipTimes
from litelog.objects.position import Position
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.snapshot_entries import SnapshotEntry, make_entry
from litelog.objects.wal_segment import WalHeader
from litelog.shipping.archive_state import NO_MARKS
from litelog.shipping.background_job import InlineRunner, SealingJob
from litelog.shipping.events import SegmentSealed
from litelog.shipping.finished_segments import NOT_FINISHED, FinishedSegments, NotSealableError
from litelog.shipping.sealer import SealedConflictError, read_sealed_footer
from litelog.shipping.wal_encoder import EncodedWalSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from litelog.formats import LogFormat, Scan
    from litelog.log.source import OpenSegment
    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.shipping.context import ReplicaContext

PARALLELISM = 2
"""How many log segments are sealed at the same time, if their format numbers them by itself. Each takes memory for its
threads, its frames and its upload, and two keep two processors busy."""


class _Busy:
    """Counts the log segments that the process seals before their WAL segments, while each is sealed. If there are as
    many as processors, each compresses its own frames: to hand them over costs more than it gains."""

    def __init__(self) -> None:
        self._count = 0
        self._counting = threading.Lock()
        self._processors = os.cpu_count() or 1

    def __enter__(self) -> None:
        with self._counting:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._count -= 1

    def leaves_processors(self) -> bool:
        """Whether fewer log segments are sealed than there are processors."""
        return self._count < self._processors


_BUSY = _Busy()


@dataclass(frozen=True, slots=True)
class SealedLogSegment:
    """A log segment that is sealed."""

    entry: SnapshotEntry
    after: SourcePosition
    """The position at which reading continues after it."""


@dataclass(frozen=True, slots=True)
class BacklogResult:
    """The log segments that were sealed, in order, and why any are missing."""

    sealed: tuple[SealedLogSegment, ...]
    unfit: NotSealableError | None = None


@dataclass(frozen=True, slots=True)
class _Task:
    """A log segment to seal."""

    claim: Claim
    file: str
    index: int
    expect: Expectation
    known: SnapshotEntry | None
    """The entry with that file name in the predecessor's snapshot."""
    exists: bool
    """Whether this generation already has a sealed segment of that index."""


class BacklogSealer:
    """Seals the finished log segments of one log, for one replica, in the background. One thread at a time calls it."""

    def __init__(self, context: ReplicaContext, submit: Callable[[Callable[[], None]], object] | None = None) -> None:
        """``submit`` runs work in a thread that no WAL segment waits for; None: in the calling thread."""
        source = context.source
        self.files = FinishedSegments(source, context.clock)
        self._events = context.events
        self._folder = source.folder
        self._format = source.format
        self._client = context.client
        self._compressing = context.workers.compressing
        self._compression = context.settings.compression
        self._listener = context.listener
        self._clock = context.clock
        self._submit = submit or InlineRunner()
        self._job: SealingJob[_Task, SealedLogSegment] | None = None
        self._wanted: tuple[str, int] | None = None
        self._counting = threading.Lock()
        self._left = 0
        self._shipped = 0
        self._marks = NO_MARKS
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether log segments are being sealed."""
        return self._job is not None and not self._job.done

    def stop(self) -> None:
        """Seal nothing more. The next owner adopts what is there."""
        self._stopped = True
        if self._job is not None:
            self._job.stop()

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until nothing is being sealed. Return whether that is so."""
        return self._job is None or self._job.wait(seconds)

    def seal(
        self,
        claim: Claim,
        start: SourcePosition,
        find_files: Callable[[], Sequence[str]],
        known: Iterable[SnapshotEntry] = (),
        shipped: int = 0,
        *,
        may_be_begun: bool = False,
    ) -> BacklogResult | None:
        """Seal the log segments that ``find_files`` returns: those that a follower at ``start`` would read.

        Args:
            claim: Of the generation.
            start: The position of the first of them.
            find_files: Returns their names.
            known: The entries of the predecessor's newest snapshot.
            shipped: When the object before was shipped, in microseconds since 1970.
            may_be_begun: A put of an earlier run may still create a WAL segment of them, which states another time.

        Returns:
            What was sealed; None while sealing runs: repeat the call after ``on_backlog_sealed``.

        Raises:
            StoreError, SealedConflictError, CorruptObjectError, SourceError: Repeat the call to continue. Objects that
                are there already are adopted.
        """
        wanted = (claim.generation, start.index)
        job = self._job
        if job is None or self._wanted != wanted:
            if job is not None and self.busy:
                job.stop()  # its result is no longer needed
                return None
            self._marks = NO_MARKS if may_be_begun else ShipTimes((), ())
            job = self._begin(claim, start, find_files(), known, shipped)
            self._wanted = wanted
        outcome = job.outcome()
        if outcome is None:
            return None
        self._job = None
        if isinstance(outcome.error, NotSealableError):
            return self._check(outcome.made, start.expectation, outcome.error)
        if outcome.error is not None:
            raise outcome.error
        return self._check(outcome.made, start.expectation)

    def continue_numbers(
        self, place: SourcePosition, older: Sequence[SnapshotEntry], number: int | None
    ) -> SourcePosition:
        """Return ``place``, the beginning of the log at its source, with the sequence of the record there.

        ``older`` are the log segments that the source has dropped: the record follows theirs. ``number``: its sequence
        if these do not state one.
        """
        follows = next((entry.next for entry in reversed(older) if entry.next is not None), number or 0)
        if self._format.self_numbered or follows <= (place.sequence or 0):
            return place
        return replace(place, sequence=follows)

    def is_begun(self, claim: Claim, start: SourcePosition) -> bool:
        """Whether the generation has a WAL segment of the log segment that begins at ``start``. One listing."""
        since = Position(claim.generation, start.index, 0)
        found = next(iter(self._client.wal_segments(since.generation, since)), None)
        return found is not None and found.position.index == start.index

    def _begin(
        self, claim: Claim, start: SourcePosition, files: Sequence[str], known: Iterable[SnapshotEntry], shipped: int
    ) -> SealingJob[_Task, SealedLogSegment]:
        self.files.sync_folder()
        name = claim.generation
        there = {info.index for info in self._client.sealed_segments(name, start.index)} if files else set()
        kept = {entry.file: entry for entry in known}
        tasks = [
            _Task(
                claim,
                file,
                index,
                start.expectation if index == start.index else Expectation(),
                kept.get(file),
                index in there,
            )
            for index, file in enumerate(files, start.index)
        ]
        self._left, self._shipped = len(tasks), shipped
        width = PARALLELISM if self._format.self_numbered else 1

        def seal(task: _Task, before: SealedLogSegment | None) -> SealedLogSegment:
            return self._seal(task, before, job.raise_if_stopped)

        job = SealingJob(tasks, seal, width=width, submit=self._submit, on_done=self._report_done)
        self._job = job
        if self._stopped:
            job.stop()
        if tasks:
            job.start()
        return job

    def _report_done(self) -> None:
        if not self._stopped:
            self._events.on_backlog_sealed()

    def _check(
        self, sealed: Sequence[SealedLogSegment], expect: Expectation, unfit: NotSealableError | None = None
    ) -> BacklogResult:
        """Check that they follow each other. They may have been sealed concurrently, when that was not known."""
        if self._format.self_numbered:
            for at, segment in enumerate(sealed):
                try:
                    self.files.check_begins(segment.entry.file, expect)
                except NotSealableError as error:
                    return BacklogResult(tuple(sealed[:at]), error)
                expect = segment.after.expectation
        return BacklogResult(tuple(sealed), unfit)

    def _seal(
        self, task: _Task, before: SealedLogSegment | None, raise_if_stopped: Callable[[], None]
    ) -> SealedLogSegment:
        """Seal a log segment, refer to its known entry, or adopt what is there."""
        path = self.files.path(task.file)
        try:
            with self.files.open(task.file) as opened:
                opened.sync(path)
                expect = task.expect if before is None else before.after.expectation
                entry = self._find(task, opened, expect, raise_if_stopped)
                last = None
                if entry is None:
                    entry, last = self._put(task, opened, expect, raise_if_stopped)
        except SealedConflictError:
            raise
        except NOT_FINISHED as error:
            raise NotSealableError(task.file) from error
        sealed = SealedLogSegment(entry, self.files.place_after(entry, last))
        with self._counting:
            self._left -= 1
            left = self._left
        self._listener.on_segment_sealed(SegmentSealed(self._folder, self._client.url, entry, left))
        return sealed

    def _find(
        self, task: _Task, opened: OpenSegment, expect: Expectation, raise_if_stopped: Callable[[], None]
    ) -> SnapshotEntry | None:
        """Return the entry of a sealed segment with the same bytes and the same numbers of records; None if there is
        none. Unnumbered records have other numbers if more or fewer records precede them now."""
        known = task.known
        if known is not None and not self._has_same_numbers(known, expect):
            known = None
        if known is not None and self.files.holds(opened, known.length, known.digest, raise_if_stopped):
            return replace(known, index=task.index)
        return self._adopt(task, opened, raise_if_stopped) if task.exists else None

    def _adopt(self, task: _Task, opened: OpenSegment, raise_if_stopped: Callable[[], None]) -> SnapshotEntry:
        """Return the entry of the sealed segment that is there. Raises SealedConflictError if it holds other bytes."""
        footer, size = read_sealed_footer(self._client, task.claim.generation, task.index)
        if footer.file == task.file and self.files.holds(opened, footer.length, footer.digest, raise_if_stopped):
            return make_entry(footer, size)
        raise SealedConflictError(self.files.path(task.file), f"{footer.key} holds other bytes than the log")

    def _has_same_numbers(self, known: SnapshotEntry, expect: Expectation) -> bool:
        return self._format.self_numbered or expect.sequence is None or known.first in {None, expect.sequence}

    def _put(
        self, task: _Task, opened: OpenSegment, expect: Expectation, raise_if_stopped: Callable[[], None]
    ) -> tuple[SnapshotEntry, Scan | None]:
        claim = task.claim
        segment = FinishedSegment(
            claim=claim,
            index=task.index,
            file=task.file,
            length=opened.size(),
            shipped=max(self._clock.now(), self._shipped),
            expect=expect,
            path=self.files.path(task.file),
            marks=self._marks,
        )

        def read(offset: int, length: int) -> bytes:
            raise_if_stopped()
            return opened.read(offset, length)

        watched = _WatchedFormat(self._format)
        sealing = Sealing(
            segment,
            read,
            cast("LogFormat", watched),
            self._compressing,
            compression=self._compression,
            may_hand_over=_BUSY.leaves_processors,
        )
        try:
            with _BUSY:
                self._client.write_sealed_segment(claim.generation, task.index, sealing)
        except ExistsError:  # our own put, whose answer was lost
            return self._adopt(task, opened, raise_if_stopped), watched.last
        if not sealing.footer.records:
            raise NotSealableError(task.file)
        return make_entry(sealing.footer, sealing.size), watched.last


class _WatchedFormat:
    """A format that remembers the last commits it saw, for Sealing."""

    def __init__(self, inner: LogFormat) -> None:
        self._inner = inner
        self.finished_tail = inner.finished_tail
        self.last: Scan | None = None

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        found = self._inner.scan(name, data, offset, expect, known=known)
        if found.commits:
            self.last = found
        return found

    def scan_front(self, data: memoryview, offset: int, expect: Expectation) -> Scan | None:
        found = scan_front(self._inner, data, offset, expect)
        self.last = found or self.last
        return found


class Backlog:
    """Ships the log segments that were finished while the daemon was down. Used by one thread at a time.

    A log segment that was begun as WAL segments continues as WAL segments, to its ``final``. Sealing begins at the
    index after it.
    """

    def __init__(self, context: ReplicaContext, claim: Claim, backlog_sealer: BacklogSealer | None) -> None:
        """``backlog_sealer``: None without a backlog to seal."""
        self._sealer = backlog_sealer
        self._claim = claim
        self._clock = context.clock
        self._last = ""
        """The newest log segment that was finished when the daemon came back."""
        self._sealed: dict[int, SealedLogSegment] = {}
        self._free: int | None = None
        """The index at which sealing begins."""

    @property
    def open(self) -> bool:
        """Whether the finished log segments are not known yet."""
        return self._sealer is not None

    def seal(self, place: SourcePosition, shipped: int) -> bool:
        """Seal the finished log segments, if nothing of the one at ``place`` is shipped yet. Return False while that
        runs: nothing may be shipped from there until it ends.

        ``shipped``: as for ``WalEncoder.next``. Raises what ``BacklogSealer.seal`` raises.
        """
        if self._sealer is not None and not self._last:
            self._last = next(reversed(self._sealer.files.find_after(place)), "")
            self._sealer = self._sealer if self._last else None
        if self._sealer is None or place.offset:
            return True
        if self._free != place.index and self._sealer.is_begun(self._claim, place):
            return True  # a run that was killed before it saved its state has begun it
        self._free = place.index
        find_files = partial(_find_until, self._sealer.files, place, self._last)
        result = self._sealer.seal(self._claim, place, find_files, shipped=shipped, may_be_begun=True)
        if result is None:
            return False
        self._sealer = None
        self._sealed = {segment.entry.index: segment for segment in result.sealed}
        return True

    def next(self, place: SourcePosition, previous: str, shipped: int) -> EncodedWalSegment | None:
        """Return the ``final`` of the log segment that begins at ``place``, if it is sealed; None if it ships as WAL.

        ``previous``, ``shipped``: as for ``WalEncoder.next``.
        """
        sealed = self._sealed.get(place.index) if not place.offset else None
        if sealed is None or place.file not in ("", sealed.entry.file):
            return None
        header = self._make_final(sealed.entry, place, previous, max(self._clock.now(), shipped))
        body = wal_segment.assemble(header, [])
        start = replace(place, file=sealed.entry.file)
        return EncodedWalSegment(
            start, sealed.after, header, body, wal_segment.digest(body), more=True, sealed=sealed.entry
        )

    def _make_final(self, entry: SnapshotEntry, place: SourcePosition, previous: str, shipped: int) -> WalHeader:
        header = WalHeader.of(self._claim, place.index, 0, previous=previous, shipped=shipped)
        following = entry.next if entry.next is not None else place.sequence
        return replace(header, file=entry.file, next=following, final=True, sealed=entry.digest)


def _find_until(files: FinishedSegments, place: SourcePosition, last: str) -> Sequence[str]:
    names = files.find_after(place)
    return names[: names.index(last) + 1] if last in names else []
