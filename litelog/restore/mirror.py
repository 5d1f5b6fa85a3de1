"""Mirror: a byte-equal copy of a log that a daemon serves. It follows the log within milliseconds.

The past comes from the replica, as for every copy that follows one. After that, the mirror asks the daemon for what
follows its own end. That end is durable here, and all that it gets is durable at the source.

Specified in litelog/restore/README.md#mirrors.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from litelog.errors import (
    CorruptObjectError,
    DivergedError,
    LockedError,
    NothingToRestoreError,
    PrunedError,
    ReplicaGapError,
    StoreError,
)
from litelog.events import fields, is_worth_logging
from litelog.log.mirror_note import MirrorNote, mirror_note
from litelog.log.writer import LOCK_NAME
from litelog.objects.position import Position
from litelog.objects.wal_stream import BEFORE_BYTES, MirrorEnd, SegmentBefore
from litelog.restore.follow import CopyFollower
from litelog.restore.generation_bytes import GenerationBytes
from litelog.restore.growing_copy import GrowingCopy
from litelog.restore.history_plan import Target, find_plan
from litelog.restore.output import OutputError
from litelog.restore.wal_restore import RestoreStoppedError
from litelog.stores.object_store import NotSupportedError
from litelog.system.clock import SystemClock
from litelog.system.files import sync_folder
from litelog.system.private_files import open_lock

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from types import TracebackType

    from litelog.formats import LogFormat
    from litelog.log.recovery import OnTrailing
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalSegment
    from litelog.restore.plan import PlannedFile, RestorePlan
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""How long the source may refuse, for example because the mirror's end is not in its log, before the mirror ends with
that error. Its daemon may be about to begin a generation, or may have been started with another configuration."""

RETRY_SECONDS = 1.0
"""The pause after a failure."""

LIVE_SECONDS = 0.001
"""A WAL segment that was waited for so long is the newest data: it is synced before the stream is read further."""

LIMIT_BYTES = 64 << 20
"""About how many bytes one request gets. The next one states how far the mirror is durable."""


class SourceRefusedError(DivergedError):
    """The source reports that its log lacks the mirror's end. It may be about to begin a generation that has it."""


_PASSING = (CorruptObjectError, NothingToRestoreError, PrunedError, ReplicaGapError, SourceRefusedError, StoreError)
"""The errors that may pass without a person's help."""


class Mirror:
    """The mirror in a folder that holds a prefix of the log, or nothing. One thread. A context manager.

    A kill at any moment leaves a prefix of the source, whose last log segment may end inside a commit. ``recover`` cuts
    that off.
    """

    def __init__(  # noqa: PLR0913 - each is a separate choice
        self,
        client: ReplicaClient,
        folder: str,
        plan: RestorePlan,
        log_format: LogFormat,
        *,
        pattern: str | None = None,
        is_restored: bool = False,
        fallbacks: Sequence[ReplicaClient] = (),
        away: StoreError | None = None,
        stop: threading.Event | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Lock the mirror against writers and other mirrors. Raises LockedError.

        Args:
            client: The served log, as a replica.
            folder: The mirror, which exists.
            plan: A plan of the replica, without a bound.
            log_format: The log's format.
            pattern: Which names are log segments, for formats that need a pattern.
            is_restored: Whether the mirror was just restored from the plan's generation, so that it was compared.
            fallbacks: Replicas of the log that the mirror follows while its daemon cannot be reached.
            away: Why the daemon cannot be reached now; None: it was reached.
            stop: Ends a comparison or a step early once it is set.
            clock: The source of monotonic times; None: the system's clock.
        """
        self._client = client
        self._fallbacks = fallbacks
        self._format = log_format
        self._pattern = pattern
        self._clock = clock or SystemClock()
        self._note = mirror_note(folder)
        self._name = _make_name(folder)
        self._place: Position | None = None
        """The position at the source after the last durable commit; None: the mirror has to join it first."""
        self._end = None if away is None else plan.end
        """As ``_place``, in the replica that it was joined to last."""
        self._joined: ReplicaClient | None = None
        """The fallback that it was joined to last; None if bytes of another one may have come since."""
        self._away = away is not None
        """Whether a fallback is followed, since the daemon could not be reached."""
        self._is_away_logged = False
        self._name_before = ""
        """The log segment before the newest one; empty if there is none. Other files may lie between them."""
        self._reason = away
        """Why the daemon could not be reached when the mirror was opened."""
        self._plan = plan if plan.replica == client.url and not is_restored else None
        """A plan of the source that was made just now; None: another one is needed."""
        self._followers: dict[ReplicaClient, CopyFollower] = {}
        try:
            self._lock = _lock(folder)
        except OSError as error:
            raise OutputError(folder, f"cannot be locked: {error.strerror or error}") from error
        try:
            self._copy = GrowingCopy(folder, log_format, self._clock.monotonic)
        except OSError as error:
            os.close(self._lock)
            raise OutputError(folder, f"cannot be opened: {error.strerror or error}") from error
        except BaseException:
            os.close(self._lock)
            raise
        self._stop = stop
        self._copy.check_stop = self._check_stop
        if is_restored:
            self._write_note(plan)

    def adopt(self, client: ReplicaClient, plan: RestorePlan) -> None:
        """Make a folder without a note a mirror, once all that it holds was compared with a replica. Until then,
        nothing that it holds is changed.

        Raises:
            DivergedError: It holds anything else.
            RestoreStoppedError: The comparison was stopped.
        """
        self._require_prefix(client, plan)
        self._write_note(plan)

    def _check_stop(self) -> None:
        if self._stop is not None and self._stop.is_set():
            raise RestoreStoppedError("the mirror was stopped")

    def recover(self, on_trailing: OnTrailing) -> int:
        """Cut off what a kill left after the last whole commit. Returns and raises as ``GrowingCopy.recover``."""
        return self._copy.recover(on_trailing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._copy.close()
        os.close(self._lock)

    @property
    def position(self) -> Position | None:
        """The position after its last durable commit; None until it was compared with the source."""
        return self._end

    @property
    def next(self) -> int | None:
        """The sequence after its last record; None if it is not known, as in formats whose records have no numbers."""
        return self._copy.next

    @property
    def appended(self) -> int:
        """The number of appended bytes."""
        return self._copy.appended

    def run(self, stop: threading.Event, wait_seconds: float = 1.0) -> None:
        """Mirror until ``stop`` is set. Waits while the source cannot be reached.

        Args:
            stop: Ends the mirroring when it is set.
            wait_seconds: How long one request waits for news.

        Raises:
            DivergedError: The log's history forked: the mirror holds what the log does not.
            PrunedError: Retention removed what the mirror lacks.
            CorruptObjectError, ReplicaGapError: The source is damaged.
            OutputError: The mirror cannot be written.
            StoreError: A request failed, and another attempt would not help.
        """
        failures, since = 0, None  # type: tuple[int, float | None]
        while not stop.is_set():
            try:
                self.step(wait_seconds)
                failures, since = 0, None
                if self._away:
                    stop.wait(RETRY_SECONDS)
            except NotSupportedError:
                raise
            except _PASSING as error:
                now = self._clock.monotonic()
                if not isinstance(error, StoreError) or not error.retryable:
                    since = now if since is None else since
                    if now - since >= PATIENCE_SECONDS:
                        raise
                failures += 1
                self._report(error, failures)
                stop.wait(RETRY_SECONDS)

    def step(self, wait_seconds: float) -> bool:
        """Append what the source has now, or wait for it. Without the source, append what a fallback has.

        Returns whether more may follow at once: it came while this waited, or the fallback had any. Raises as ``run``.
        """
        try:
            return self._take_step(wait_seconds)
        except RestoreStoppedError:
            self._end = self._place or self._end
            return False

    def _take_step(self, wait_seconds: float) -> bool:
        before = self._end
        try:
            has_moved = self._follow_source(wait_seconds)
            self._end, self._away, self._is_away_logged = self._place, False, False
        except (NothingToRestoreError, StoreError) as error:
            if isinstance(error, NotSupportedError) or not self._follow_fallback(error):
                raise
            has_moved = self._end != before
        return has_moved

    def _follow_source(self, wait_seconds: float) -> bool:
        """Join the source if that was not done, and take what comes then. Returns whether anything came after that."""
        if self._place is None:
            self._require_source()
            self._place = self.join()
        before = self._place
        try:
            self._receive(before, wait_seconds)
        except PrunedError:
            self._place = self.join()  # the replica has it
            if self._place == before:
                raise
        except DivergedError as error:
            self._place = None
            raise SourceRefusedError(error.path, error.reason) from error
        except CorruptObjectError:
            self._place = None
            raise
        return self._place != before

    def _require_source(self) -> None:
        """Raise StoreError at once if the daemon is still away: requests to join it would be repeated for a while."""
        if self._away and self._end is not None:
            with suppress(DivergedError, PrunedError):
                next(iter(self._client.stream_wal(self._end, 0.0, 1)), None)

    def _follow_fallback(self, reason: Exception) -> bool:
        """Append what the first fallback that can be read has. Returns whether there is one."""
        for client in self._fallbacks:
            before = self._copy.appended
            try:
                self._end = self._follow(client)
            except _PASSING as error:
                self._joined = None
                self._report(error, 1, client.url)
                continue
            finally:
                if self._copy.appended != before:
                    self._place = None
            if not self._is_away_logged:
                message = "%s: %s; following %s meanwhile"
                extra = fields("mirror-falls-back", replica=client.url)
                _logger.warning(message, self._client.url, self._reason or reason, client.url, extra=extra)
            self._away = self._is_away_logged = True
            self._reason = None
            return True
        return False

    def _follow(self, client: ReplicaClient) -> Position | None:
        if self._joined is not client:
            end = self._join(client)
            self._joined = client
            return end
        follower = self._followers[client]
        while follower.step():
            pass
        return follower.position

    def join(self) -> Position:
        """Append what the replica has and the mirror lacks. Return the position of the mirror's end.

        If the mirror was not compared with the replica's generation yet, all that it holds is compared first. Raises
        DivergedError if it holds anything else.
        """
        return self._join(self._client)

    def _join(self, client: ReplicaClient) -> Position:
        self._joined = None
        plan, self._plan = self._plan, None
        if plan is None or client is not self._client:
            plan = find_plan(client, Target(), self._format)
        note = self._note.read()
        if note is None or note.generation != plan.claim.generation:
            self._require_prefix(client, plan)
            self._write_note(plan)
        if client not in self._followers:
            self._followers[client] = CopyFollower(
                client, self._copy.path, plan, self._format, clock=self._clock, copy=self._copy
            )
        before = self._copy.appended
        self._followers[client].catch_up(plan)
        if self._copy.appended != before:  # the log may have grown meanwhile
            plan = find_plan(client, Target(), self._format)
        return self._find_end(plan)

    def _write_note(self, plan: RestorePlan) -> None:
        note = MirrorNote(self._client.url, self._format.name, self._pattern, plan.claim.generation)
        try:
            self._note.write(note)
        except OSError as error:
            raise OutputError(self._note.path, error.strerror or str(error)) from error

    def _receive(self, place: Position, wait_seconds: float) -> None:
        """Append what the daemon sends from the mirror's end on. Moves that end once all is durable, also on errors."""
        self._joined = None
        asked = self._clock.monotonic()
        try:
            before = self._describe_end(place)
            for segment in self._client.stream_wal(place, wait_seconds, LIMIT_BYTES, self._name, before):
                was_awaited = self._clock.monotonic() - asked >= LIVE_SECONDS
                self._take(segment, place)
                place = segment.header.next_slot
                if was_awaited:
                    self._copy.flush()
                asked = self._clock.monotonic()
        finally:
            self._copy.flush()
            self._place = place

    def _describe_end(self, place: Position) -> MirrorEnd:
        """What the mirror has before ``place``, its end."""
        copy = self._copy
        if place.offset and copy.size != place.offset:
            return MirrorEnd()
        digest = self._digest_before(copy.name, place.offset) if place.offset else None
        if place.offset >= BEFORE_BYTES or not place.index:
            return MirrorEnd(digest)
        is_begun = place.offset > 0 or not copy.size  # the newest log segment is the one of ``place``
        name = self._name_before if is_begun else copy.name
        if not name:
            return MirrorEnd(digest)
        size = copy.size_of(name)
        if size is None:  # somebody removed it
            return MirrorEnd(digest)
        return MirrorEnd(digest, SegmentBefore(name, size, self._digest_before(name, size)))

    def _digest_before(self, name: str, end: int) -> str:
        length = min(end, BEFORE_BYTES)
        return hashlib.sha256(self._copy.read(name, end - length, length)).hexdigest()

    def _take(self, segment: WalSegment, place: Position) -> None:
        header = segment.header
        if header.position != place:
            raise CorruptObjectError(segment.key, "position in the stream", str(place), str(header.position))
        if header.length:
            if header.file != self._copy.name and self._copy.size:
                self._name_before = self._copy.name
            self._copy.open_segment(header.file, segment.key)
            if header.offset != self._copy.size:
                raise CorruptObjectError(segment.key, "offset", self._copy.size, header.offset)
            self._copy.append(segment.key, segment.data(), header.crc_total, is_finished=header.final)

    def _find_end(self, plan: RestorePlan) -> Position:
        """The position of the mirror's end. It may be ahead of the replica, by log segments that follow the plan's."""
        names = self._copy.names()
        if not names:
            return plan.base.start if not plan.files else Position(plan.claim.generation, plan.files[0].index, 0)
        newest = names[-1]
        size = self._copy.size_of(newest) or 0
        self._copy.open_segment(newest, plan.claim.key)
        files = plan.all_files
        last = files[-1] if files else None
        planned, last_order = {file.name for file in files}, () if last is None else self._order(last.name)
        known = (name for name in reversed(names[:-1]) if name in planned or self._order(name) > last_order)
        self._name_before = next(known, "")
        if last is None or (newest, size) == (last.name, last.size):
            return plan.end
        file = next((file for file in plan.files if file.name == newest), None)
        if file is not None:
            return Position(plan.claim.generation, file.index, size)
        ahead = sum(order > last_order for order in self._copy.orders())
        index = last.index if plan.files else plan.end.index - 1
        return Position(plan.claim.generation, index + ahead, size)

    def _order(self, name: str) -> tuple[object, ...]:
        return self._format.segment_order(name) or ()

    def _require_prefix(self, client: ReplicaClient, plan: RestorePlan) -> None:
        """Raise DivergedError unless all that the mirror holds is in the log, up to the replica's end."""
        held = self._copy.orders()
        for part in plan.parts:
            history = GenerationBytes(client, part.claim, self._format, part.pieces, [p.entry for p in part.sealed])
            entries = {span.entry.file: span.entry for span in part.sealed if span.is_whole}
            for file in part.files:
                size = self._copy.size_of(file.name)
                if size is None:
                    self._require_after(file, held)
                    continue
                if size > file.size and file is plan.all_files[-1]:
                    self._compare(history, file, file.size, None)
                    if self._copy.is_before_end(file.name, held):
                        reason = f"has log segments after {file.name}, which the replica has not reached yet"
                        raise SourceRefusedError(self._copy.path, reason)
                    continue
                if size > file.size or (size < file.size and self._copy.is_before_end(file.name, held)):
                    raise DivergedError(self._copy.path, f"{file.name} has {size} bytes, and the log's {file.size}")
                self._compare(history, file, min(size, file.size), entries.get(file.name))

    def _require_after(self, file: PlannedFile, held: list[tuple[object, ...]]) -> None:
        """Raise DivergedError if a log segment that the mirror lacks lies between those that it has."""
        order = self._format.segment_order(file.name)
        if order is not None and held and min(held) < order < max(held):
            raise DivergedError(self._copy.path, f"lacks {file.name}, and has log segments before and after it")

    def _compare(self, history: GenerationBytes, file: PlannedFile, size: int, entry: SnapshotEntry | None) -> None:
        if entry is not None and size == entry.length:
            if self._copy.digest_of(file.name) == entry.digest:
                return
            raise DivergedError(self._copy.path, f"{file.name}: its bytes are not those of the log")
        at = 0
        for chunk in history.chunks(file.name, 0, size):
            if self._copy.read(file.name, at, len(chunk.data)) != chunk.data:
                raise DivergedError(self._copy.path, f"{file.name}: its bytes are not those of the log from {at} on")
            at = chunk.end

    def _report(self, error: Exception, failures: int, url: str = "") -> None:
        if is_worth_logging(failures):
            url = url or self._client.url
            message = "%s: failure %d in a row, trying again: %s"
            extra = fields("mirror-failed", replica=url, consecutive_failures=failures)
            _logger.warning(message, url, failures, error, extra=extra)


def _make_name(folder: str) -> str:
    """The name by which the source lists the mirror: this machine's, and the folder."""
    return re.sub(r"[^A-Za-z0-9._:/-]", "_", f"{socket.gethostname() or 'host'}:{os.path.abspath(folder)}")[:200]


def set_aside(folder: str) -> str:
    """Rename a mirror that holds what its log does not, so that another one can begin. Return its new path. Raises
    OutputError."""
    note = mirror_note(folder).read()
    path = f"{folder}.{'unknown' if note is None else note.generation}"
    while os.path.lexists(path):
        path += "+"
    try:
        os.rename(folder, path)
        sync_folder(os.path.dirname(os.path.abspath(folder)))
    except OSError as error:
        raise OutputError(folder, f"cannot be renamed to {path}: {error.strerror or error}") from error
    return path


def _lock(folder: str) -> int:
    """Lock a folder as its writer does."""
    path = os.path.join(folder, LOCK_NAME)
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise LockedError(path, f"the log {folder}") from error
    return descriptor
