"""LogReader: reads the records of a log on local disk between any two positions, or follows the log as it grows."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, SupportsIndex

from litelog.errors import ConfigError, NotYetAvailableError, SourceMissingError
from litelog.formats.capabilities import is_divisible
from litelog.formats.litelog import LitelogFormat
from litelog.formats.record_stream import RecordStream
from litelog.formats.registry import open_format
from litelog.log.cursor import LARGE_PIECE_BYTES, PIECE_BYTES, LogCursor
from litelog.log.indexed_times import sequence_at
from litelog.log.read_bounds import ReadBounds
from litelog.log.replica_registry import default_state_dir, log_state_folder
from litelog.log.seek import Seeker, StartPlace
from litelog.log.sequence_base import SequenceBase
from litelog.log.source import SegmentFolder
from litelog.system.clock import SystemClock
from litelog.system.inotify import Watcher

if TYPE_CHECKING:
    from datetime import datetime

    from litelog.formats import LogFormat, Tail
    from litelog.formats.columns import Columns
    from litelog.units import Time

POLL_SECONDS = 0.02
"""Seconds between two polls of a following reader if no event can wake it."""

SAFETY_SECONDS = 1.0
"""Seconds between two polls even if events wake it: writes through mmap cause no events."""


class LogReader(RecordStream):
    """Reads a log of any format, and checks all bytes. An iterator of Record, and a context manager.

    The last bytes of a finished log segment may not be a commit (a line without its end). The reader skips them if the
    format allows them, and raises CorruptCommitError otherwise.
    """

    def __init__(  # noqa: PLR0913 - each is a separate choice
        self,
        folder: str | os.PathLike[str],
        log_format: LogFormat | str | None = None,
        *,
        pattern: str | None = None,
        start: SupportsIndex | datetime | str = "earliest",
        start_time: Time | None = None,
        end: SupportsIndex | datetime | str | None = None,
        end_time: Time | None = None,
        follow: bool = False,
        block: bool = True,
        timeout: float | None = None,
        poll_interval: float = POLL_SECONDS,
        watcher: Watcher | None = None,
        state_dir: str | None = None,
    ) -> None:
        """Prepare to read. The first ``read`` opens the log.

        Args:
            folder: The log's folder.
            log_format: The log's format, or its name; None: litelog's own.
            pattern: Which names are log segments, if the format is given by its name and needs a pattern.
            start: A sequence, or "earliest", or "latest" (the last record that exists), or "end" (after it); or a
                datetime with a zone, as ``start_time``; or a text as ``litelog cat --from`` takes it, for example
                "oldest" or "2month3days" (that long before now). If the log ends before that, a reader without
                ``follow`` ends at once, and a reader with it waits for the record.
            start_time: Instead of ``start``: the first record at or after it. Microseconds since 1970, or a datetime
                with a zone.
            end: The first sequence that is not returned, or a datetime, as ``end_time``; None: no limit.
            end_time: End before the first record at or after it, as ``start_time``; None: no limit.
            follow: Wait for new records at the end of the log. Without it, reading ends there.
            block: Whether ``read`` waits when it follows. Without it, it raises NotYetAvailableError at once.
            timeout: How many seconds ``read`` waits before it raises NotYetAvailableError; None: for ever.
            poll_interval: Seconds between two polls if no event can wake the reader.
            watcher: Shared by many readers; None: a following reader makes its own.
            state_dir: Where the daemon that replicates the log keeps its state; None: the usual folder. It holds the
                tombstone of a truncated log whose records carry no numbers.

        Raises:
            ConfigError: Arguments that do not fit together or do not fit the format.
        """
        super().__init__()
        self._format = choose_format(log_format, pattern)
        self._bounds = bounds = ReadBounds.of(start, start_time, end, end_time)
        bounds.check(self._format)
        self.folder = folder = os.fspath(folder)
        self._start, self._start_time = bounds.start, bounds.start_time
        self._skip_before = bounds.start_time if self._format.has_timestamps else None
        self._follow, self._timeout = follow, timeout if block else 0.0
        self._watcher, self._own_watcher = watcher, watcher is None
        self._clock = SystemClock()
        self._names = SegmentFolder(folder, self._format, self._clock)
        self._numbering = SequenceBase(folder, self._format, self._names, _state_folder(state_dir, folder))
        self._cursor = LogCursor(folder, self._format, self._names, self._numbering)
        self._seeker = Seeker(folder, self._format, self._names, self._numbering)
        self._poll_seconds, self._piece_bytes = poll_interval, PIECE_BYTES
        self._skip_to = self._start if isinstance(self._start, int) else None
        self._wake, self._busy = threading.Event(), threading.Lock()
        self._ended = self._closed = False

    def read(self) -> Columns | None:
        """Read the next records.

        Returns:
            At least one record, from about 1 MiB at first and 4 MiB later; None at the end, and after ``close``.

        Raises:
            TruncatedError, SequenceGapError, CorruptCommitError, WrongFormatError, SourceError: As their names say.
            DivergedError: The current log segment became shorter, has other bytes now, or is gone while an older one
                exists.
            NotYetAvailableError: No record arrived within ``timeout``. Only when following; call again later.
        """
        with self._busy:
            deadline = None if self._timeout is None else self._clock.monotonic() + self._timeout
            while not self._closed and not self._ended:
                columns = self._read_now() or self._read_armed(deadline)
                if columns is not None:
                    return columns
            return None

    @property
    def next_sequence(self) -> int | None:
        """The sequence that ``read`` expects next; None if the log decides."""
        return self._cursor.expect.sequence

    def sequence_after(self, columns: Columns) -> int:
        """The sequence after the last of records that ``read`` has returned."""
        length = int(columns.value_lengths[-1]) if is_divisible(self._format) else 1
        return int(columns.sequences[-1]) + length

    @property
    def read_from(self) -> int:
        """The offset, in its log segment, of the ``data`` of the records that the last ``read`` returned."""
        return self._cursor.read_from

    @property
    def tail(self) -> Tail | None:
        """The kind of bytes after the last whole commit, as the last ``read`` found them; None if there are none."""
        piece = self._cursor.tail
        return None if piece is None else piece.tail

    def close(self) -> None:
        """End reading: a blocked ``read`` returns. Idempotent. Any thread may call it, except a watcher's."""
        self._closed = True
        self._wake.set()
        with self._busy:
            self._cursor.close()
            if self._watcher is not None:
                self._watcher.disarm(self.folder, self._wake.set)
                if self._own_watcher:
                    self._watcher.close()
                self._watcher = None

    def _read_armed(self, deadline: float | None) -> Columns | None:
        """At the end of the log: arm the watcher, read once more, then wait. Returns None to be called again, or if
        reading has ended."""
        if self._ended:
            return None
        if not self._follow:
            self._ended = True
            return None
        left = None if deadline is None else deadline - self._clock.monotonic()
        if left is not None and left <= 0:
            raise NotYetAvailableError(f"{self.folder}: no record follows yet")
        self._wake.clear()
        if self._watcher is None and not self._closed:
            self._watcher = Watcher()
        armed = self._watcher is not None and self._watcher.arm(self.folder, self._wake.set)
        columns = self._read_now()
        if columns is None and not self._closed and not self._ended:
            wait = max(self._poll_seconds, SAFETY_SECONDS) if armed else self._poll_seconds
            self._wake.wait(wait if left is None else min(wait, left))
        return columns

    def _read_now(self) -> Columns | None:
        """Return the next records between start and end; None if there are none now."""
        while not self._closed:
            try:
                if not self._cursor.placed and not self._find_start():
                    return None
                columns = self._cursor.next_records(self._limit())
            except SourceMissingError:
                if self._follow:
                    return None  # the log does not exist yet, or its disk is unmounted
                raise
            if columns is None:
                return None
            columns = self._cut(columns)
            if len(columns):
                return columns
            if self._ended:
                return None
        return None

    def _limit(self) -> int:
        """How many bytes to read: more from call to call. If sequences count bytes, ``end`` limits it."""
        if not is_divisible(self._format):
            limit, self._piece_bytes = self._piece_bytes, min(2 * self._piece_bytes, LARGE_PIECE_BYTES)
            return limit
        left = PIECE_BYTES if self._bounds.end is None else self._bounds.end - (self._cursor.expect.sequence or 0)
        return max(1, min(PIECE_BYTES, left))

    def _find_start(self) -> bool:
        """Place the cursor. Search again if a log segment is removed meanwhile. False if the log holds no commit
        yet."""
        while not self._closed:
            names = self._names.all()
            try:
                place = self._seek()
                if place is not None:
                    self._cursor.place(self._names.open(place.name), place.offset, place.expect)
                    return True
            except FileNotFoundError:
                continue
            if self._names.all() == names:
                if self._start in ("latest", "end"):
                    self._start = "earliest"  # the log was empty at the start: all records that arrive are new
                return False
        return False

    def _seek(self) -> StartPlace | None:
        if self._start_time is not None and not self._format.has_timestamps:
            found = sequence_at(self.folder, self._names, self._format, self._start_time)
            self._start, self._start_time, self._skip_to = "end" if found is None else found, None, found
        if self._start_time is not None:
            return self._seeker.before_time(self._start_time)
        if isinstance(self._start, int):
            return self._seeker.before(self._start)
        if self._start == "earliest":
            return self._seeker.earliest()
        place = self._seeker.last()
        if place is not None and self._skip_to is None:
            self._skip_to = self._last_sequence(place) + (self._start == "end")
        return place

    def _last_sequence(self, place: StartPlace) -> int:
        """Return the last record's sequence; ``place`` is that of the last commit."""
        with self._names.open(place.name) as segment:
            cursor = LogCursor(self.folder, self._format, self._names, self._numbering)
            cursor.place(segment, place.offset, place.expect)
            last = -1
            while (columns := cursor.next_records()) is not None:
                last = int(columns.sequences[-1]) if len(columns) else (cursor.expect.sequence or 0) - 1
            cursor.close()
        return last

    def _cut(self, columns: Columns) -> Columns:
        """Return only the records between start and end."""
        if self._skip_to is not None:
            columns = columns.slice(columns.find(self._skip_to), len(columns))
            if len(columns):
                self._skip_to = None
        if self._skip_before is not None and columns.timestamps is not None and len(columns):
            columns = columns.slice(columns.find_time(self._skip_before), len(columns))
            if len(columns):
                self._skip_before = None
        stop, bounds = len(columns), self._bounds
        if bounds.end is not None:
            stop = columns.find(bounds.end)
            self._ended = stop < len(columns) or (self._cursor.expect.sequence or 0) >= bounds.end
        if bounds.end_time is not None and columns.timestamps is not None and len(columns):
            found = columns.find_time(bounds.end_time)
            if found < len(columns):
                stop, self._ended = min(stop, found), True
        return columns.slice(0, stop)


def _state_folder(state_dir: str | None, folder: str) -> str:
    """Find the folder in which the daemon that replicates the log in ``folder`` keeps the log's state."""
    return log_state_folder(state_dir or default_state_dir(), folder)


def choose_format(log_format: LogFormat | str | None, pattern: str | None) -> LogFormat:
    """The format that the arguments name. Raises ConfigError if there is none, or if it takes no such pattern."""
    if isinstance(log_format, str):
        return open_format(log_format, pattern)
    if pattern is not None:
        raise ConfigError("a pattern needs the name of a format: lines or raw")
    return LitelogFormat() if log_format is None else log_format
