"""What a verification finds: the kinds of anomaly, failures of the store, counts, and how much of a replica is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

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

MAX_KEPT = 10_000
"""How many anomalies are kept to be listed; more are counted. A root full of foreign objects has millions."""


class Kind(StrEnum):
    """What is wrong. Each anomaly is of one kind, and has the key that it was found at."""

    GAP = "gap"
    """Bytes of the log, or records, are not there between others that are. The key is the first that is missing: a WAL
    segment's (then no snapshot covers it), or the object's in which a sequence was left out."""
    OVERLAP = "overlap"
    """A WAL segment lies inside what the one before it holds."""
    CHECKSUM = "checksum"
    """An object's bytes are not those that were written: its frames, a CRC-32C or SHA-256 in it, or its fields."""
    LENGTH = "length"
    """An object, or what it holds, is shorter or longer than was said."""
    ORDER = "order"
    """Something goes back that may only rise (sequences, epochs of commits, times shipped, file names), or lies before
    the start or behind the end of its generation."""
    CHAIN = "chain"
    """An object does not name the digest of the one before it: it, or that one, is not the one that was written."""
    COMMIT = "commit"
    """The commits in an object do not hold, though the object is as it was written: its writer shipped damage."""
    CONFLICT = "conflict"
    """Two objects that are whole say different things of the same: the key's one and the one that is named."""
    MISSING = "missing"
    """An object is not there though another one tells that it was: it names it, or was only written behind it."""
    FOREIGN = "foreign"
    """A name that is not the layout's (which harms nobody), or an object that belongs to another key, log, generation
    or owner (which does); or a local log that is not the replica's (``against``)."""
    ORPHAN = "orphan"
    """An object that nothing names or needs any more: it costs its storage, and nothing else."""
    VERSION = "version"
    """An object was written by a newer litelog: nothing is known to be wrong with it, and it was not judged."""
    DIFFERS = "differs"
    """The local log holds other bytes than the replica (``against``)."""
    AHEAD = "ahead"
    """The replica holds what the local log does not, or not any more, at its end (``against``)."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that is wrong with a replica."""

    kind: Kind
    key: str
    """The object's; of one that is missing, the key that it would have."""
    what: str
    """For people: what was found, and what was expected."""
    harmful: bool = True
    """Whether a reader may meet it. What only lies about is reported, and is no error."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.what}"


class Anomalies:
    """All anomalies of one run, in the order in which they were found, which is the same in each run."""

    def __init__(self, tell: Callable[[Anomaly], None] | None = None) -> None:
        """``tell`` is called with each, when it is found."""
        self._tell = tell
        self.kept: list[Anomaly] = []
        self.counts: Counter[Kind] = Counter()
        self.harmful = 0

    def add(self, kind: Kind, key: str, what: str, *, harmful: bool = True) -> None:
        """Take note of one."""
        self.take(Anomaly(kind, key, what, harmful))

    def take(self, anomaly: Anomaly) -> None:
        """Take note of one that was found elsewhere."""
        self.counts[anomaly.kind] += 1
        self.harmful += anomaly.harmful
        if len(self.kept) < MAX_KEPT:
            self.kept.append(anomaly)
        if self._tell is not None:
            self._tell(anomaly)


def anomaly_of(key: str, error: CorruptionError) -> Anomaly:
    """The anomaly that a check of the object ``key`` raised."""
    return Anomaly(_kind_of(error), key, str(error).removeprefix(f"{key}: ").removeprefix(f"{key}/"))


def _kind_of(error: CorruptionError) -> Kind:
    if isinstance(error, UnknownVersionError):
        return Kind.VERSION
    if isinstance(error, CorruptObjectError):
        if error.what.endswith("cut off"):
            return Kind.LENGTH
        return next((kind for words, kind in _KINDS if error.what.startswith(words)), Kind.CHECKSUM)
    if isinstance(error, SequenceGapError | ReplicaGapError):
        return Kind.GAP
    if isinstance(error, CorruptCommitError | WrongFormatError):
        return Kind.COMMIT
    return Kind.CHECKSUM


_KINDS = (
    (("position in", "epoch in the claim"), Kind.FOREIGN),
    (("length", "bytes ", "more than "), Kind.LENGTH),
    (("end of the last whole commit",), Kind.COMMIT),
    (("records", "first", "next", "lowest", "highest", "sequence behind"), Kind.CONFLICT),
)
"""What CorruptObjectError names as its ``what``, and the kind of that."""


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


@dataclass(frozen=True, slots=True)
class Scope:
    """Which contents are read. Structure (claims, snapshots, headers, footers) always is."""

    share: float = 1.0
    """Of the contents, 0 to 1."""
    seed: int = 0
    """What chooses them: the same seed chooses the same of the same keys, whatever lies beside them."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"a share is from 0 to 1, not {self.share}")

    @property
    def is_all(self) -> bool:
        return self.share >= 1

    def takes(self, key: str, part: int = 0) -> bool:
        """Whether the contents of ``key`` (of its ``part``, where it is read in parts) are read."""
        return self.is_all or Random(f"{self.seed} {key} {part}").random() < self.share  # noqa: S311  no secret
