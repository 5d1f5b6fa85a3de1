"""The work on one object of a restore: read, check against the one before, decompress, scan, write at its place."""

from __future__ import annotations

import mmap
import os
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from litelog import wal_segment
from litelog.compression import FRAME_BYTES
from litelog.errors import CorruptObjectError, LitelogError, NotFoundError, ReplicaGapError
from litelog.layout import wal_key
from litelog.wal_chain import check_run, expectation, next_link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from litelog.formats import LogFormat, Scan
    from litelog.position import Position
    from litelog.replica_client import ReplicaClient
    from litelog.wal_chain import Link
    from litelog.wal_segment import WalSegment

BUFFER_BYTES = 16 << 20
"""A worker's buffer: the most that one WAL segment carries, but for a single larger commit."""


class StoppedError(LitelogError):
    """This piece was given up because an earlier one failed. Never the error that a restore ends with."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What became of one object."""

    key: str
    written: int
    """Bytes."""
    scan: Scan | None
    """Of what was written; None if the object holds no bytes."""


class PieceWriter:
    """Restores objects, each called with ``write`` on some thread, started in the order of their positions.

    Objects run side by side, but the chain is followed in order: each one waits for the link of the one before, which
    is known as soon as that one's header is read.
    """

    def __init__(
        self,
        client: ReplicaClient,
        create: Callable[[str], int],
        log_format: LogFormat,
        end: Position,
        indexes: Sequence[int],
    ) -> None:
        self._client = client
        self._format = log_format
        self._end = end
        self._files = _SegmentFiles(create, indexes)
        self._buffers = _Buffers()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Give up what is not done yet."""
        self._stopped.set()

    def close(self) -> None:
        """Close what is still open, once no ``write`` runs any more."""
        self._files.close()

    def write(self, position: Position, before: Future[Link], after: Future[Link]) -> Piece:
        """Restore the object at ``position``, which continues ``before``; sets ``after`` for the one behind it."""
        try:
            segment = self._read(position)
            link = before.result()
            after.set_result(next_link(link, segment, self._format))
        except BaseException:
            after.set_exception(StoppedError("an earlier object failed"))
            raise
        header = segment.header
        written, scan = 0, None
        if header.file and header.successor is None:
            file = self._files.open(header.index, header.file)
            if header.length:
                written, scan = self._write_data(file, segment, link)
        self._files.done(header.index)
        return Piece(segment.key, written, scan)

    def _read(self, position: Position) -> WalSegment:
        self._check_stop()
        try:
            return wal_segment.decode(wal_key(position), self._client.read_wal_segment(position))
        except NotFoundError as error:
            raise ReplicaGapError(str(position)) from error

    def _write_data(self, file: int, segment: WalSegment, link: Link) -> tuple[int, Scan]:
        header = segment.header
        expect = expectation(link, header)
        with self._buffers.fill(segment, self._check_stop) as data:
            scan = self._format.scan(header.file, data, header.offset, expect)
            check_run(header, segment.key, scan, self._format)
            wanted = header.length
            if header.index == self._end.index and header.end > self._end.offset:
                wanted = self._end.offset - header.offset
                scan = self._format.scan(header.file, data[:wanted], header.offset, expect)
                if scan.end != self._end.offset:
                    raise CorruptObjectError(segment.key, "end of the last whole commit", self._end.offset, scan.end)
            self._check_stop()
            _write_all(file, data[:wanted], header.offset)
            return wanted, scan

    def _check_stop(self) -> None:
        if self._stopped.is_set():
            raise StoppedError("the restore was stopped")


class _SegmentFiles:
    """The log segments that are being written: one descriptor each, from the first of their pieces to the last."""

    def __init__(self, create: Callable[[str], int], indexes: Sequence[int]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._left = Counter(indexes)
        self._open: dict[int, int] = {}

    def open(self, index: int, name: str) -> int:
        """The descriptor of a log segment, created at its first piece."""
        with self._lock:
            if index not in self._open:
                self._open[index] = self._create(name)
            return self._open[index]

    def done(self, index: int) -> None:
        """One piece of ``index`` is written; with the last one, sync and close the log segment."""
        with self._lock:
            self._left[index] -= 1
            file = self._open.pop(index, None) if self._left[index] == 0 else None
        if file is not None:
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def close(self) -> None:
        """Close what is open, unsynced: nothing is, but after a failure."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])


class _Buffers:
    """Memory for whole WAL segments, kept from one to the next: fresh memory costs more than decompressing into it."""

    def __init__(self) -> None:
        self._free: SimpleQueue[mmap.mmap] = SimpleQueue()

    @contextmanager
    def fill(self, segment: WalSegment, check_stop: Callable[[], None]) -> Iterator[memoryview]:
        """The segment's bytes, checked; valid inside the context."""
        length = segment.header.length
        if length <= FRAME_BYTES:
            yield memoryview(segment.data())
            return
        buffer = self._take(length)
        try:
            at = 0
            for piece in segment.pieces():
                buffer[at : at + len(piece)] = piece
                at += len(piece)
                check_stop()
            yield memoryview(buffer)[:length]
        finally:
            self._free.put(buffer)

    def _take(self, length: int) -> mmap.mmap:
        try:
            buffer = self._free.get_nowait()
        except Empty:
            buffer = mmap.mmap(-1, max(length, BUFFER_BYTES))
        return buffer if len(buffer) >= length else mmap.mmap(-1, length)


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data = data[written:]
        offset += written
