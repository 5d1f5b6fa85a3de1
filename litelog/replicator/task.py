"""One replica's turn: its phase, when it is due, what its last failure was. Values and rules, no threads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from litelog.errors import (
    ConfigError,
    CorruptionError,
    FencedError,
    LitelogError,
    OtherLogError,
    SourceSyncError,
)
from litelog.events import fields
from litelog.objects.layout import Fencing
from litelog.shipping.backoff import FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, asked_delay, needs_help, next_delay
from litelog.stores.trial import UnfitStoreError

if TYPE_CHECKING:
    from random import Random

    from litelog.shipping.counters import Tallies
    from litelog.shipping.lag import LagMeter
    from litelog.shipping.replica import Replica
    from litelog.shipping.source_truncation import LogTruncator
    from litelog.verify.scrub import Scrub

WATCHED_INTERVALS = 4
"""How many of a log's poll intervals pass between two looks at it where events tell of it as well: so a hundred idle
logs take less than a tenth of a percent of a processor."""


class Phase(Enum):
    """What a replica is doing."""

    IDLE = "idle"
    """All is shipped; an event or the poll wakes it."""
    SYNCING = "syncing"
    """A thread has it."""
    SEALING = "sealing"
    """What is finished goes up sealed in the background, and comes first. No thread waits for it."""
    SPACING = "spacing"
    """It has just shipped; the sync interval is not over."""
    BACKING_OFF = "backing off"
    """Its last sync failed; it is tried again when due."""
    FENCED = "fenced"
    """Another owner has the replica. For good."""
    FROZEN = "frozen"
    """Bytes are not what they should be. For good."""
    REFUSED = "refused"
    """What was asked for cannot be: another log's replica, names that cannot be replicated, a store that does not keep
    writers apart. For good."""
    DONE = "done"
    """Its final sync has reached the log's end."""
    FAILED = "failed"
    """Its final sync did not."""


LASTING = (Phase.FROZEN, Phase.FENCED, Phase.REFUSED)
"""What cannot be tried again, the worst first."""

BUSY = frozenset({Phase.SYNCING, Phase.SEALING})
"""What comes back by itself."""

OVER = frozenset({*LASTING, Phase.DONE, Phase.FAILED})
"""What needs no turn any more."""


@dataclass(slots=True, eq=False)
class ReplicaTask:
    """The turn of one (log, replica) pair. All but ``replica`` is guarded by the replicator's lock."""

    log: str
    url: str
    replica: Replica | None
    """None where it could not even be opened."""
    sync_interval: float
    """Seconds."""
    poll_interval: float
    limit: int
    """Bytes that are shipped before the interval is over."""
    phase: Phase = Phase.IDLE
    due: float = 0.0
    """When it is to be looked at next, in the clock's monotonic seconds."""
    spaced_until: float = -math.inf
    """When the sync interval ends that the last WAL segments began, monotonic."""
    watched: bool = False
    """Whether a file-system event will wake it."""
    woken: bool = False
    """Something happened while a thread had it."""
    caught_up: float = -math.inf
    """When, monotonic, a look or a sync began that found nothing left to ship: what was there then is acknowledged."""
    leaving: bool = False
    """Whether it is replicated no longer, or opened anew, once it is over."""
    final: bool = False
    """Of one that leaves: whether it is synced a last time."""
    leave_by: float = math.inf
    """Of one that leaves: when its last sync ends, monotonic."""
    error: LitelogError | None = None
    failures: int = 0
    """How often it failed in a row."""
    failing_since: float | None = None
    """When the first of these was, monotonic; None where there is none."""
    delay: float = field(default=FIRST_DELAY_SECONDS)
    fencing: Fencing = Fencing.REQUIRED
    state_folder: str = ""
    """Relative to the daemon's."""
    scrub: Scrub | None = None
    """None where it is not verified in the background."""
    lag: LagMeter | None = None
    """None where the replica is None."""
    tallies: Tallies | None = None
    truncator: LogTruncator | None = None
    """Its log's, whose replicas share it."""

    def fields(self, event: str, failures: int | None = None) -> dict[str, object]:
        """What a log line about this pair says beside its message."""
        position = self.replica.position if self.replica is not None else None
        return fields(event, log=self.log, replica=self.url, position=position, failures=failures)

    def succeed(self) -> None:
        """Forget the failures before."""
        self.error = None
        self.failures = 0
        self.failing_since = None
        self.delay = FIRST_DELAY_SECONDS

    def space(self, started: float) -> None:
        """Have the sync interval go on, or begin, after a sync that shipped something.

        Of a log that is shipped again and again each interval begins where the one before ended: a sync that waited for
        a thread makes those behind it no later.
        """
        late = started - self.spaced_until
        goes_on = self.due == self.spaced_until and 0 <= late < self.sync_interval
        self.spaced_until = (self.spaced_until if goes_on else started) + self.sync_interval

    def rest(self, now: float, least: float = 0.0) -> None:
        """Be idle until the next poll: at a multiple of its interval, so that one sweep looks at many logs.

        Where events come, the poll is for writers that cause none (mmap, other hosts): each WATCHED_INTERVALS of its
        intervals, and no more often than each ``least`` seconds.
        """
        interval = max(WATCHED_INTERVALS * self.poll_interval, least) if self.watched else self.poll_interval
        self.phase = Phase.IDLE
        self.due = (now // interval + 1) * interval

    def fail(self, error: LitelogError, now: float, random: Random) -> None:
        """Take note of a failure: for good, or until a capped, jittered delay is over."""
        self.error = error
        self.failures += 1
        self.failing_since = now if self.failing_since is None else self.failing_since
        if self.tallies is not None:
            self.tallies.failed(error)
        self.phase = lasting_phase(error) or Phase.BACKING_OFF
        self.delay = MAX_DELAY_SECONDS if needs_help(error) else next_delay(self.delay, random)
        self.due = now + max(self.delay, asked_delay(error))


def lasting_phase(error: LitelogError) -> Phase | None:
    """The phase that an error leads to for good; None for one that may pass."""
    if isinstance(error, FencedError):
        return Phase.FENCED
    if isinstance(error, (CorruptionError, SourceSyncError)):
        return Phase.FROZEN
    if isinstance(error, (ConfigError, OtherLogError, UnfitStoreError)):
        return Phase.REFUSED
    return None
