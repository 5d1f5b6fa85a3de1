"""What a verification has found so far: anomalies, failures of the store, counts. And what all of its parts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, LitelogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.errors import StoreError
    from litelog.formats import LogFormat
    from litelog.verify.anomaly import Anomalies, Anomaly

MAX_FAILURES = 1000
"""How many failures of the store are kept to be listed."""


class VerifyStoppedError(LitelogError):
    """The verification was stopped before its end."""


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far a verification is."""

    objects: int
    """Judged; of ``total``."""
    total: int
    """As the first listing shows them; more may have come since."""
    bytes: int
    """Of objects that were judged, of ``total_bytes``."""
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Who looks on: each is called on the caller's thread."""

    progress: Callable[[VerifyProgress], None] | None = None
    """After each object."""
    anomaly: Callable[[Anomaly], None] | None = None
    """For each, when it is found."""
    may_go_on: Callable[[], bool] | None = None
    """After each object; VerifyStoppedError follows a no."""


@dataclass(slots=True)
class Counts:
    """How much there is, and how much of it was read."""

    claims: int = 0
    generations: int = 0
    snapshots: int = 0
    sealed_segments: int = 0
    wal_segments: int = 0
    object_bytes: int = 0
    """Of all these objects."""
    content_bytes: int = 0
    """Bytes of the log that were decompressed and checked."""
    pending: int = 0
    """Sealed segments that no snapshot names yet: the next one will."""

    @property
    def objects(self) -> int:
        return self.claims + self.snapshots + self.sealed_segments + self.wal_segments


@dataclass(slots=True)
class Findings:
    """Filled on the caller's thread, in an order that is the same in each run."""

    watch: Watch
    anomalies: Anomalies
    counts: Counts = field(default_factory=Counts)
    failures: list[StoreError] = field(default_factory=list)
    """Objects that could not be read, so that nothing is known of them."""
    failed: int = 0
    """How many these are, and those that were not kept."""
    unknown_formats: set[str] = field(default_factory=set)
    """Formats that are not installed here: their commits were not judged."""
    total: int = 0
    total_bytes: int = 0

    def judged(self, size: int) -> None:
        """One object more was judged. VerifyStoppedError if it is to be the last."""
        counts = self.counts
        counts.object_bytes += size
        if self.watch.progress is not None:
            self.watch.progress(VerifyProgress(counts.objects, self.total, counts.object_bytes, self.total_bytes))
        self.go_on()

    def go_on(self) -> None:
        """VerifyStoppedError if it is enough."""
        if self.watch.may_go_on is not None and not self.watch.may_go_on():
            raise VerifyStoppedError("the verification was stopped")

    def fail(self, error: StoreError) -> None:
        """An object could not be read."""
        self.failed += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(error)


class Formats:
    """The log formats by name, each opened once; None for one that is not known here."""

    def __init__(self, open_format: Callable[[str], LogFormat], unknown: set[str]) -> None:
        self._open = open_format
        self._unknown = unknown
        self._known: dict[str, LogFormat | None] = {}

    def __call__(self, name: str) -> LogFormat | None:
        if name not in self._known:
            try:
                self._known[name] = self._open(name)
            except ConfigError:
                self._known[name] = None
                self._unknown.add(name)
        return self._known[name]
