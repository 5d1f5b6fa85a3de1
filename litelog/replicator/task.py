"""The task of one replica: its phase, when it is due, and its last failure. Also the protocols of the main loop's
duties. Values and rules, no threads."""

from __future__ import annotations

import math
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, LitelogError, OtherLogError, SourceMissingError
from litelog.events import fields
from litelog.objects.layout import Fencing
from litelog.shipping.backoff import BackOff
from litelog.shipping.final_error import find_end
from litelog.stores.trial import UnfitStoreError

if TYPE_CHECKING:
    from random import Random

    from litelog.shipping.counters import ReplicaCounters
    from litelog.shipping.lag import LagMeter
    from litelog.shipping.lock_extension import LockExtension
    from litelog.shipping.replica import Replica
    from litelog.shipping.source_truncation import LogTruncator
    from litelog.verify.scrub import Scrub


WATCHED_INTERVALS = 4
"""How many of a log's poll intervals pass between two polls if events report its changes, too: so a hundred idle logs
take less than a tenth of a percent of a processor."""


class Phase(Enum):
    """The phase of a replica."""

    IDLE = "idle"
    """Everything is shipped. An event or the poll wakes it."""
    SYNCING = "syncing"
    """A thread works on it."""
    SEALING = "sealing"
    """Finished log segments are being sealed in the background before it ships. No thread waits for that."""
    THROTTLED = "spacing"
    """It has just shipped; the sync interval is not over."""
    BACKING_OFF = "backing off"
    """Its last sync failed. It is retried when due."""
    FENCED = "fenced"
    """Another owner has the replica. Final."""
    FROZEN = "frozen"
    """Bytes are not what they should be. Final."""
    REJECTED = "refused"
    """The configuration cannot be carried out: another log's replica, names that cannot be replicated, a store that
    does not keep writers apart. Final."""
    DONE = "done"
    """Its final sync has reached the log's end."""
    FAILED = "failed"
    """Its final sync did not reach the log's end."""


TERMINAL_PHASES = (Phase.FROZEN, Phase.FENCED, Phase.REJECTED)
"""The phases that cannot be retried, the worst first."""

BUSY = frozenset({Phase.SYNCING, Phase.SEALING})
"""The phases that end by themselves."""

FINISHED = frozenset({*TERMINAL_PHASES, Phase.DONE, Phase.FAILED})
"""The phases that no longer need a thread."""


@dataclass(slots=True, eq=False)
class ReplicaTask:
    """One pair of log and replica. The replicator's lock guards everything except ``replica``."""

    log: str
    url: str
    replica: Replica | None
    """None if it could not be opened."""
    sync_interval: float
    """Seconds."""
    poll_interval: float
    limit: int
    """How many bytes are shipped even before the interval is over."""
    phase: Phase = Phase.IDLE
    due: float = 0.0
    """When it is due next, in the clock's monotonic seconds."""
    spaced_until: float = -math.inf
    """When the current sync interval ends, in monotonic seconds."""
    growth: float = math.inf
    """The bytes of the log a second, as they were seen last in a sync interval; infinity before that."""
    opened_at: float = 0.0
    """When it was opened, in monotonic seconds."""
    watched: bool = False
    """Whether a file-system event will wake it."""
    wake_pending: bool = False
    """Whether an event came while a thread worked on it."""
    last_clean_at: float = -math.inf
    """When the last poll or sync began that found nothing left to ship, in monotonic seconds: everything that the log
    held then is acknowledged, except for records that a watermark withholds."""
    caught_up_at: float = -math.inf
    """The same, without such records: when all that the log held was acknowledged."""
    leaving: bool = False
    """Whether it is to be closed, or opened again, when its work has ended."""
    final: bool = False
    """If it leaves: whether it is synced a last time."""
    leave_by: float = math.inf
    """If it leaves: when its last sync must end, in monotonic seconds."""
    error: LitelogError | None = None
    back_off: BackOff = field(default_factory=BackOff)
    """The number of its failures in a row, and the delay after the last one."""
    failing_since: float | None = None
    """When the first of these failures was, in monotonic seconds; None if there is none."""
    fencing: Fencing = Fencing.REQUIRED
    no_delete: bool = False
    state_folder: str = ""
    """The path of its state folder, relative to the daemon's."""
    scrub: Scrub | None = None
    """None if it is not verified in the background."""
    lock_extension: LockExtension | None = None
    """None if its store locks nothing for a time."""
    lag: LagMeter | None = None
    """None if ``replica`` is None."""
    counters: ReplicaCounters | None = None
    truncator: LogTruncator | None = None
    """The truncator of its log, which the log's replicas share."""

    def fields(self, event: str, failures: int | None = None) -> dict[str, object]:
        """Return the fields of a log line about this pair."""
        position = self.replica.position if self.replica is not None else None
        return fields(event, log=self.log, replica=self.url, position=position, consecutive_failures=failures)

    def note_clean(self, looked: float) -> None:
        """Record that a poll or sync that began at ``looked`` found nothing left to ship."""
        self.last_clean_at = looked
        if self.replica is None or self.replica.withheld_by is None:
            self.caught_up_at = looked

    @property
    def failures(self) -> int:
        """How many times it failed in a row."""
        return self.back_off.failures

    @property
    def is_synced(self) -> bool:
        """Whether it held, at some time since the run began, all that the log held then."""
        return self.last_clean_at > -math.inf

    @property
    def awaits_log(self) -> bool:
        """Whether there was never anything to sync: the log's folder does not exist yet, or holds no log segment."""
        return isinstance(self.error, SourceMissingError) and not self.is_synced

    def succeed(self) -> None:
        """Forget earlier failures."""
        self.error = None
        self.failing_since = None
        self.back_off.succeed()

    def space(self, started: float) -> None:
        """Continue the sync interval, or begin one, after a sync that shipped something.

        If a log is shipped again and again, each interval begins where the last one ended. So a sync that waited for a
        thread does not delay the next ones.
        """
        late = started - self.spaced_until
        continues = self.due == self.spaced_until and 0 <= late < self.sync_interval
        self.spaced_until = (self.spaced_until if continues else started) + self.sync_interval

    def rest(self, now: float, least: float = 0.0) -> None:
        """Be idle until the next poll: at a multiple of its interval, so that one sweep serves many logs.

        If events report changes, the poll is only for writers that cause none (mmap, other hosts): every
        WATCHED_INTERVALS of its intervals, but at most every ``least`` seconds.
        """
        interval = max(WATCHED_INTERVALS * self.poll_interval, least) if self.watched else self.poll_interval
        self.phase = Phase.IDLE
        self.due = (now // interval + 1) * interval

    def fail(self, error: LitelogError, now: float, random: Random) -> None:
        """Record a failure: it is final, or a capped, jittered delay begins."""
        self.error = error
        self.failing_since = now if self.failing_since is None else self.failing_since
        if self.counters is not None:
            self.counters.failed(error)
        self.phase = terminal_phase(error) or Phase.BACKING_OFF
        self.due = now + self.back_off.fail(error, random)


def terminal_phase(error: LitelogError) -> Phase | None:
    """Return the final phase to which an error leads; None for an error that may pass."""
    end = find_end(error)
    if end is not None:
        return Phase(end.value)
    if isinstance(error, (ConfigError, OtherLogError, UnfitStoreError)):
        return Phase.REJECTED
    return None


class Duty(Protocol):
    """Work that the main loop starts when it is due. Only ``serve`` is called under the run state's lock."""

    def serve(self, now: float) -> float:
        """Start what is due. Return when something is due next, in monotonic seconds."""

    def stop(self, *, wait: bool) -> bool:
        """Start nothing more. Return whether everything has ended.

        With ``wait``, wait first for running work; for a second at most if that work may wait for a store."""


class TaskDuty(Duty, Protocol):
    """A duty to each task. Everything except ``stop`` is called under the run state's lock."""

    def add(self, task: ReplicaTask) -> None:
        """Serve a task from now on."""

    def finish(self, task: ReplicaTask) -> bool:  # noqa: ARG002
        """End the work for a task, after its last sync. Return whether it has ended. Called again until it has."""
        return True

    def remove(self, task: ReplicaTask) -> None:
        """Forget a task."""
