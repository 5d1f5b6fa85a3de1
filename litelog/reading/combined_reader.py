"""CombinedReader: reads a log from its folder while the folder holds it, and from its replicas otherwise, as one log.

Specified in litelog/reading/README.md#a-log-together-with-its-replicas.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, cast

from litelog.dataclass import dataclass
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
from litelog.events import fields
from litelog.formats.record_stream import RecordStream
from litelog.log.read_bounds import ReadBounds
from litelog.log.reader import LogReader
from litelog.reading.read_retries import ReadRetries, back_off, may_pass
from litelog.reading.replica_records import open_records
from litelog.stores.registry import redact
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.log.read_bounds import Start
    from litelog.stores.retrying_store import RetryPolicy
    from litelog.system.inotify import Watcher

_logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 30.0
"""How many seconds a reader waits for new records of a folder, before it looks whether the folder is still the log."""

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


@dataclass(slots=True)
class _Outage:
    """A source that cannot be read now."""

    error: StoreError
    failures: int = 0
    until: float = 0.0
    """It is not asked again before this time, in monotonic seconds."""


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


def replica_source(
    url: str,
    options: Mapping[str, object],
    pattern: str | None = None,
    *,
    retries: RetryPolicy | None = None,
    start_time: int | None = None,
    timeout: float | None = None,
) -> RecordSource:
    """A replica of the log.

    Args:
        url: Its URL.
        options: Its backend's own options.
        pattern: Which names are log segments, for formats that need a pattern.
        retries: How long a request is repeated before the reader looks elsewhere; None: until a server has restarted.
        start_time: If the reader begins with the first record of all: the time of the record with which it begins
            instead, in microseconds since 1970.
        timeout: How many seconds its ``read`` waits for new records; None: for ever.
    """

    def open_replica(start: int | Start, end: int | None, follow: bool) -> RecordStream:
        timed = start_time is not None and start == 0
        bounds = ReadBounds(start_time=start_time, end=end) if timed else ReadBounds(start=start, end=end)
        return open_records(url, options, bounds, follow=follow, timeout=timeout, pattern=pattern, retries=retries)

    return RecordSource(redact(url), open_replica)


class CombinedReader(RecordStream):
    """Reads the records of one log in rising sequence from several sources. An iterator of Record, a context manager.

    It reads from the first source, and from a later one only what the sources before it do not hold, or cannot give
    now. After an outage of a source it continues there with the record that comes next. It returns no record twice, and
    skips none without an OffsetJumpError.
    """

    def __init__(
        self,
        sources: Sequence[RecordSource],
        *,
        start: int | Start = "earliest",
        end: int | None = None,
        follow: bool = False,
        on_gap: Literal["raise", "jump"] = "raise",
        attempts: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Prepare to read. The first ``read`` opens a source.

        Args:
            sources: Where the records are. The first source has the end of the log, and is followed; while it is away,
                the next readable source is.
            start: The sequence to begin with; "earliest", the first record that any source holds; "latest" or "end", of
                the first source.
            end: The first sequence that is not returned; None: no limit.
            follow: Wait for new records at the end of the first source. Without it, reading ends there.
            on_gap: What to do about records that no source still holds: raise OffsetJumpError once and then
                continue, or continue at once.
            attempts: How often in a row requests may fail before the error is raised; None: any number of times. If
                other sources can be read, reading that does not follow ends then, at their end.
            timeout: How many seconds ``read`` waits for new records before it raises NotYetAvailableError; None: for
                ever. The sources must not wait longer.

        Raises:
            ConfigError: ``sources`` is empty.
        """
        super().__init__()
        if not sources:
            raise ConfigError("a log is read from its folder or from a replica: name one")
        self._sources = sources
        self._start: int | Start = 0 if start == "earliest" else start
        self._at_beginning = start == "earliest"
        self._end = end
        self._follow, self._on_gap = follow, on_gap
        self._current: RecordStream | None = None
        self._closed = threading.Event()
        self._retries = ReadRetries(self._closed, attempts)
        self._outages: dict[int, _Outage] = {}
        """By the number of the source."""
        self._has_ended = False
        """Whether the last search found the end of a source, while others were away."""
        self._has_asked = False
        """Whether the last search asked any source. Those that are away have their own times."""
        self._clock = SystemClock()
        self._timeout = timeout
        self._searched_at = 0.0
        """When the sources were searched for the next records, in monotonic seconds."""

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
            NotYetAvailableError: No record arrived within ``timeout``. Only when following; call again later.
            NothingToRestoreError, SourceMissingError: No source exists. A reader that follows waits for one.
            StoreError: Requests failed ``attempts`` times in a row, or cannot succeed.
            DivergedError, CorruptionError: As ``LogReader`` and ``ReplicaReader`` raise them.
        """
        until = None if self._timeout is None else self._clock.monotonic() + self._timeout
        while not (self._closed.is_set() or self._is_ended()):
            try:
                columns = self._read_current()
                if columns is None and self._current is None:
                    columns = self._read_next()
            except (StoreError, PrunedError) as error:
                if not self._wait_after(error, until):
                    return None
                continue
            if columns is not None:
                self._retries.succeed()
                self._at_beginning = False
                self._start = self.sequence_after(columns)
                return columns
            if not self._follow:
                return None
            left = self._left(until)
            if self._current is None:
                self._closed.wait(POLL_SECONDS if left is None else min(left, POLL_SECONDS))
        return None

    def sequence_after(self, columns: Columns) -> int:
        """The sequence after the last of records that ``read`` has returned."""
        return cast("RecordStream", self._current).sequence_after(columns)

    def close(self) -> None:
        """End reading: a blocked ``read`` returns. Idempotent. Any thread may call it."""
        self._closed.set()
        current = self._current
        if current is not None:
            current.close()

    def _left(self, until: float | None, cause: Exception | None = None) -> float | None:
        """How many seconds are left up to the monotonic time ``until``; None: any number. Raises NotYetAvailableError
        if none are left and the reader follows."""
        left = None if until is None or not self._follow else until - self._clock.monotonic()
        if left is not None and left <= 0:
            raise NotYetAvailableError(f"{self._sources[0].name}: no record follows yet") from cause
        return left

    def _is_ended(self) -> bool:
        return self._end is not None and isinstance(self._start, int) and self._start >= self._end

    def _read_current(self) -> Columns | None:
        """Continue with the open source. Returns None, and closes it, if it has no more of what is wanted."""
        if self._current is None:
            return None
        self._has_asked, self._has_ended = True, False
        try:
            columns = self._current.read()
        except NotYetAvailableError:
            if self._clock.monotonic() - self._searched_at < FOLLOW_SECONDS:
                return None  # it stays open
            columns = None
        except (TruncatedError, SourceMissingError):
            columns = None  # the search for the next source finds out
        except BaseException:
            self._leave()
            raise
        if columns is None:
            self._leave()
        return columns

    def _read_next(self) -> Columns | None:
        """Find a source that holds what comes next. Returns None if there is nothing yet. Raises the error of a source
        that may hold it, and is away."""
        while True:
            firsts: list[int] = []
            missing: list[LitelogError] = []
            away: StoreError | None = None
            self._has_ended = self._has_asked = False
            self._searched_at = self._clock.monotonic()
            for number, source in enumerate(self._sources):
                try:
                    columns = self._open_present(number, source, min(firsts, default=None), waits=away is None)
                except TruncatedError as error:
                    firsts.append(error.first_available)
                except (SourceMissingError, NothingToRestoreError) as error:
                    missing.append(error)
                except StoreError as error:
                    if not error.retryable or len(self._sources) == 1:
                        raise
                    away = away or error
                else:
                    if columns is not None or (not firsts and away is None):
                        return columns
                    self._has_ended = self._has_ended or not firsts
            if away is not None:
                raise away
            if not firsts:
                if self._follow:
                    return None
                raise missing[0]
            self._jump(min(firsts))

    def _open_present(self, number: int, source: RecordSource, limit: int | None, *, waits: bool) -> Columns | None:
        """As ``_open``. A source that is away is tried again only from time to time."""
        outage = self._outages.get(number)
        if outage is not None and self._clock.monotonic() < outage.until:
            raise outage.error
        self._has_asked = True
        try:
            columns = self._open(source, limit, waits=waits)
        except TruncatedError as error:
            if not isinstance(self._start, int) or error.first_available > self._start:
                raise
            columns = None  # the log was replaced while it was opened: it is opened again
        except StoreError as error:
            if error.retryable and len(self._sources) > 1:
                self._note_outage(number, error)
            raise
        if outage is not None:
            del self._outages[number]
            _logger.info("%s: can be read again", source.name, extra=fields("source-back", replica=source.name))
        return columns

    def _note_outage(self, number: int, error: StoreError) -> None:
        outage = self._outages.setdefault(number, _Outage(error))
        outage.error, outage.failures = error, outage.failures + 1
        outage.until = self._clock.monotonic() + back_off(outage.failures)
        if outage.failures == 1:
            message = "%s: cannot be read now: %s; the log's other places are read meanwhile"
            name = self._sources[number].name
            _logger.warning(message, name, error, extra=fields("source-away", replica=name))

    def _open(self, source: RecordSource, limit: int | None, *, waits: bool) -> Columns | None:
        """Open a source and read from it, up to where another source continues. At the end of the log, a reader that
        follows waits there, if ``waits``. Returns None, with the source closed, if it holds nothing of that."""
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
            if not (self._follow and waits) or limit is not None or self._closed.is_set():
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

    def _wait_after(self, error: StoreError | PrunedError, until: float | None) -> bool:
        """Wait before the next attempt, up to the monotonic time ``until`` at most. Raises ``error`` if there is none,
        or returns False if reading ends there: as all sources that can be read have ended."""
        self._leave()
        if self._has_asked and self._retries.is_last(error):
            if self._has_ended and not self._follow and may_pass(error):
                return False
            raise error
        left = self._left(until, error)
        if self._outages:
            due = min(outage.until for outage in self._outages.values()) - self._clock.monotonic()
            due = min(due, POLL_SECONDS) if self._has_ended else due
            self._closed.wait(max(0.0, due if left is None else min(due, left)))
        else:
            self._retries.wait(left)
        return True
