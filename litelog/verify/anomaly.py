"""What can be wrong with a replica: the kinds of anomaly, one anomaly, and all of them together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from litelog.errors import (
    CorruptCommitError,
    CorruptObjectError,
    ReplicaGapError,
    SequenceGapError,
    UnknownVersionError,
    WrongFormatError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.errors import CorruptionError

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
