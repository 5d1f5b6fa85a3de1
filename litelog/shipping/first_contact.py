"""What of a log goes up sealed when a generation begins: its finished log segments, side by side, before the snapshot.

Those that the predecessor's newest snapshot holds are not uploaded again, once the local bytes are seen to be the same.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from litelog.errors import (
    CorruptCommitError,
    CorruptObjectError,
    DivergedError,
    ExistsError,
    SequenceGapError,
    WrongFormatError,
)
from litelog.formats import Expectation, FinishedTail
from litelog.log.place import CHECKED_BYTES, Place, digest
from litelog.log.source import GROWTH_BYTES, SegmentNames
from litelog.position import generation
from litelog.sealing import FinishedSegment, Sealing
from litelog.shipping.listener import Sealed
from litelog.shipping.sealer import read_sealed_footer
from litelog.snapshot_entries import SnapshotEntry, make_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from litelog.claim import Claim
    from litelog.clock import Clock
    from litelog.formats import LogFormat, Scan
    from litelog.log.source import OpenSegment
    from litelog.replica_client import ReplicaClient
    from litelog.shipping.listener import Listener
    from litelog.shipping.pair import Source

PARALLELISM = 4
"""Log segments that are sealed side by side, where their format numbers them by itself."""

PROBE_BYTES = 64 << 10
"""How much of a log segment is read at first to see whether it holds a whole commit."""

READ_BYTES = 4 << 20

_UNFIT = (CorruptCommitError, SequenceGapError, WrongFormatError, DivergedError, FileNotFoundError)


class UnfitError(Exception):
    """A log segment cannot go up sealed, as it is not what a finished one is: ``file`` and all behind it go as WAL."""

    def __init__(self, file: str) -> None:
        self.file = file
        super().__init__(file)


@dataclass(frozen=True, slots=True)
class Contacted:
    """What went up sealed: an entry for each log segment, and where the log is read on."""

    entries: tuple[SnapshotEntry, ...]
    place: Place


class FirstContact:
    """Seals what is finished of one log, for one replica. Used by one thread at a time."""

    def __init__(
        self, source: Source, client: ReplicaClient, compressing: Executor, listener: Listener, clock: Clock
    ) -> None:
        self._folder = source.folder
        self._format = source.format
        self._client = client
        self._compressing = compressing
        self._listener = listener
        self._clock = clock
        self._names = SegmentNames(source.folder, source.format, clock, reports=False)

    def find_finished(self, start_file: str, unfit: str) -> list[str]:
        """The log segments from ``start_file`` (the first) on that are finished, as a newer one holds a whole commit;
        those before ``unfit``, if that is given."""
        names = self._held(start_file)
        newest = next((at for at in reversed(range(len(names))) if self._holds_commit(names[at])), 0)
        names = names[:newest]
        return names[: names.index(unfit)] if unfit in names else names

    def seal(self, claim: Claim, index: int, start_file: str, known: Iterable[SnapshotEntry]) -> Contacted:
        """Seal the log segments from ``start_file`` on, whose index is ``index``, up to the claim's first one.

        ``known``: what the predecessor's newest snapshot names. To be called again after a failure: what is there is
        adopted. Raises UnfitError, StoreError, CorruptObjectError, SourceError.
        """
        names = self._held(start_file)[: claim.first - index]
        if len(names) < claim.first - index or (names and names[0] != start_file):
            raise UnfitError(start_file)
        self._names.sync_folder()
        there = {info.index for info in self._client.sealed_segments(generation(claim.generation))} if names else set()
        kept = {entry.file: entry for entry in known}
        tasks = [_Task(claim, name, index + at, kept.get(name), index + at in there) for at, name in enumerate(names)]
        entries: list[SnapshotEntry] = []
        for done in self._seal_all(tasks):
            entries.append(done.entry)
            self._listener.sealed(Sealed(self._folder, self._client.url, done.entry, len(tasks) - len(entries)))
        return Contacted(tuple(entries), self._place_behind(done) if entries else Place(index, start_file))

    def _seal_all(self, tasks: Sequence[_Task]) -> Iterator[_Done]:
        """Seal them, in order: side by side where they need not wait for each other's numbers."""
        expect = Expectation()
        if not self._format.self_numbered:
            for task in tasks:
                done = self._seal(task, expect)
                expect = done.expectation
                yield done
            return
        with ThreadPoolExecutor(PARALLELISM, "first") as pool:
            making = [pool.submit(self._seal, task, expect) for task in tasks]
            try:
                for task, future in zip(tasks, making, strict=True):
                    done = future.result()
                    self._check_begins(task, expect)
                    expect = done.expectation
                    yield done
            finally:
                for future in making:
                    future.cancel()

    def _seal(self, task: _Task, expect: Expectation) -> _Done:
        """Seal one, refer to what is there, or adopt it."""
        path = os.path.join(self._folder, task.file)
        try:
            with self._names.open(task.file) as opened:
                opened.sync(path)
                found = self._find(task, opened)
                return _Done(found, None) if found is not None else self._put(task, opened, expect, path)
        except _UNFIT as error:
            raise UnfitError(task.file) from error

    def _find(self, task: _Task, opened: OpenSegment) -> SnapshotEntry | None:
        """The entry of a sealed segment that holds the same bytes, if there is one."""
        known = task.known
        if known is not None and _holds(opened, known.length, known.digest):
            return replace(known, index=task.index)
        if task.there:
            footer, size = read_sealed_footer(self._client, generation(task.claim.generation), task.index)
            if footer.file == task.file and _holds(opened, footer.length, footer.digest):
                return make_entry(footer, size)
            raise CorruptObjectError(footer.key, "the sealed segment there is not of the log's bytes")
        return None

    def _put(self, task: _Task, opened: OpenSegment, expect: Expectation, path: str) -> _Done:
        claim = task.claim
        segment = FinishedSegment(
            log=claim.log,
            format=claim.format,
            generation=claim.generation,
            owner=claim.owner,
            index=task.index,
            file=task.file,
            length=opened.size(),
            crc=None,
            previous="",
            shipped=self._clock.now(),
            expect=expect,
            path=path,
        )
        watched = _WatchedFormat(self._format)
        sealing = Sealing(segment, opened.read, cast("LogFormat", watched), self._compressing)
        try:
            self._client.write_sealed_segment(generation(claim.generation), task.index, sealing)
        except ExistsError:  # our own put, whose answer was lost
            found = self._find(replace(task, known=None, there=True), opened)
            assert found is not None
            return _Done(found, watched.last)
        if not sealing.footer.records:
            raise UnfitError(task.file)
        return _Done(make_entry(sealing.footer, sealing.size), watched.last)

    def _check_begins(self, task: _Task, expect: Expectation) -> None:
        """That a log segment continues the one before it, which was not known when it was sealed."""
        try:
            with self._names.open(task.file) as opened:
                self._scan_head(task.file, opened, expect)
        except _UNFIT as error:
            raise UnfitError(task.file) from error

    def _place_behind(self, done: _Done) -> Place:
        entry = done.entry
        path = os.path.join(self._folder, entry.file)
        try:
            with self._names.open(entry.file) as opened:
                scan = done.scan or self._scan_end(path, opened, entry)
                start = max(scan.last_commit, entry.length - CHECKED_BYTES)
                checked = digest(opened.read(start, entry.length - start))
        except _UNFIT as error:
            raise UnfitError(entry.file) from error
        return Place(
            index=entry.index + 1,
            file="",
            behind=entry.file,
            behind_end=entry.length,
            behind_start=start,
            behind_digest=checked,
            sequence=scan.next,
            epoch=scan.epoch,
        )

    def _scan_end(self, path: str, opened: OpenSegment, entry: SnapshotEntry) -> Scan:
        """The last scan of a log segment's bytes, whose sealed segment is there: by going through all of it."""
        offset, length, last = 0, READ_BYTES, None
        expect = Expectation(entry.first)
        while offset < entry.length:
            data = memoryview(opened.read(offset, min(length, entry.length - offset)))
            scan = self._format.scan(path, data, offset, expect)
            if scan.end == offset:
                if offset + len(data) >= entry.length:
                    break
                length = max(2 * length, scan.wanted)
                continue
            last, offset, expect, length = scan, scan.end, scan.expectation, READ_BYTES
        if last is None:
            raise UnfitError(entry.file)
        return last

    def _scan_head(self, name: str, opened: OpenSegment, expect: Expectation) -> bool:
        """Whether a log segment begins with a whole commit, which must be the expected one."""
        length = PROBE_BYTES
        while True:
            data = memoryview(opened.read(0, length))
            scan = self._format.scan(name, data, 0, expect)
            if scan.commits or len(data) < length:
                return scan.commits > 0
            length = max(2 * length, scan.wanted)

    def _held(self, start_file: str) -> list[str]:
        """The log segments that are not empty, from ``start_file`` on."""
        names = self._names.all()
        start = names.index(start_file) if start_file in names else 0
        return [name for name in names[start:] if self._size(name)]

    def _size(self, name: str) -> int:
        try:
            return os.stat(os.path.join(self._folder, name)).st_size
        except FileNotFoundError:
            return 0

    def _holds_commit(self, name: str) -> bool:
        if self._format.finished_tail is FinishedTail.SHIP:
            return True
        try:
            with self._names.open(name) as opened:
                return self._scan_head(name, opened, Expectation())
        except _UNFIT:
            return False


@dataclass(frozen=True, slots=True)
class _Task:
    """A log segment that goes up sealed."""

    claim: Claim
    file: str
    index: int
    known: SnapshotEntry | None
    """What the predecessor's snapshot names under that file name."""
    there: bool
    """Whether this generation has a sealed segment of that index already."""


@dataclass(frozen=True, slots=True)
class _Done:
    """A sealed log segment, and the last scan of its bytes, where it was made now."""

    entry: SnapshotEntry
    scan: Scan | None

    @property
    def expectation(self) -> Expectation:
        """What must follow."""
        return Expectation(self.entry.next) if self.scan is None else self.scan.expectation


class _WatchedFormat:
    """A format that remembers the last commits it saw, for Sealing."""

    def __init__(self, inner: LogFormat) -> None:
        self._inner = inner
        self.finished_tail = inner.finished_tail
        self.last: Scan | None = None

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Scan:
        found = self._inner.scan(name, data, offset, expect)
        if found.commits:
            self.last = found
        return found


def _holds(opened: OpenSegment, length: int, sha256: str) -> bool:
    """Whether a log segment has so many bytes, zeros behind them, and that SHA-256, hex."""
    if opened.size() < length:
        return False
    sha, offset = hashlib.sha256(), 0
    while offset < length and (piece := opened.read(offset, min(READ_BYTES, length - offset))):
        sha.update(piece)
        offset += len(piece)
    return sha.hexdigest() == sha256 and not opened.read(length, GROWTH_BYTES).strip(b"\0")
