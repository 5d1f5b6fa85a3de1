"""LogWriter: appends to a log in litelog's own format, durably and in order, as its only writer."""

from __future__ import annotations

import errno
import fcntl
import operator
import os
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal, Self, SupportsIndex
from uuid import UUID, uuid4

from litelog.errors import ConfigError, LockedError, SequenceConflictError, SourceError, StaleEpochError
from litelog.formats.litelog import LitelogFormat
from litelog.formats.litelog.encoding import MAX_EPOCH
from litelog.formats.signatures import recognise_log
from litelog.log.batch import Batch, batch_of, encode_batch
from litelog.log.disk import Disk, LocalDisk
from litelog.log.group_commit import Appended, EncodedCommit, GroupCommit, Pending
from litelog.log.mirror_note import is_mirror
from litelog.log.recovery import NO_TIMESTAMP, LogEnd, OnTrailing, recover
from litelog.log.replica_registry import ReplicaSet, default_state_dir, log_state_folder
from litelog.log.segment_writer import LogTail
from litelog.log.truncation import Truncated, Truncation
from litelog.log.unfinished_repair import complete_repair
from litelog.objects.layout import ROOTS
from litelog.system.clock import Clock, SystemClock
from litelog.system.files import has_folder
from litelog.system.private_files import open_lock

if TYPE_CHECKING:
    from types import TracebackType

    from litelog.log.acknowledgement import Acknowledgement
    from litelog.log.batch import Keys, Timestamps, Values

SEGMENT_BYTES = 64 << 20
"""The size at which a new log segment starts: large enough to seal well, small enough to scan in a moment."""

FSYNC_INTERVAL_SECONDS = 1.0
"""How many seconds of appends a power cut may lose under ``fsync="interval"``."""

LOCK_NAME = ".lock"

Fsync = Literal["always", "interval", "never"]


class LogWriter:
    """The one writer of the log in ``folder``. Calls may come from several threads. A context manager.

    ``fsync`` says when an append returns, and what a power cut may lose:

    - "always": the append returns when it is durable. A power cut loses nothing.
    - "interval": it returns when it is written. A power cut loses what was appended since the last sync, at most
      ``fsync_interval`` seconds ago.
    - "never": it returns when it is written. A power cut loses what was appended since the log segment was started, or
      since the last ``sync``.

    A killed process loses no acknowledged append, whatever the policy. Readers see commits as soon as they are written.
    """

    def __init__(  # noqa: PLR0913 - each is a separate choice
        self,
        folder: str | os.PathLike[str],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        fsync: Fsync = "always",
        fsync_interval: float = FSYNC_INTERVAL_SECONDS,
        on_trailing: OnTrailing = "trim",
        epoch: SupportsIndex | None = None,
        log_id: UUID | None = None,
        acknowledge: Acknowledgement | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Open the log, or create it. Recovery cuts off a torn tail.

        Args:
            folder: The log's folder. It is created if it does not exist.
            segment_bytes: The size at which a new log segment starts.
            fsync: "always", "interval" or "never", as the class describes.
            fsync_interval: Seconds between two syncs under "interval".
            on_trailing: "trim" cuts off a torn tail; "error" raises CorruptCommitError for it.
            epoch: The epoch of the appends; None: the log's newest one.
            log_id: The id of a new log; None: a random one.
            acknowledge: What an append waits for besides ``fsync``, such as a ``MirrorAcknowledgement``; None: nothing.
            clock: The source of timestamps; None: the system's clock.
            disk: The seam to the disk; None: the local one.

        Raises:
            ConfigError: An invalid argument, or the folder of a replica or of a log of another program.
            LockedError: Another writer has the log.
            CorruptCommitError, SequenceGapError, WrongFormatError: As ``recover``.
            StaleEpochError: ``epoch`` is below the log's newest one.
            TypeError, ValueError: ``epoch`` is not an epoch.
            SourceError: A file operation failed.
        """
        if fsync not in ("always", "interval", "never"):
            raise ConfigError(f"fsync is always, interval or never, not {fsync!r}")
        if on_trailing not in ("trim", "error"):
            raise ConfigError(f"on_trailing is trim or error, not {on_trailing!r}")
        if acknowledge is not None and not callable(getattr(acknowledge, "wait", None)):
            raise ConfigError(
                f'acknowledge is MirrorAcknowledgement("http://HOST:PORT/logs/NAME"), not {acknowledge!r}'
            )
        if segment_bytes <= 0 or fsync_interval <= 0:
            raise ConfigError("segment_bytes and fsync_interval must be more than 0")
        if not os.fspath(folder):
            raise ConfigError("a log's folder needs a name")
        self.folder = os.path.abspath(folder)
        self._fsync = fsync
        self._clock = SystemClock() if clock is None else clock
        self._disk = LocalDisk() if disk is None else disk
        self._lock_descriptor = -1
        try:
            self._open(segment_bytes, on_trailing, epoch, log_id)
        except OSError as error:
            self._unlock()
            raise SourceError(f"{self.folder}: cannot be opened for writing: {_reason(error, self.folder)}") from error
        except BaseException:
            self._unlock()
            raise
        self._group = GroupCommit(self._write, self.folder, self._clock, acknowledge)
        if fsync == "interval":
            self._group.tick_every(fsync_interval, self._sync_tail)

    def append(
        self,
        values: Values,
        *,
        key: bytes | None = None,
        keys: Keys | None = None,
        timestamps: Timestamps | None = None,
        expected_sequence: SupportsIndex | None = None,
        epoch: SupportsIndex | None = None,
    ) -> Appended:
        """Append records, and return when the fsync policy allows it.

        Records become visible in order: all at once if they fit into one commit (65535 records, 32 MiB), else commit by
        commit.

        Args:
            values: One bytes; a list of bytes; a pyarrow array of binary or strings; or a pyarrow RecordBatch or Table
                (or Columns, as a reader yields them) with a column ``value``, and optionally ``key`` and ``timestamp``.
                Other Arrow data is taken as well, for example a Polars or pandas data frame. An empty list appends
                nothing.
            key: The key of one value. Of several, ``keys`` has one for each.
            keys: One for each value, bytes or None; None: no keys.
            timestamps: One for all records or one for each: microseconds since 1970, or datetimes with a zone. None:
                the clock's time, which never goes back.
            expected_sequence: The sequence that the first record must get; None: any.
            epoch: The epoch of the records, not below the newest one; None: the newest one.

        Returns:
            The sequences and the epoch of the records. If there are none, ``first`` and ``next`` are the next sequence.
            With ``acknowledge``, ``mirrored`` says whether a mirror has them durably.

        Raises:
            SequenceConflictError: ``expected_sequence`` is not the next sequence. Nothing was written.
            StaleEpochError: ``epoch`` is below the newest one. Nothing was written.
            TypeError, ValueError: An argument is not a record, sequence or epoch. Nothing was written.
            ClosedError: The writer is closed. Nothing was written.
            PoisonedError: A write or sync failed. The records may or may not have been written.
        """
        batch = batch_of(values, keys if key is None else _only_key(key, keys, values), timestamps)
        pending = self._group.submit(lambda: self._encode(batch, expected_sequence, epoch, None))
        self._group.finish(pending)
        return self._group.acknowledged(pending.appended)

    def append_async(
        self,
        values: Values,
        *,
        key: bytes | None = None,
        keys: Keys | None = None,
        timestamps: Timestamps | None = None,
        expected_sequence: SupportsIndex | None = None,
        epoch: SupportsIndex | None = None,
    ) -> Future[Appended]:
        """Append without waiting for the disk. Waits only while more than 32 MiB are queued.

        Takes the arguments of ``append``.

        Returns:
            A future that is resolved when ``append`` would return or raise PoisonedError. Futures are resolved in the
            order of the calls, in one background thread. Callbacks must not hold it up for long.

        Raises:
            SequenceConflictError, StaleEpochError, TypeError, ValueError, ClosedError: As ``append``. Nothing was
                written.
            PoisonedError: An earlier write or sync failed. Nothing was written.
        """
        batch = batch_of(values, keys if key is None else _only_key(key, keys, values), timestamps)
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()  # a queued append cannot be taken back
        self._group.submit(lambda: self._encode(batch, expected_sequence, epoch, future))
        return future

    @property
    def next_sequence(self) -> int:
        """The next record's sequence, after all queued records."""
        return self._next

    @property
    def durable_sequence(self) -> int:
        """All records below this sequence are durable."""
        return self._durable

    def wait_durable(self, sequence: int, timeout: float | None = None) -> bool:
        """Wait until all records below ``sequence`` (an append's ``next``) are durable.

        Under ``fsync="never"`` another thread must call ``sync``.

        Args:
            sequence: The first sequence that does not have to be durable.
            timeout: Seconds; None: no limit.

        Returns:
            True once the records are durable; False after ``timeout``.

        Raises:
            PoisonedError, ClosedError: The records can never become durable.
        """
        with self._group.changed:
            self._group.changed.wait_for(lambda: self._durable >= sequence or self._group.ended, timeout)
            if self._durable >= sequence:
                return True
        self._group.require_open()
        return False

    def sync(self) -> None:
        """Write all queued records, and return when they are durable. Raises PoisonedError if that fails."""
        self._group.guard(self._sync_tail)

    def roll(self) -> None:
        """Start a new log segment, unless the newest one has no commit yet. Raises ClosedError and PoisonedError."""
        self._group.guard(self._roll, needs_open=True)

    def truncate(self, before_sequence: int, *, state_dir: str | None = None) -> Truncated:
        """Remove the log segments that hold no record from ``before_sequence`` on, if every replica has them.

        A log segment stays if a replica does not hold it sealed and in a snapshot. All after it stay, too. So do the
        newest two log segments, and the newest that every replica holds. A log that is not replicated loses nothing.
        Readers get TruncatedError below the new beginning.

        Args:
            before_sequence: The first sequence that must stay.
            state_dir: Where the daemon that replicates this log keeps its state; None: the usual folder.

        Returns:
            The removed log segments, and why the next one stays.

        Raises:
            SourceError: A file operation failed.
            LockedError: The daemon is truncating the log.
            ClosedError, PoisonedError: The writer is closed, or a write failed before.
        """
        self._group.require_open()
        replicas = ReplicaSet(log_state_folder(state_dir or default_state_dir(), self.folder))
        truncation = Truncation(self.folder, LitelogFormat(), self._clock, self._disk, replicas.folder)
        return truncation.before(replicas.held(), before_sequence)

    def close(self) -> None:
        """Write and sync all queued records, resolve all futures, and release the log. Idempotent.

        Raises PoisonedError if a write or sync in the background failed and no call has raised that yet.
        """
        if not self._group.stop():
            return
        try:
            self._group.finish_all(self._sync_tail)
        finally:
            self._tail.close()
            self._unlock()
        self._group.require_acknowledged()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(
        self, segment_bytes: int, on_trailing: OnTrailing, epoch: SupportsIndex | None, log_id: UUID | None
    ) -> None:
        if has_folder(self.folder, ROOTS) and not os.path.exists(os.path.join(self.folder, LOCK_NAME)):
            raise ConfigError(f"{self.folder}: is a litelog replica, not a log: append to the log that it replicates")
        _make_folder(self.folder, self._disk)
        _require_own_log(self.folder)
        self._lock()
        complete_repair(self.folder)
        if is_mirror(self.folder):
            raise ConfigError(f"{self.folder}: is a mirror of another log; litelog mirror --promote makes it a log")
        end = recover(self.folder, self._disk, on_trailing)
        newest = 0 if end is None else end.epoch
        self._epoch = newest if epoch is None else _require_epoch(epoch, newest)
        self.recovered = end
        """The end of the log that recovery found; None for a new log."""
        self.log_id = (end and end.log_id) or log_id or uuid4()
        self._next = 0 if end is None else end.next
        self._durable = self._next
        self._written = self._next
        self._highest = NO_TIMESTAMP if end is None else end.highest
        self._tail = LogTail(self.folder, self._disk, self._clock, self.log_id, segment_bytes, end)

    def _lock(self) -> None:
        path = os.path.join(self.folder, LOCK_NAME)
        self._lock_descriptor = open_lock(path)  # private: any user who may read a file may lock it
        try:
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(path, f"the log {self.folder}") from None

    def _unlock(self) -> None:
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)  # this ends the lock; the file stays, since another writer may hold it now
            self._lock_descriptor = -1

    def _encode(
        self,
        batch: Batch,
        expected: SupportsIndex | None,
        epoch: SupportsIndex | None,
        future: Future[Appended] | None,
    ) -> Pending:
        """Give the batch its sequences. The queue calls it once at a time, in its order."""
        if expected is not None and operator.index(expected) != self._next:
            raise SequenceConflictError(operator.index(expected), self._next)
        epoch = self._epoch if epoch is None else _require_epoch(epoch, self._epoch)
        sequence, highest = self._next, self._highest
        commit_time = max(self._clock.now(), highest)
        commits: list[EncodedCommit] = []
        size = 0
        for start, stop, data in encode_batch(batch, sequence, epoch, commit_time):
            highest = max(highest, batch.highest(start, stop, commit_time))
            commits.append(EncodedCommit(sequence, sequence + stop - start, highest, data))
            sequence += stop - start
            size += len(data)
        appended = Appended(self._next, sequence, epoch)
        self._next, self._epoch, self._highest = sequence, epoch, highest
        return Pending(commits, appended, size, future)

    def _write(self, group: list[Pending]) -> None:
        self._tail.write(commit for pending in group for commit in pending.commits)
        self._written = group[-1].appended.next
        if self._fsync == "always":
            self._sync_tail()

    def _sync_tail(self) -> None:
        self._tail.sync()
        self._durable = self._written

    def _roll(self) -> None:
        self._tail.roll(self._written)
        self._durable = self._written


def _require_epoch(epoch: SupportsIndex, newest: int) -> int:
    """Convert an epoch to int. Accepts NumPy's integers. Raises TypeError, ValueError and StaleEpochError."""
    number = operator.index(epoch)
    if number < newest:
        raise StaleEpochError(number, newest)
    if number > MAX_EPOCH:
        raise ValueError(f"epoch out of range: {number}")
    return number


def _only_key(key: bytes, keys: Keys | None, values: Values) -> list[bytes]:
    """The keys of one value. Raises TypeError for several values, or if ``keys`` are given as well."""
    if keys is not None:
        raise TypeError("give key for one value, or keys, one for each value: not both")
    if not isinstance(values, (bytes, bytearray, memoryview)):
        raise TypeError("key is the key of one value: give keys, one for each value")
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise TypeError(f"a key is bytes, not {type(key).__name__}")
    return [bytes(key)]


def _require_own_log(folder: str) -> None:
    """Raise ConfigError if another program writes a log in the folder."""
    found = recognise_log(folder)
    if found is not None and found.format != LitelogFormat.name:
        raise ConfigError(f"{folder}: is the folder of a log of {found.written_by}: append to a folder of its own")


def _make_folder(folder: str, disk: Disk) -> None:
    """Create a folder and its missing parents, durably."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent, disk)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, "is not a folder", folder) from None
    disk.sync_folder(parent)


def _reason(error: OSError, folder: str) -> str:
    """Return an error's message, with its file unless that is the log's folder."""
    what = error.strerror or str(error)
    return what if error.filename in (None, folder) else f"{error.filename}: {what}"


__all__ = ["Appended", "Fsync", "LogEnd", "LogWriter", "OnTrailing"]
