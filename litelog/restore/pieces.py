"""The work on one object of a restore: read, check against the one before, decompress, scan, write at its place."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from litelog import wal_segment
from litelog.errors import LitelogError, NotFoundError, ReplicaGapError
from litelog.layout import wal_key
from litelog.reading.checked_read import read_checked
from litelog.reading.wal_chain import check_run, expectation, next_link
from litelog.restore.run import WINDOW_BYTES, Buffers, RunWriter
from litelog.restore.write_back import begin_write_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from litelog.formats import LogFormat, Scan
    from litelog.position import Position
    from litelog.reading.wal_chain import Link
    from litelog.replica_client import ReplicaClient
    from litelog.wal_segment import WalSegment


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
        *,
        suspicious: bool = False,
    ) -> None:
        """``suspicious``: check the bytes of every object, and read it again where they fail, before it is used."""
        self._client = client
        self._decode = wal_segment.decode_checked if suspicious else wal_segment.decode
        self._format = log_format
        self._end = end
        self._files = _SegmentFiles(create, indexes)
        self._buffers = Buffers()
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
            return read_checked(
                lambda: self._client.read_wal_segment(position), partial(self._decode, wal_key(position))
            )
        except NotFoundError as error:
            raise ReplicaGapError(str(position)) from error

    def _write_data(self, file: int, segment: WalSegment, link: Link) -> tuple[int, Scan | None]:
        header = segment.header
        stop = self._end.offset if header.index == self._end.index else header.end
        buffer = self._buffers.take()
        run = RunWriter(segment, file, self._format, expectation(link, header), stop, buffer)
        try:
            for data in segment.pieces():
                run.put(data)
                self._check_stop()
            check_run(header, segment.key, run.finish(), self._format)
        finally:
            self._buffers.give_back(run.buffer)
        if run.written > WINDOW_BYTES:
            begin_write_back(file, header.offset, run.written)
        return run.written, run.kept

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
