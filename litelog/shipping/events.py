"""The events of a replica: its progress, for listeners, and changes of what is due, for its scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass
from litelog.objects.position import Position

if TYPE_CHECKING:
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.verify.findings import Anomaly
    from litelog.verify.scrub import ScrubResult


@dataclass(frozen=True, slots=True)
class WalSegmentShipped:
    """A WAL segment is durable in the replica."""

    log: str
    """The log's folder."""
    replica: str
    header: WalHeader
    size: int
    """The size of the object in bytes."""
    seconds: float = 0.0
    """Seconds from when its bytes were noticed in the log until it was durable."""

    @property
    def end(self) -> Position:
        """Every byte before this position is in the replica."""
        return Position(self.header.generation, self.header.index, self.header.end)


@dataclass(frozen=True, slots=True)
class SegmentSealed:
    """A sealed segment is durable in the replica."""

    log: str
    replica: str
    entry: SnapshotEntry
    left: int
    """How many finished log segments are not sealed yet."""


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """A snapshot is durable in the replica."""

    log: str
    replica: str
    key: str
    first: int
    next: int
    """It names the log segments [first, next)."""


@dataclass(frozen=True, slots=True)
class ScrubFinished:
    """A background verification of a replica ended."""

    log: str
    replica: str
    verified: ScrubResult
    new: tuple[Anomaly, ...]
    """The anomalies that no earlier verification found."""


class ReplicaListener(Protocol):
    """Receives a replica's events, in the thread that made the progress. Must neither block nor fail."""

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        """A WAL segment was acknowledged."""

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None:
        """This owner began or resumed a generation."""

    def on_segment_sealed(self, event: SegmentSealed) -> None:
        """A sealed segment was written, or the snapshot refers to an existing one."""

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        """A snapshot was written."""

    def on_scrub_finished(self, event: ScrubFinished) -> None:
        """A background verification of the replica ended."""


class ReplicaEvents(Protocol):
    """Receives what changes when a replica's work is due. Any thread may call it; it must not fail."""

    def on_archive_changed(self) -> None:
        """The archive's ``due`` or ``busy`` may have changed."""

    def on_backlog_sealed(self) -> None:
        """The sealing for which the last sync ended (``waiting``) is done or failed."""

    def on_segment_finished(self) -> None:
        """A sync has finished a log segment: a newer one exists."""

    def on_replicated(self) -> None:
        """More log segments are noted as sealed and named by a durable snapshot. Called in the background."""


class IgnoredEvents:
    """Ignores the events, for a caller that polls the replica."""

    def on_archive_changed(self) -> None:
        """Do nothing."""

    def on_backlog_sealed(self) -> None:
        """Do nothing."""

    def on_segment_finished(self) -> None:
        """Do nothing."""

    def on_replicated(self) -> None:
        """Do nothing."""
