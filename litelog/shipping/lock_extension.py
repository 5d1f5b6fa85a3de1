"""Extends the locks of objects that a replica still needs, before they end, in a store that locks objects.

Each object is locked from its put on for a time, ``retain``. The replica may need it for longer. So rounds, each a
fraction of that time after the one before, extend the locks of the objects whose age has reached another half of it
since the round before: one request for each object in half of ``retain``. Objects that retention would delete now are
left alone.

Specified in litelog/shipping/README.md#locks.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LitelogError, NotFoundError, StoreError
from litelog.events import fields
from litelog.objects import layout
from litelog.retention.facts import Gathering
from litelog.retention.plan import plan_retention
from litelog.system.checked_files import NoteFile
from litelog.units import MICROSECONDS, format_count

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator

    from litelog.shipping.archive_state import ArchiveState
    from litelog.shipping.context import Settings
    from litelog.shipping.state import Running
    from litelog.stores.capabilities import ObjectLocks
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

FILE = "locks.json"

ROUNDS = 8
"""Rounds in the time for which an object is locked."""

LONGEST_SECONDS = 86400.0
SHORTEST_SECONDS = 10.0
"""The longest and the shortest time from one round to the next, in seconds."""

RETRY_SECONDS = 600.0
"""The longest time before another round, in seconds, if one could not be finished."""

MAX_REFUSED = 10
"""How many refusals end a round: the next ones would be refused as well."""

_PARSERS = (
    layout.parse_claim,
    layout.parse_snapshot,
    layout.parse_sealed,
    layout.parse_wal,
    layout.parse_checkpoint,
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LockResult:
    """The result of the last round."""

    time: int = 0
    """When a round last came to the end of the listing, in microseconds since 1970; 0 if none has."""
    retain: float = 0.0
    """Seconds for which that round locked."""
    extended: int = 0
    """How many locks the last round extended."""
    error: str | None = None
    """Why some could not be extended; None if all were."""
    refused: tuple[str, ...] = ()
    """The keys of which the store refused the extension: the next round tries these again."""


class LockExtension:
    """The rounds for one replica. One thread at a time calls ``run``; any thread reads the attributes."""

    def __init__(
        self,
        locks: ObjectLocks,
        client: ReplicaClient,
        settings: Settings,
        folder: str,
        *,
        known: Callable[[], tuple[Running, ArchiveState] | None],
        clock: Clock,
    ) -> None:
        """``folder``: where the time of the last round is kept. ``known``: the owner's state and its archive's; None
        before the first sync."""
        self._locks = locks
        self._client = client
        self._settings = settings
        self._known = known
        self._clock = clock
        self._file = _open_file(folder)
        self._gathering = Gathering(client)
        self._started = clock.now()
        self.last = self._file.read() or LockResult()
        passed = max(0.0, (clock.now() - self.last.time) / MICROSECONDS)
        self.due = clock.monotonic() + max(SHORTEST_SECONDS, self.interval - passed)
        """When the next round is to begin, in the clock's monotonic seconds."""
        self.running = False

    @property
    def interval(self) -> float:
        """Seconds from one round to the next."""
        return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, self._locks.retain / ROUNDS))

    def run(self, stop: threading.Event) -> LockResult | None:
        """Extend what is due, unless ``stop`` is set meanwhile. Returns None if it was stopped, or while the owner has
        no generation. Raises nothing: errors are in the result."""
        known = self._known()
        now = self._clock.now()
        retry = self._clock.monotonic() + min(self.interval, RETRY_SECONDS)
        if known is None:
            self.due = retry
            return None
        extended, error = 0, ""
        refused: list[str] = []
        is_whole = True
        try:
            for key, refusal in self._extend(known, now, stop):
                error = error or refusal
                extended += not refusal
                refused += [key] if refusal else []
                if len(refused) >= MAX_REFUSED:
                    is_whole = False
                    break
        except LitelogError as failure:
            error, is_whole = error or str(failure), False
        if stop.is_set():
            return None
        self.due = retry if error else self._clock.monotonic() + self.interval
        if is_whole:
            self.last = LockResult(now, self._locks.retain, extended, error or None, tuple(refused))
        else:
            self.last = replace(self.last, extended=extended, error=error)
        self._save()
        return self.last

    def report(self, log: str, replica: str, before: LockResult) -> None:
        """Log what the last round did; a failure once, until it changes. ``before``: the result of the round before."""
        where, result = {"log": log, "replica": replica}, self.last
        if result.error is None:
            if result.extended:
                extended = format_count(result.extended, "lock")
                extra = fields("locks-extended", **where, objects=result.extended)
                _logger.info("%s to %s: extended %s", log, replica, extended, extra=extra)
        elif result.error != before.error:
            extra = fields("locks-not-extended", **where)
            message = "%s to %s: locks cannot be extended, and the first ones end within half of retain: %s"
            _logger.warning(message, log, replica, result.error, extra=extra)

    def _extend(
        self, known: tuple[Running, ArchiveState], now: int, stop: threading.Event
    ) -> Iterator[tuple[str, str]]:
        """Extend each lock that is due. Yields each key, with an empty text or why the store refused it. Raises the
        errors of requests that may pass."""
        removed: Collection[str] | None = None
        for key, put in self._locks.list(""):
            if stop.is_set():
                return
            is_due = self._is_due(put, now) or key in self.last.refused
            if not is_due or not any(parse(key) is not None for parse in _PARSERS):
                continue
            if removed is None:
                removed = self._find_removed(known, now)
            if key in removed:
                continue
            try:
                self._locks.extend(key)
            except NotFoundError:
                continue  # it was deleted meanwhile
            except StoreError as error:
                if error.retryable:
                    raise
                yield key, str(error)
            else:
                yield key, ""

    def _is_due(self, put: int, now: int) -> bool:
        """Whether an object that was put at ``put`` has reached another half of ``retain`` since the last round. If no
        round is known with the same ``retain``, all that was there when the daemon started is due as well."""
        half = max(1, int(self._locks.retain * MICROSECONDS / 2))
        if self.last.retain != self._locks.retain:
            return put < self._started or now - put >= half
        return max(0, now - put) // half > max(0, self.last.time - put) // half

    def _find_removed(self, known: tuple[Running, ArchiveState], now: int) -> Collection[str]:
        """The keys of the objects that retention would delete now."""
        state, archive = known
        facts = self._gathering.gather(archive.drops, mine=state.claim)
        if facts is None:
            return ()
        plan = plan_retention(facts, self._settings.retention, now, self._settings.wal_retention)
        return frozenset(removal.key for removal in plan.removals)

    def _save(self) -> None:
        try:
            self._file.write(self.last)
        except OSError as error:
            extra = fields("state-not-kept", path=self._file.path)
            _logger.warning("%s: cannot be kept: %s", self._file.path, error.strerror, extra=extra)


def read_locks(folder: str) -> LockResult | None:
    """The result that is kept in a replica's state folder; None if there is none, or it cannot be read."""
    return _open_file(folder).read()


def _open_file(folder: str) -> NoteFile[LockResult]:
    return NoteFile(os.path.join(folder, FILE), LockResult, "the locks of all objects are extended once more")
