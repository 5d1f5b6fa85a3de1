"""PastRuns: the commits of one log segment that a buffer no longer holds, from any commit on, as the buffer's runs.

The bytes come from the log's folder while it holds the log segment, and from the replica otherwise: from its sealed
segment or its WAL segments. What comes before the first run is read once, since a run's checksum covers it. It is not
read if what the reader got before states that checksum: then only its last bytes are compared.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, LitelogError, PrunedError
from litelog.formats import FinishedTail
from litelog.formats.capabilities import rewrites_finished
from litelog.live.buffer_news import ForkedError
from litelog.log.source import open_segment
from litelog.log.source_position import SourcePosition, digest, make_run
from litelog.objects.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.log.source import OpenSegment
    from litelog.log.source_position import CommitRun
    from litelog.objects.wal_segment import WalHeader
    from litelog.restore.generation_bytes import GenerationBytes
    from litelog.shipping.context import LogSource

READ_BYTES = 256 << 10
"""How many bytes are read at a time. A run has about as many."""


class GoneError(PrunedError):
    """Neither the folder nor a replica has the position. ``next``: the first later position that is there; None if none
    is."""

    def __init__(self, position: Position, history: GenerationBytes) -> None:
        later = (file.index for file in history.files() if file.index > position.index)
        index = min(later, default=None)
        self.next = None if index is None else str(Position(position.generation, index, 0))
        super().__init__(str(position))


class PastRuns:
    """One thread at a time. Close it."""

    def __init__(
        self,
        source: LogSource,
        history: GenerationBytes,
        first: Position,
        name: str | None,
        known: SourcePosition | None = None,
    ) -> None:
        """``first``: where the first run begins. ``name``: the log segment, if it is known. ``known``: the same place,
        as what the reader got before it states it; None if it got nothing.

        Raises GoneError if neither the folder nor the replica has the log segment, ForkedError if the folder does not
        hold what the reader got.
        """
        self._format = source.format
        self._first = first
        self._held = b""
        self._place = known or SourcePosition(index=first.index, file=name or _find_name(history, first))
        self._name = self._place.file
        self._path = os.path.join(source.folder, self._name)
        self._file = None if rewrites_finished(source.format) else _open(source, self._name)
        self._chunks = iter(()) if self._file is not None else self._read_replica(history)
        self._ended = False
        if known is not None and self._file is not None and not _holds(self._file, known):
            self.close()
            raise ForkedError(self._path, f"its bytes before {first} are not those that were sent")

    @property
    def place(self) -> SourcePosition:
        """The beginning of the next run, once there was a run."""
        return self._place

    def close(self) -> None:
        """Close the file. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def next_run(self, stop: int | None) -> CommitRun | None:
        """Return the next run; None after the last one.

        Args:
            stop: Up to which offset the log segment is durable; None: it is finished.

        Raises:
            ForkedError: No commit begins where the first run should.
            GoneError: The bytes are gone everywhere.
            StoreError: The bytes cannot be read.
        """
        while not self._ended:
            data = self._held + self._read(stop)
            if len(data) == len(self._held):
                return None if stop is not None else self._finish()
            view = memoryview(data)
            scan = self._format.scan(self._path, view, self._place.offset, self._place.expectation)
            run = make_run(self._place, view, scan, final=False)
            self._held, self._place = data[len(run.data) :], run.end
            if run.start.offset >= self._first.offset and len(run.data):
                return run
            if run.end.offset + len(self._held) == self._first.offset and self._held:
                raise ForkedError(self._path, f"no commit begins at {self._first}")
        return None

    def _finish(self) -> CommitRun:
        """The final run: what comes after the last commit of a finished log segment, or nothing."""
        self._ended = True
        if self._place.offset < self._first.offset:
            raise ForkedError(
                self._path, f"no commit begins at {self._first}; the last one ends at {self._place.offset}"
            )
        rest = memoryview(self._held)
        if not rest or self._format.finished_tail is not FinishedTail.SHIP:
            return make_run(self._place, memoryview(b""), None, final=True)
        scan = self._format.scan(self._path, rest, self._place.offset, self._place.expectation)
        return make_run(self._place, rest, replace(scan, end=scan.start + len(rest)), final=True)

    def _read(self, stop: int | None) -> bytes:
        """The next bytes, up to the first run's start if they come before it. While a commit is not whole, the bytes
        are doubled: they are scanned again each time."""
        at = self._place.offset + len(self._held)
        size = max(READ_BYTES, len(self._held))
        if stop is not None:
            size = min(size, stop - at)
        if at < self._first.offset:
            size = min(size, self._first.offset - at)
        if self._file is not None:
            return self._file.read(at, max(size, 0))
        pieces: list[bytes] = []
        while size > 0 and (piece := next(self._chunks, b"")):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _read_replica(self, history: GenerationBytes) -> Iterator[bytes]:
        """The bytes of a finished log segment, cut where the first run begins."""
        file = history.find(self._name)
        size = None if file is None else history.finished_size(file)
        if size is None:
            raise GoneError(self._first, history)
        try:
            for start, stop in ((self._place.offset, min(self._first.offset, size)), (self._first.offset, size)):
                for chunk in history.chunks(self._name, start, stop):
                    yield bytes(chunk.data)
        except CorruptionError as error:
            raise GoneError(self._first, history) from error


def end_of(header: WalHeader) -> SourcePosition | None:
    """The position after a WAL segment's bytes; None if its header does not state how to compare them with a file."""
    if header.check_start is None or header.check_digest is None:
        return None
    return SourcePosition(
        header.index,
        header.file,
        offset=header.end,
        crc_total=header.crc_total,
        sequence=header.next,
        check_start=header.check_start,
        check_digest=header.check_digest,
    )


def _find_name(history: GenerationBytes, first: Position) -> str:
    file = next((file for file in history.files() if file.index == first.index and file.name), None)
    if file is None:
        raise GoneError(first, history)
    return file.name


def _open(source: LogSource, name: str) -> OpenSegment | None:
    try:
        return open_segment(source.folder, name, source.format, source.failed_syncs)
    except (OSError, LitelogError):
        return None


def _holds(file: OpenSegment, known: SourcePosition) -> bool:
    """Whether a file holds the bytes before a known place."""
    return digest(file.read(known.check_start, known.offset - known.check_start)) == known.check_digest
