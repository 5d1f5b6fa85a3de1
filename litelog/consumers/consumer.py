"""Consumer: reads a log from a durable position on, and moves the position once records are processed.

Specified in litelog/consumers/README.md.
"""

from __future__ import annotations

import os
from concurrent.futures import wait
from typing import TYPE_CHECKING, Literal, SupportsIndex

from litelog.consumers.background_read import read_in_background
from litelog.consumers.commit_rule import CommitRule
from litelog.consumers.consumed_log import open_consumed_log
from litelog.consumers.positions import require_name
from litelog.consumers.progress import Progress
from litelog.consumers.rewind_check import require_same_log
from litelog.errors import ConsumerMovedError, OffsetJumpError
from litelog.formats.record_stream import RecordStream
from litelog.log.read_bounds import ReadBounds, Start
from litelog.reading.combined_reader import CombinedReader
from litelog.stores.replica_address import address_of, is_replica
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from datetime import datetime
    from types import TracebackType

    from litelog.consumers.consumed_log import ConsumedLog
    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns, Record
    from litelog.stores.replica_address import Replica
    from litelog.units import Time

ATTEMPTS = 5
"""How often in a row requests may fail for a consumer that does not follow."""


class Consumer(RecordStream):
    """A named reader of a log. It continues after the last record that was committed, also in another process.

        with litelog.Consumer("orders", "billing") as consumer:
            for record in consumer:
                process(record)
                consumer.commit()

    A record is returned again after a crash unless it was committed, and none is left out. One thread reads. Any thread
    may commit or close.
    """

    def __init__(  # noqa: PLR0913 - each is a separate choice
        self,
        log: Replica,
        name: str,
        *,
        replicas: Iterable[Replica] = (),
        log_format: LogFormat | str | None = None,
        pattern: str | None = None,
        start: SupportsIndex | datetime | Start = "earliest",
        start_time: Time | None = None,
        follow: bool = True,
        commit_records: int | None = None,
        commit_seconds: float | None = None,
        on_gap: Literal["raise", "jump"] = "raise",
        state_dir: str | None = None,
    ) -> None:
        """Prepare to read. The first ``poll`` opens the log.

        Args:
            log: The log's folder, or a replica: its URL, its folder or a ReplicaConfig.
            name: The consumer's name: letters, digits, dots, ``-`` and ``_``.
            replicas: Replicas of the log, from which records are read that the folder no longer holds.
            log_format: The format of the log in a folder, or its name; None: litelog's own.
            pattern: Which names are log segments, for formats that need a pattern.
            start: Where a new consumer begins: a sequence, "earliest", "latest" (the last record), "end" (after it), or
                a datetime with a zone. A consumer that has a position continues there instead.
            start_time: Instead of ``start``: the first record at or after it, in microseconds since 1970 or as a
                datetime with a zone.
            follow: Wait for new records at the end of the log. Without it, reading ends there.
            commit_records: Commit automatically after this number of processed records.
            commit_seconds: Commit automatically when processed records have not been committed for this time.
            on_gap: What to do about records that are gone everywhere: raise OffsetJumpError once and then continue, or
                continue at once.
            state_dir: The state folder, in which the position is kept. None: the usual one for a log's folder. For a
                replica, the replica itself; for a log that a daemon serves (``http://``), that daemon.

        Raises:
            ConfigError: Arguments that do not fit together, or a name that cannot be one.
        """
        super().__init__()
        self._rule = CommitRule(commit_records, commit_seconds)
        self._place = _locate(log, replicas)
        self._format, self._pattern, self._state_dir = log_format, pattern, state_dir
        self._bounds = ReadBounds.of(start, start_time, None, None)
        self._follow = follow
        self._on_gap: Literal["raise", "jump"] = on_gap
        require_name(name)
        self.name = name
        self._clock = SystemClock()
        self._log: ConsumedLog | None = None
        self._progress: Progress | None = None
        self._reader: CombinedReader | None = None
        self._reading: Future[Columns | None] | None = None
        self._batch: Columns | None = None
        self._rows: Iterator[Record] = iter(())
        self._row = self._uncommitted = 0
        self._is_verified = self._closed = False
        self._processed: int | None = None
        self._committed_at = self._clock.monotonic()

    @property
    def position(self) -> int | None:
        """The durable position: the sequence of the first record that is not committed. None before the first record.

        Raises as ``poll``, as the first use opens the log.
        """
        held = self._opened()[1].held
        return None if held is None else held.next

    @property
    def next_sequence(self) -> int | None:
        """The sequence after the last returned record, or of the record to return first. None before the log's first
        record."""
        return self._opened()[1].returned

    def poll(self, timeout: float | None = None) -> Columns | None:
        """Return the next records, at least one. The records that were returned before count as processed.

        Args:
            timeout: How many seconds to wait for records at the end of the log; None: for ever. It also waits for a
                log's folder that does not exist yet, so a mistyped folder gives None each time. Without ``follow`` that
                is a SourceMissingError.

        Returns:
            The records. None if none arrived in time, at the end of a log that is not followed, and after ``close``.

        Raises:
            OffsetJumpError: Records are gone everywhere. The next call continues after them.
            DivergedError: The log no longer holds what the consumer has processed. Its position stays.
            ConsumerMovedError: Another process has moved the position; only if this call commits.
            ConsumerStateError, StoreError: The position cannot be read or written.
            LitelogError: As ``LogReader`` and ``open_replica``.
        """
        batch = self._refill(timeout)
        if batch is None:
            return None
        columns = batch.slice(self._row, len(batch))
        self._return(len(batch), self._opened()[0].sequence_after(batch))
        return columns

    def read(self) -> Columns | None:
        """As ``poll`` without a limit."""
        return self.poll()

    def __next__(self) -> Record:
        if self._refill(None) is None:
            raise StopIteration
        record = next(self._rows)
        length = len(record.value) if self._opened()[0].is_divisible else 1
        self._return(self._row + 1, record.sequence + length)
        return record

    def commit(self, following: int | None = None) -> None:
        """Move the position durably: what was returned is processed. Returns when it would outlast a power cut.

        Args:
            following: The sequence after the last processed record; None: after all records that were returned. A
                sequence before the position changes nothing.

        Raises:
            ConsumerMovedError: Another process has moved the position. Nothing was committed, and nothing can be by
                this object: what it returned may be processed twice. Make a new one.
            ConsumerStateError, StoreError: The position cannot be written.
            ValueError: Records before ``following`` have not been returned.
        """
        self._opened()[1].commit(following)
        self._uncommitted, self._committed_at = 0, self._clock.monotonic()

    def seek(self, start: SupportsIndex | datetime | Start, *, start_time: Time | None = None) -> None:
        """Continue to read elsewhere, forward or back. The durable position moves there with the next ``commit``.

        Args:
            start: As for the constructor.
            start_time: As for the constructor.

        Raises:
            ConfigError: ``start`` does not name a place in a log.
            LitelogError: The log cannot be read to find the place.
        """
        bounds = ReadBounds.of(start, start_time, None, None)
        log, progress = self._opened()
        place = log.resolve(bounds)
        self._leave()
        progress.begin(place)
        self._processed, self._uncommitted = place, 0

    def close(self) -> None:
        """End reading: a blocked ``poll`` returns. The position stays as it was committed. Idempotent."""
        self._closed = True
        reader, log = self._reader, self._log
        if reader is not None:
            reader.close()
        if log is not None:
            log.positions.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. A consumer that commits automatically commits what was processed, unless the block raised an error."""
        try:
            if kind is None and self._rule.commits and self._uncommitted and not self._closed:
                self.commit(self._processed)
        finally:
            self.close()

    def _opened(self) -> tuple[ConsumedLog, Progress]:
        """The log and the progress in it. The first call finds them, and where to begin."""
        if self._log is not None and self._progress is not None:
            return self._log, self._progress
        folder, replicas = self._place
        log = open_consumed_log(folder, replicas, self._format, self._pattern, self._state_dir)
        progress = Progress(log, log.positions.of(self.name), self._clock)
        progress.load()
        if progress.held is None and self._bounds != ReadBounds():
            try:
                progress.create(log.resolve(self._bounds))
            except ConsumerMovedError:
                progress.load()  # another process has just made it
        self._processed = progress.returned
        self._log, self._progress = log, progress
        return log, progress

    def _refill(self, timeout: float | None) -> Columns | None:
        """Return a batch with at least one record that was not returned yet. None if no such record exists."""
        log, progress = self._opened()
        self._processed = progress.returned
        self._commit_if_due()
        if self._closed:
            return None
        if self._batch is not None and self._row < len(self._batch):
            return self._batch
        columns = self._fetch(timeout)
        if columns is None:
            if not self._follow and self._rule.commits and self._uncommitted:
                self.commit(self._processed)
            return None
        if not self._is_verified:
            self._verify(log, progress)
        progress.note_batch(columns)
        self._batch, self._row, self._rows = columns, 0, iter(columns.records())
        return columns

    def _return(self, row: int, following: int) -> None:
        """Record that the records of the batch before number ``row`` are returned, up to the sequence ``following``."""
        self._uncommitted += row - self._row
        self._row = row
        self._opened()[1].returned = following

    def _commit_if_due(self) -> None:
        """Commit the processed records, if the consumer commits automatically and a commit is due."""
        if self._rule.is_due(self._uncommitted, self._clock.monotonic() - self._committed_at):
            self.commit(self._processed)

    def _fetch(self, timeout: float | None) -> Columns | None:
        """The next records of the log; None at its end, or after ``timeout`` seconds."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        commit_seconds = self._rule.seconds
        while True:
            if self._reading is None:
                reader = self._open_reader()
                if deadline is None and commit_seconds is None:
                    return self._take(reader.read)
                self._reading = read_in_background(reader.read)
            now = self._clock.monotonic()
            limits = [deadline - now] if deadline is not None else []
            if commit_seconds is not None and self._uncommitted:
                limits.append(self._committed_at + commit_seconds - now)
            wait([self._reading], max(0.0, min(limits)) if limits else None)
            if self._reading.done():
                reading, self._reading = self._reading, None
                return self._take(reading.result)
            self._commit_if_due()
            if deadline is not None and self._clock.monotonic() >= deadline:
                return None

    def _take(self, read: Callable[[], Columns | None]) -> Columns | None:
        """The result of a read. After an error, the next read opens the log again."""
        try:
            return read()
        except OffsetJumpError:
            raise  # the reader continues after it
        except BaseException:
            self._leave()
            raise

    def _open_reader(self) -> CombinedReader:
        if self._reader is not None:
            return self._reader
        log, progress = self._opened()
        self._is_verified = False
        self._verify(log, progress)
        start: int | Start = "earliest" if progress.returned is None else progress.returned
        attempts = None if self._follow else ATTEMPTS
        reader = CombinedReader(log.sources, start=start, follow=self._follow, on_gap=self._on_gap, attempts=attempts)
        self._reader = reader
        if self._closed:
            reader.close()
        return reader

    def _verify(self, log: ConsumedLog, progress: Progress) -> None:
        """Check that the log still holds what was processed, if that can be found out now. Raises DivergedError."""
        evidence = progress.newest_evidence()
        try:
            self._is_verified = evidence is None or require_same_log(log, self.name, evidence)
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        """Close the reader, and forget what it has read but not returned."""
        reader, self._reader, self._reading = self._reader, None, None
        self._batch, self._row, self._rows = None, 0, iter(())
        if reader is not None:
            reader.close()


def _locate(log: Replica, replicas: Iterable[Replica]) -> tuple[str | None, list[tuple[str, Mapping[str, object]]]]:
    """The log's folder, None if ``log`` is a replica, and the URLs and options of all replicas."""
    url, options = address_of(log)
    addresses = [address_of(each) for each in replicas]
    if isinstance(log, str | os.PathLike) and not is_replica(url):
        return url, addresses
    return None, [(url, options), *addresses]
