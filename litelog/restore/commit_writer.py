"""Scans and writes the bytes of WAL segments as they are decompressed, in windows of a few MiB.

Also opens, syncs and closes the restored log segments.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import Counter
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from litelog.codec.lz4_frames import MAX_FRAME_BYTES
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError
from litelog.system.files import allocate, begin_write_back, write_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typing_extensions import Buffer

    from litelog.formats import Expectation, LogFormat, Scan
    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalHeader

WINDOW_BYTES = 2 << 20
"""Bytes that are gathered before they are scanned and written: few enough for the processor's cache, and enough that
few commits cross the end of a window."""

BUFFER_BYTES = WINDOW_BYTES + MAX_FRAME_BYTES
"""The initial size of a buffer in bytes; it grows if a commit is larger than a window."""


class Buffers:
    """Memory for windows, reused for the next object: to touch fresh memory costs more than to decompress into it."""

    def __init__(self) -> None:
        self._free: SimpleQueue[mmap.mmap] = SimpleQueue()

    def take(self) -> mmap.mmap:
        """A buffer of BUFFER_BYTES or more."""
        try:
            return self._free.get_nowait()
        except Empty:
            return mmap.mmap(-1, BUFFER_BYTES)

    def give_back(self, buffer: mmap.mmap) -> None:
        """Keep a buffer for the next ``take``, unless it has grown."""
        if len(buffer) == BUFFER_BYTES:
            self._free.put(buffer)


@dataclass(frozen=True, slots=True)
class WrittenRun:
    """The result of writing one run of bytes."""

    key: str
    """The key of the object that held the bytes."""
    written: int
    """Bytes."""
    scan: Scan
    """The scan of all bytes of the run."""
    kept: Scan | None
    """The scan of the bytes that were written; None if none were."""


class CommitWriterPool:
    """Writes runs of bytes, up to the end of the restored log. Shared by threads."""

    def __init__(self, log_format: LogFormat, end: Position, check_stop: Callable[[], None]) -> None:
        """``check_stop`` raises if the restore was stopped."""
        self._format = log_format
        self._end = end
        self._check_stop = check_stop
        self._buffers = Buffers()

    def write(self, header: WalHeader, key: str, file: int, data: Iterable[Buffer], expect: Expectation) -> WrittenRun:
        """Scan and write a run at the place that ``header`` states. The caller checks the header's other fields."""
        stop = self._end.offset if header.index == self._end.index else header.end
        run = CommitWriter(header, key, file, self._format, expect, stop, self._buffers.take())
        try:
            for piece in data:
                run.put(piece)
                self._check_stop()
            scan = run.finish()
        finally:
            self._buffers.give_back(run.buffer)
        if run.written > WINDOW_BYTES:
            begin_write_back(file, header.offset, run.written)
        return WrittenRun(key, run.written, scan, run.kept)


class CommitWriter:
    """One WAL segment's bytes: put in as they arrive, scanned from commit to commit, written up to ``stop``."""

    def __init__(
        self,
        header: WalHeader,
        key: str,
        file: int,
        log_format: LogFormat,
        expect: Expectation,
        stop: int,
        buffer: mmap.mmap,
    ) -> None:
        self._key = key
        self._name = header.path
        self._file = file
        self._format = log_format
        self._expect = expect
        self._stop = stop
        self._start = header.offset
        self._filled = 0
        # Without sequences, commit boundaries may depend on how many bytes are scanned: then scan all at once.
        self._window = WINDOW_BYTES if log_format.self_numbered else max(WINDOW_BYTES, header.length)
        self._threshold = self._window
        self.buffer = buffer
        self.written = 0
        """Bytes."""
        self.scan = log_format.scan(self._name, memoryview(b""), self._start, expect)
        """The scan of the windows up to now."""
        self.kept: Scan | None = None
        """The scan of the bytes that were written."""

    def put(self, data: Buffer) -> None:
        """Take the next bytes."""
        data = memoryview(data)
        end = self._filled + len(data)
        if end > len(self.buffer):
            larger = mmap.mmap(-1, max(end, 2 * len(self.buffer)))
            larger[: self._filled] = self.buffer[: self._filled]
            self.buffer = larger
        self.buffer[self._filled : end] = data
        self._filled = end
        if end >= self._threshold:
            self._scan_window()

    def finish(self) -> Scan:
        """Scan and write the rest, and return the scan of all bytes. Also writes trailing bytes after the last commit:
        the caller has checked that the format allows them, or reports them."""
        if self._filled:
            self._scan_window()
        if self._start < self._stop:
            self._write(min(self._filled, self._stop - self._start))
        return self.scan

    def _scan_window(self) -> None:
        if self._start < self._stop < self._start + self._filled:
            cut = self._stop - self._start
            if self._scan(cut) != cut:
                raise CorruptObjectError(self._key, "end of the last whole commit", self._stop, self._start)
        self._scan(self._filled)

    def _scan(self, length: int) -> int:
        """Scan the first ``length`` bytes of the window, write the commits there, and move past them."""
        scan = self._format.scan(self._name, memoryview(self.buffer)[:length], self._start, self._expect)
        done = scan.end - self._start
        self._expect = scan.expectation
        self.scan = self.scan.joined(scan)
        if self._start < self._stop:
            self._write(done)
            self.kept = self.scan
        rest = self._filled - done
        if done and rest:
            self.buffer.move(0, done, rest)
        self._start, self._filled = scan.end, rest
        # If a commit is larger than the scanned bytes, scan again after their number has doubled.
        self._threshold = max(self._window, 2 * rest)
        return done

    def _write(self, length: int) -> None:
        self.written += write_at(self._file, memoryview(self.buffer)[:length], self._start)


class SegmentFiles:
    """The descriptors of restored log segments, each open from its first piece to its last. Shared by threads."""

    def __init__(
        self,
        create: Callable[[str], int],
        reopen: Callable[[str], int],
        sizes: Mapping[int, int],
        indexes: Iterable[int],
        reserve: Callable[[int, int], None] = allocate,
    ) -> None:
        """Open nothing yet.

        Args:
            create: Creates a file of that name, and opens it.
            reopen: Opens it again.
            sizes: The final size of each log segment in bytes, by its index.
            indexes: The index of each piece for which ``done`` will be called; ``expect`` adds more.
            reserve: Reserves room for so many bytes of an open file. It may take as long as a sync of another one.
        """
        self._create = create
        self._reopen = reopen
        self._sizes = sizes
        self._reserve = reserve
        self._lock = threading.Lock()
        self._left = Counter(indexes)
        self._open: dict[int, int] = {}
        self._created: set[int] = set()

    def expect(self, index: int, pieces: int) -> None:
        """Announce ``pieces`` more calls of ``done`` for ``index``."""
        with self._lock:
            self._left[index] += pieces

    def open(self, index: int, name: str) -> int:
        """The descriptor of a log segment that has pieces left. The first call creates the file."""
        with self._lock:
            file = self._open.get(index)
            room = 0
            if file is None:
                file, room = self._make(index, name)
                self._open[index] = file
        if room:
            self._reserve(file, room)  # without the lock, for which all other threads would wait
        return file

    @contextmanager
    def opened_apart(self, index: int, name: str) -> Iterator[int]:
        """Open a separate descriptor for a log segment that may have no pieces left; sync and close it at the end."""
        with self._lock:
            file, room = self._make(index, name)
        try:
            if room:
                self._reserve(file, room)
            yield file
            os.fsync(file)
        finally:
            os.close(file)

    def done(self, index: int) -> None:
        """Count one piece of ``index`` as written. At the last one, sync and close the log segment."""
        with self._lock:
            self._left[index] -= 1
            file = self._open.pop(index, None) if self._left[index] == 0 else None
        if file is not None:
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def close(self) -> None:
        """Close all open files without a sync. Files are only open after a failure."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])

    def _make(self, index: int, name: str) -> tuple[int, int]:
        """Open a log segment. Returns its descriptor, and the bytes for which to reserve room: 0 if it was created
        before."""
        if index in self._created:
            return self._reopen(name), 0
        file = self._create(name)
        self._created.add(index)
        size = self._sizes.get(index, 0)
        try:
            if os.fstat(file).st_size > size:  # an earlier restore wrote more
                os.ftruncate(file, size)
        except OSError:
            os.close(file)
            raise
        return file, size
