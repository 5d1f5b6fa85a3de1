"""What is told of a replica's progress, and to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from litelog.objects.position import Position, generation

if TYPE_CHECKING:
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.verify.findings import Anomaly
    from litelog.verify.scrub import Verified


@dataclass(frozen=True, slots=True)
class Shipped:
    """A WAL segment that is durable in the replica."""

    log: str
    """The log's folder."""
    replica: str
    header: WalHeader
    size: int
    """The object's bytes."""
    seconds: float = 0.0
    """From when its bytes were noticed in the log until it was durable."""

    @property
    def end(self) -> Position:
        """Every byte before this position is in the replica."""
        return Position(generation(self.header.generation), self.header.index, self.header.end)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed segment that is durable in the replica."""

    log: str
    replica: str
    entry: SnapshotEntry
    left: int
    """Log segments that are finished, and not sealed yet."""


@dataclass(frozen=True, slots=True)
class Snapped:
    """A snapshot that is durable in the replica."""

    log: str
    replica: str
    key: str
    first: int
    next: int
    """It names the log segments [first, next)."""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A replica was verified in the background."""

    log: str
    replica: str
    verified: Verified
    new: tuple[Anomaly, ...]
    """What was not found before."""


class Listener(Protocol):
    """Who is told of progress, from the thread that made it. Must neither block nor fail."""

    def shipped(self, event: Shipped) -> None:
        """A WAL segment was acknowledged."""

    def began(self, log: str, replica: str, claim: Claim) -> None:
        """A generation is this owner's to write."""

    def sealed(self, event: Sealed) -> None:
        """A sealed segment was written, or is referred to."""

    def snapped(self, event: Snapped) -> None:
        """A snapshot was written."""

    def scrubbed(self, event: Scrubbed) -> None:
        """A replica was verified."""
