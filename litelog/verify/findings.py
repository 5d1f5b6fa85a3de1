"""The findings of a verification: kinds of anomaly, failures of the store, counts, and how much was read."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from litelog.dataclass import dataclass
from litelog.errors import (
    ConfigError,
    CorruptCommitError,
    CorruptObjectError,
    LitelogError,
    ReplicaGapError,
    SequenceGapError,
    UnknownVersionError,
    WrongFormatError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.errors import CorruptionError, StoreError
    from litelog.formats import LogFormat
    from litelog.objects.position import Position

MAX_KEPT = 10_000
"""How many anomalies are kept for the list; the others are only counted. A bucket of foreign objects has millions."""


class AnomalyKind(StrEnum):
    """The kinds of anomaly. Each anomaly has one kind, and the key at which it was found."""

    GAP = "gap"
    """Bytes of the log, or records, are missing between others. The key is that of the first missing object (a WAL
    segment that no snapshot covers), or that of the object in which a sequence was left out."""
    OVERLAP = "overlap"
    """A WAL segment overlaps the one before it."""
    CHECKSUM = "checksum"
    """An object's bytes are not those that were written: its frames, a CRC-32C or SHA-256 in it, or its fields."""
    LENGTH = "length"
    """An object, or its content, is shorter or longer than stated."""
    ORDER = "order"
    """A value goes back that may only rise (sequences, epochs of commits, times shipped, file names), or an object lies
    before the start or after the end of its generation."""
    CHAIN = "chain"
    """An object does not name the digest of the object before it: one of the two differs from what was written."""
    COMMIT = "commit"
    """The commits in an intact object are bad: its writer shipped damage."""
    CONFLICT = "conflict"
    """Two intact objects contradict each other: the object at the key, and the object that the anomaly's text names."""
    MISSING = "missing"
    """An object is missing although another one names it, or is written only after it."""
    FOREIGN = "foreign"
    """A name outside the layout (harmless), or an object of another key, log, generation or owner (harmful); or a local
    log that is not the replica's (``against``)."""
    ORPHAN = "orphan"
    """No object names or needs this object any more. It only costs storage."""
    VERSION = "version"
    """A newer litelog wrote the object. It was not judged; no damage is known."""
    DIFFERS = "differs"
    """The local log holds other bytes than the replica (``against``)."""
    AHEAD = "ahead"
    """The replica holds bytes at its end that the local log lacks, or lacks by now (``against``)."""
    DELETED = "deleted"
    """The store keeps versions, and a delete marker hides an object that litelog never deletes."""
    OVERWRITTEN = "overwritten"
    """The store keeps versions, and somebody put a key again. Harmless if all contents of the key are the same."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly in a replica."""

    kind: AnomalyKind
    key: str
    """The object's key; for a missing object, the key that it would have."""
    what: str
    """A text for people: what was found, and what was expected."""
    harmful: bool = True
    """Whether a reader may meet it. Other anomalies are reported, but are not errors."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.what}"

    def as_json(self) -> dict[str, Any]:
        """The anomaly as JSON values, for programs."""
        return {"kind": self.kind, "object": self.key, "message": self.what, "harmful": self.harmful}


class AnyAnomaly(Protocol):
    """An anomaly in a replica, or in a local log."""

    @property
    def kind(self) -> StrEnum: ...

    @property
    def harmful(self) -> bool: ...


_Found = TypeVar("_Found", bound=AnyAnomaly)


class FoundAnomalies(Generic[_Found]):
    """All anomalies of one run, in the order in which they were found. The order is the same in each run. At most
    MAX_KEPT are kept; all are counted."""

    def __init__(self, on_anomaly: Callable[[_Found], None] | None = None) -> None:
        """``on_anomaly`` is called with each anomaly, when it is found."""
        self._report = on_anomaly
        self.kept: list[_Found] = []
        self.counts: Counter[StrEnum] = Counter()
        self.harmful = 0

    def take(self, anomaly: _Found) -> None:
        """Add an anomaly."""
        self.counts[anomaly.kind] += 1
        self.harmful += anomaly.harmful
        if len(self.kept) < MAX_KEPT:
            self.kept.append(anomaly)
        if self._report is not None:
            self._report(anomaly)


class Anomalies(FoundAnomalies[Anomaly]):
    """The anomalies of a replica."""

    def add(self, kind: AnomalyKind, key: str, what: str, *, harmful: bool = True) -> None:
        """Add an anomaly. The arguments are the fields of Anomaly."""
        self.take(Anomaly(kind, key, what, harmful))


def anomaly_of(key: str, error: CorruptionError | UnknownVersionError) -> Anomaly:
    """The anomaly that a check of the object ``key`` raised."""
    return Anomaly(_kind_of(error), key, str(error).removeprefix(f"{key}: ").removeprefix(f"{key}/"))


def _kind_of(error: CorruptionError | UnknownVersionError) -> AnomalyKind:
    if isinstance(error, UnknownVersionError):
        return AnomalyKind.VERSION
    if isinstance(error, CorruptObjectError):
        if error.what.endswith("cut off"):
            return AnomalyKind.LENGTH
        return next((kind for words, kind in _KINDS if error.what.startswith(words)), AnomalyKind.CHECKSUM)
    if isinstance(error, SequenceGapError | ReplicaGapError):
        return AnomalyKind.GAP
    if isinstance(error, CorruptCommitError | WrongFormatError):
        return AnomalyKind.COMMIT
    return AnomalyKind.CHECKSUM


_KINDS = (
    (("position in", "epoch in the claim"), AnomalyKind.FOREIGN),
    (("length", "bytes ", "more than "), AnomalyKind.LENGTH),
    (("end of the last whole commit",), AnomalyKind.COMMIT),
    (("records", "first", "next", "lowest", "highest", "sequence after"), AnomalyKind.CONFLICT),
)
"""Beginnings of a CorruptObjectError's ``what``, and the kind of anomaly for each."""


MAX_FAILURES = 1000
"""How many failures of the store are kept for the list."""


class VerifyStoppedError(LitelogError):
    """The verification was stopped before its end."""


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """The progress of a verification."""

    objects: int
    """Judged objects, of ``total``."""
    total: int
    """The number of objects in the first listing; more may have come since."""
    bytes: int
    """Bytes of the judged objects, of ``total_bytes``."""
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Watch:
    """An observer. Each function is called on the caller's thread."""

    progress: Callable[[VerifyProgress], None] | None = None
    """Called after each object."""
    walk: Callable[[int], None] | None = None
    """Called once, with the number of generations to read, before any of them is read."""
    anomaly: Callable[[Anomaly], None] | None = None
    """Called with each anomaly, when it is found."""
    should_continue: Callable[[], bool] | None = None
    """Called after each object. If it returns False, VerifyStoppedError is raised."""


@dataclass(slots=True)
class VerifyCounts:
    """How much there is, and how much of it was read."""

    claims: int = 0
    generations: int = 0
    snapshots: int = 0
    sealed_segments: int = 0
    wal_segments: int = 0
    checkpoints: int = 0
    hidden: int = 0
    """Encrypted objects whose contents were not judged, as no identity was given."""
    object_bytes: int = 0
    """The size of all these objects, in bytes."""
    content_bytes: int = 0
    """Bytes of the log that were decompressed and checked."""
    pending: int = 0
    """Sealed segments that no snapshot names yet: the next one will."""

    @property
    def objects(self) -> int:
        return self.claims + self.snapshots + self.sealed_segments + self.wal_segments


@dataclass(frozen=True, slots=True)
class VersionsChecked:
    """Whether the versions of objects were looked at."""

    is_done: bool = False
    error: str | None = None
    """Why they were not; None if they were, or if the store has no such thing as versions."""
    tampered_since: int | None = None
    """When the first object was deleted or overwritten that litelog deletes and overwrites never, in microseconds since
    1970; None if there is none."""


@dataclass(slots=True)
class Findings:
    """Collects findings on the caller's thread, in an order that is the same in each run."""

    watch: Watch
    anomalies: Anomalies
    counts: VerifyCounts = field(default_factory=VerifyCounts)
    failures: list[StoreError] = field(default_factory=list)
    """Objects that could not be read, and were not judged."""
    failed: int = 0
    """How many these are, including those that were not kept."""
    unknown_formats: set[str] = field(default_factory=set)
    """Formats that are not installed here, whose commits were not judged."""
    versions: VersionsChecked = field(default_factory=VersionsChecked)
    total: int = 0
    total_bytes: int = 0

    def count_judged(self, size: int) -> None:
        """Count one judged object of ``size`` bytes. Raises VerifyStoppedError if the verification is to stop."""
        counts = self.counts
        counts.object_bytes += size
        if self.watch.progress is not None:
            self.watch.progress(VerifyProgress(counts.objects, self.total, counts.object_bytes, self.total_bytes))
        self.raise_if_stopped()

    def raise_if_stopped(self) -> None:
        """Raise VerifyStoppedError if the verification is to stop."""
        if self.watch.should_continue is not None and not self.watch.should_continue():
            raise VerifyStoppedError("the verification was stopped")

    def fail(self, error: StoreError) -> None:
        """Note that an object could not be read."""
        self.failed += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(error)


class Formats:
    """The log formats by name, each opened once; None for an unknown format."""

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


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The last WAL segment that an owner knows to be durable in its replica."""

    position: Position
    digest: str
    """Its SHA-256, hex."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which contents are read. Structure (claims, snapshots, headers, footers) is always read."""

    share: float = 1.0
    """The share of the contents, 0 to 1. Above 0, one WAL segment is always read, so that no sample is empty."""
    seed: int = 0
    """Selects the sample. The same seed selects the same keys, no matter what other objects exist."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"a share is from 0 to 1, not {self.share}")

    @property
    def is_all(self) -> bool:
        return self.share >= 1

    def takes(self, key: str, part: int = 0) -> bool:
        """Whether to read the contents of ``key``, or of its ``part``, if it is read in parts."""
        return self.is_all or Random(f"{self.seed} {key} {part}").random() < self.share  # noqa: S311  no secret
