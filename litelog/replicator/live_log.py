"""LiveLog: what a reader in another process needs of a log that is replicated here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.system.change_signal import ChangeSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.shipping.context import LogSource
    from litelog.shipping.events import (
        ReplicaListener,
        ScrubFinished,
        SegmentSealed,
        SnapshotWritten,
        WalSegmentShipped,
    )


class ShippedSignals:
    """A listener to the events of all replicas. It passes them on, and reports that something was shipped."""

    def __init__(self, inner: ReplicaListener) -> None:
        self._inner = inner
        self.shipped = ChangeSignal()
        """Reports each WAL segment and each claim, from a thread that ships."""

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        self._inner.on_wal_segment_shipped(event)
        self.shipped.notify()

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None:
        self._inner.on_generation_started(log, replica, claim)
        self.shipped.notify()

    def on_segment_sealed(self, event: SegmentSealed) -> None:
        self._inner.on_segment_sealed(event)

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        self._inner.on_snapshot_written(event)

    def on_scrub_finished(self, event: ScrubFinished) -> None:
        self._inner.on_scrub_finished(event)


@dataclass(frozen=True, slots=True)
class LiveLog:
    """A log with an open replica."""

    source: LogSource
    pattern: str | None
    replicas: tuple[tuple[str, Mapping[str, object]], ...]
    """Their URLs and options, in the configuration's order."""
    state_dir: str
    shipped: ChangeSignal
    """Reports that a replica has acknowledged more of a log."""
    find_start: Callable[[], tuple[Claim, SourcePosition] | None]
    """Returns the claim of the first open replica, and the position up to which it has acknowledged the log; None
    before its first sync. Any thread may call it."""
    mirror_wait: float | None = None
    """Seconds: how old a log segment may become while truncation keeps it for a mirror. None: it keeps none."""
