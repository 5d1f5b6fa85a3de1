"""CombinedReader: reads a log from its folder while the folder holds it, and from its replicas otherwise, as one log.

Specified in litelog/reading/README.md#a-log-together-with-its-replicas.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from litelog.errors import (
    ConfigError,
    LitelogError,
    NothingToRestoreError,
    NotYetAvailableError,
    OffsetJumpError,
    PrunedError,
    SourceMissingError,
    StoreError,
    TruncatedError,
)
from litelog.formats.capabilities import is_divisible
from litelog.formats.record_stream import RecordStream
from litelog.log.read_bounds import ReadBounds
from litelog.log.reader import LogReader
from litelog.reading.replica_records import open_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.log.read_bounds import Start
    from litelog.system.inotify import Watcher

FOLLOW_SECONDS = 30.0
"""How many seconds a reader waits for new records of a folder, before it looks whether the folder is still the log."""

BACK_OFF_SECONDS = (0.0, 0.05, 0.1, 1.0, 5.0)
"""How many seconds pass before each further attempt after a failed request; the last one repeats."""

POLL_SECONDS = 1.0
"""How many seconds pass between two looks of a reader that follows, if no source has anything new."""

OpenSource = Callable[["int | Start", "int | None", bool], RecordStream]
"""Opens a source: from a sequence or a word on, up to a sequence (exclusive; None: no limit). With True, its ``read``
waits for new records, and may raise NotYetAvailableError after a while."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """A folder or a replica that holds records of the log."""

    name: str
    """For messages."""
    open: OpenSource


def folder_source(
    folder: str, log_format: LogFormat, state_dir: str | None = None, watcher: Watcher | None = None
) -> RecordSource:
    """The folder of the log. ``state_dir`` and ``watcher``: as for ``LogReader``."""

    def open_folder(start: int | Start, end: int | None, follow: bool) -> RecordStream:
        return LogReader(
            folder,
            log_format,
            start=start,
            end=end,
            follow=follow,
            timeout=FOLLOW_SECONDS,
            watcher=watcher,
            state_dir=state_dir,
        )

    return RecordSource(folder, open_folder)


def replica_source(url: str, options: Mapping[str, object], pattern: str | None = None) -> RecordSource:
    """A replica of the log, by its URL and its backend's own options."""

    def open_replica(start: int | Start, end: int | None, follow: bool) -> RecordStream:
        return open_records(url, options, ReadBounds(start=start, end=end), follow=follow, pattern=pattern)

    return RecordSource(url, open_replica)


class CombinedReader(RecordStream):
    """Reads the records of one log in rising sequence from several sources. An iterator of Record, a context manager.

    It reads from the first source, and from a later one only what the sources before it no longer hold. After an outage
    of a source it continues with the record that comes next. It returns no record twice, and skips none without an
    OffsetJumpError.
    """

    def __init__(
        self,
        sources: Sequence[RecordSource],
        log_format: LogFormat,
        *,
        start: int | Start = "earliest",
        end: int | None = None,
        follow: bool = False,
        on_gap: Literal["raise", "jump"] = "raise",
        attempts: int | None = None,
    ) -> None:
        """Prepare to read. The first ``read`` opens a source.

        Args:
            sources: Where the records are. The first one has the end of the log, and is followed.
            log_format: The log's format.
            start: The sequence to begin with; "earliest", the first record that any source holds; "latest" or "end", of
                the first source.
            end: The first sequence that is not returned; None: no limit.
            follow: Wait for new records at the end of the first source. Without it, reading ends there.
            on_gap: What to do about records that no source holds any more: raise OffsetJumpError once and then
                continue, or continue at once.
            attempts: How often in a row requests may fail before the error is raised; None: any number of times.

        Raises:
            ConfigError: ``sources`` is empty.
        """
        super().__init__()
        if not sources:
            raise ConfigError("a log is read from its folder or from a replica: name one")
        self._sources = sources
        self._divisible = is_divisible(log_format)
        self._start: int | Start = 0 if start == "earliest" else start
        self._at_beginning = start == "earliest"
        self._end = end
        self._follow, self._on_gap, self._attempts = follow, on_gap, attempts
        self._failures = 0
        self._current: RecordStream | None = None
        self._closed = threading.Event()

    @property
    def next_sequence(self) -> int | None:
        """The lowest sequence that ``read`` may return next; None before the first record, if the start is a word."""
        return self._start if isinstance(self._start, int) else None

    def read(self) -> Columns | None:
        """Read the next records, at least one.

        Returns:
            The records; None at the end, and after ``close``.

        Raises:
            OffsetJumpError: The next records are gone from all sources. The next call continues after them.
            NothingToRestoreError, SourceMissingError: No source exists. A reader that follows waits for one.
            StoreError: Requests failed ``attempts`` times in a row, or cannot succeed.
            DivergedError, CorruptionError: As ``LogReader`` and ``ReplicaReader`` raise them.
        """
        while not (self._closed.is_set() or self._is_ended()):
            try:
                columns = self._read_current() or self._read_next()
            except (StoreError, PrunedError) as error:
                self._wait_after(error)
                continue
            if columns is not None:
                self._failures, self._at_beginning = 0, False
                self._start = self._sequence_after(columns)
                return columns
            if not self._follow:
                return None
            if self._current is None:
                self._closed.wait(POLL_SECONDS)
        return None

    def close(self) -> None:
        """End reading: a blocked ``read`` returns. Idempotent. Any thread may call it."""
        self._closed.set()
        current = self._current
        if current is not None:
            current.close()

    def _is_ended(self) -> bool:
        return self._end is not None and isinstance(self._start, int) and self._start >= self._end

    def _read_current(self) -> Columns | None:
        """Continue with the open source. Returns None, and closes it, if it has no more of what is wanted."""
        if self._current is None:
            return None
        try:
            columns = self._current.read()
        except (TruncatedError, SourceMissingError, NotYetAvailableError):
            columns = None  # the search for the next source finds out
        except BaseException:
            self._leave()
            raise
        if columns is None:
            self._leave()
        return columns

    def _read_next(self) -> Columns | None:
        """Find a source that holds what comes next. Returns None if there is nothing yet."""
        while True:
            firsts: list[int] = []
            missing: list[LitelogError] = []
            for source in self._sources:
                try:
                    columns = self._open(source, min(firsts, default=None))
                except TruncatedError as error:
                    firsts.append(error.first_available)
                except (SourceMissingError, NothingToRestoreError) as error:
                    missing.append(error)
                else:
                    if columns is not None or not firsts:
                        return columns
            if not firsts:
                if self._follow:
                    return None
                raise missing[0]
            self._jump(min(firsts))

    def _open(self, source: RecordSource, limit: int | None) -> Columns | None:
        """Open a source and read from it, up to where another source continues. At the end of the log, a reader that
        follows waits there. Returns None, with the source closed, if it holds nothing of that."""
        limits = [each for each in (self._end, limit) if each is not None]
        for follow in (False, True):
            self._current = source.open(self._start, min(limits, default=None), follow)
            if self._closed.is_set():
                self._leave()
                return None
            try:
                columns = self._current.read()
            except NotYetAvailableError:
                return None  # it stays open
            except BaseException:
                self._leave()
                raise
            if columns is not None:
                return columns
            self._leave()
            if not self._follow or limit is not None or self._closed.is_set():
                return None
        return None

    def _jump(self, following: int) -> None:
        """Continue with the first record that any source holds."""
        requested, self._start = self._start, following
        if self._at_beginning or self._on_gap == "jump" or not isinstance(requested, int):
            return
        raise OffsetJumpError(requested, following)

    def _leave(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.close()

    def _sequence_after(self, columns: Columns) -> int:
        last = int(columns.sequences[-1])
        return last + (int(columns.value_lengths[-1]) if self._divisible else 1)

    def _wait_after(self, error: StoreError | PrunedError) -> None:
        """Wait before the next attempt. Raises ``error`` if there is none."""
        self._leave()
        self._failures += 1
        lasting = isinstance(error, StoreError) and not error.retryable
        if lasting or (self._attempts is not None and self._failures >= self._attempts):
            raise error
        self._closed.wait(BACK_OFF_SECONDS[min(self._failures, len(BACK_OFF_SECONDS)) - 1])
