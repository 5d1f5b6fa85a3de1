"""Counts what one replica has done since the daemon started, and the errors it met. Keeps the last of each kind."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import (
    ConfigError,
    CorruptionError,
    DivergedError,
    FencedError,
    SourceError,
    SourceMissingError,
    StoreError,
)
from litelog.stores.metered_store import Histogram, RequestMeter

if TYPE_CHECKING:
    from litelog.errors import LitelogError
    from litelog.objects.claim import Claim
    from litelog.shipping.events import (
        ReplicaListener,
        ScrubFinished,
        SegmentSealed,
        SnapshotWritten,
        WalSegmentShipped,
    )
    from litelog.stores.metered_store import Durations
    from litelog.system.clock import Clock

MAX_GENERATIONS = 20
MAX_ERRORS = 10
MAX_MESSAGE = 500
"""How many characters of an error message are kept."""

ERROR_KINDS = {
    FencedError: "fenced",
    CorruptionError: "corruption",
    SourceMissingError: "source_missing",
    DivergedError: "diverged",
    SourceError: "source",
    StoreError: "store",
    ConfigError: "config",
}
OTHER = "other"

RESUMED = "resumed"
"""The relation of a generation that a restarted daemon resumes: not a new generation."""


@dataclass(frozen=True, slots=True)
class GenerationStart:
    """A generation that this daemon started or resumed."""

    time: int
    """Microseconds since 1970."""
    generation: str
    relation: str
    """The relation to its predecessor (first, continues or diverged), or RESUMED."""
    predecessor: str | None
    reason: str | None
    """Why it diverged."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that shipping met."""

    time: int
    """When it last occurred, in microseconds since 1970."""
    kind: str
    """One of ERROR_KINDS, or OTHER."""
    message: str
    count: int = 1
    """How many times it occurred in a row."""


@dataclass(frozen=True, slots=True)
class DurableCounts:
    """The counts of what became durable since the daemon started."""

    wal_segments: int = 0
    wal_log_bytes: int = 0
    """Bytes of the log, uncompressed."""
    wal_object_bytes: int = 0
    sealed_segments: int = 0
    sealed_log_bytes: int = 0
    sealed_object_bytes: int = 0
    snapshots: int = 0
    last_shipped: int | None = None
    """Microseconds since 1970."""
    last_snapshot: int | None = None


class ReplicaCounters:
    """A listener that counts the events of one replica and passes them on to another listener. Any thread may use
    it."""

    def __init__(self, listener: ReplicaListener, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._started = clock.now()
        self._lock = threading.Lock()
        self._counts = DurableCounts()
        self._errors: Counter[str] = Counter()
        self._failures: deque[Failure] = deque(maxlen=MAX_ERRORS)
        self._generations: deque[GenerationStart] = deque(maxlen=MAX_GENERATIONS)
        self._changes: Counter[str] = Counter()
        self._latency = Histogram()
        self.requests = RequestMeter(clock)

    @property
    def counts(self) -> DurableCounts:
        """The counts of what became durable."""
        return self._counts

    @property
    def errors(self) -> dict[str, int]:
        """The number of errors by kind."""
        with self._lock:
            return dict(self._errors)

    @property
    def failures(self) -> list[Failure]:
        """The last MAX_ERRORS failures, the newest last."""
        with self._lock:
            return list(self._failures)

    @property
    def generations(self) -> list[GenerationStart]:
        """The last MAX_GENERATIONS generations, the newest last."""
        with self._lock:
            return list(self._generations)

    @property
    def generation_changes(self) -> dict[str, int]:
        """How many generations began, by relation. A resumed one does not count."""
        with self._lock:
            return dict(self._changes)

    @property
    def latency(self) -> Durations:
        """Durations from when bytes were noticed in the log until they were durable in the replica."""
        return self._latency.read()

    def failed(self, error: LitelogError) -> None:
        """Count an error that shipping met."""
        kind, message, now = kind_of(error), str(error)[:MAX_MESSAGE], self._clock.now()
        with self._lock:
            self._errors[kind] += 1
            last = self._failures[-1] if self._failures else None
            if last is not None and (last.kind, last.message) == (kind, message):
                self._failures[-1] = replace(last, time=now, count=last.count + 1)
            else:
                self._failures.append(Failure(now, kind, message))

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        self._latency.observe(event.seconds)
        with self._lock:
            counts = self._counts
            self._counts = replace(
                counts,
                wal_segments=counts.wal_segments + 1,
                wal_log_bytes=counts.wal_log_bytes + event.header.length,
                wal_object_bytes=counts.wal_object_bytes + event.size,
                last_shipped=self._clock.now(),
            )
        self._listener.on_wal_segment_shipped(event)

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None:
        now = self._clock.now()
        resumed = claim.time < self._started
        relation = RESUMED if resumed else str(claim.relation.value)
        with self._lock:
            start = GenerationStart(now, claim.generation, relation, claim.predecessor, claim.reason)
            self._generations.append(start)
            if not resumed:
                self._changes[relation] += 1
        self._listener.on_generation_started(log, replica, claim)

    def on_segment_sealed(self, event: SegmentSealed) -> None:
        with self._lock:
            counts = self._counts
            self._counts = replace(
                counts,
                sealed_segments=counts.sealed_segments + 1,
                sealed_log_bytes=counts.sealed_log_bytes + event.entry.length,
                sealed_object_bytes=counts.sealed_object_bytes + event.entry.size,
            )
        self._listener.on_segment_sealed(event)

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        with self._lock:
            counts = self._counts
            self._counts = replace(counts, snapshots=counts.snapshots + 1, last_snapshot=self._clock.now())
        self._listener.on_snapshot_written(event)

    def on_scrub_finished(self, event: ScrubFinished) -> None:
        self._listener.on_scrub_finished(event)


def kind_of(error: LitelogError) -> str:
    """Return the kind under which an error is counted."""
    return next((kind for base, kind in ERROR_KINDS.items() if isinstance(error, base)), OTHER)
