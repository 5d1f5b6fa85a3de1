"""The result of a check of a local log: its anomalies with their places, and counts."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import SequenceGapError
from litelog.verify.findings import FoundAnomalies

if TYPE_CHECKING:
    from litelog.errors import CorruptCommitError


class LocalAnomalyKind(StrEnum):
    """The kinds of anomaly in the files of a log."""

    CHECKSUM = "checksum"
    """A commit's bytes are not those that were written."""
    LENGTH = "length"
    """A commit's length differs from what was written."""
    GAP = "gap"
    """Records are missing before the offset."""
    ORDER = "order"
    """A sequence or an epoch goes back, or a log segment has another one's name."""
    FORK = "fork"
    """Commits of another history of the log, or of another log."""
    TORN = "torn"
    """The log ends in bytes that are not a whole commit: a crash of its writer, or damage of the last commit. Its
    writer may still be writing them. Such bytes in a finished log segment are harmless if the format allows them."""
    MISSING = "missing"
    """The manifest lists a log segment that is not there."""
    FOREIGN = "foreign"
    """A file that is not part of the log. Harmless."""
    UNKNOWN = "unknown"
    """Any other damage."""


@dataclass(frozen=True, slots=True)
class LocalAnomaly:
    """One anomaly in the files of a log."""

    kind: LocalAnomalyKind
    file: str
    offset: int
    """Its beginning, in bytes from the log segment's start."""
    end: int | None
    """The offset at which the next good commit begins, or the log segment's size; None if all of its bytes are good."""
    sequence: int | None
    """The sequence of the first record after the last good commit; None if damage hides it, or the format has none."""
    what: str
    expected: str
    actual: str
    harmful: bool = True
    """Whether a reader may meet it."""

    @property
    def message(self) -> str:
        """A text for people: what was found, and what was expected."""
        return f"{self.what} is {self.actual}, expected {self.expected}"

    def as_json(self) -> dict[str, Any]:
        """The anomaly as JSON values, for programs."""
        return {
            "kind": self.kind,
            "file": self.file,
            "offset": self.offset,
            "end": self.end,
            "sequence": self.sequence,
            "expected": self.expected,
            "actual": self.actual,
            "message": self.message,
            "harmful": self.harmful,
        }


class LocalAnomalies(FoundAnomalies[LocalAnomaly]):
    """The anomalies of a local log."""

    def add(  # noqa: PLR0913 - the fields of an anomaly
        self,
        kind: LocalAnomalyKind,
        file: str,
        offset: int,
        what: str,
        expected: object,
        actual: object,
        *,
        end: int | None = None,
        sequence: int | None = None,
        harmful: bool = True,
    ) -> None:
        """Add an anomaly. The arguments are the fields of LocalAnomaly."""
        self.take(LocalAnomaly(kind, file, offset, end, sequence, what, str(expected), str(actual), harmful))


@dataclass(frozen=True, slots=True)
class LocalReport:
    """The result of a check of a local log."""

    log: str
    """The log's folder."""
    format: str
    segments: int
    bytes: int
    commits: int
    records: int
    first: int | None
    next: int | None
    """The sequence after the last good commit; None if the log has none."""
    anomalies: tuple[LocalAnomaly, ...]
    """In the order of the log. At most MAX_KEPT; ``counts`` counts all."""
    counts: dict[str, int]
    """Anomalies by kind."""
    harmful: int
    """The number of anomalies that a reader may meet."""
    failures: tuple[str, ...]
    """Log segments that could not be read."""
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values, for programs."""
        return {
            "log": self.log,
            "format": self.format,
            "log_segments": self.segments,
            "log_bytes": self.bytes,
            "commits": self.commits,
            "records": self.records,
            "first": self.first,
            "next": self.next,
            "anomalies": [each.as_json() for each in self.anomalies],
            "anomaly_counts": self.counts,
            "harmful_count": self.harmful,
            "unreadable": self.failures,
            "unreadable_count": len(self.failures),
            "seconds": self.seconds,
        }


def kind_of(error: CorruptCommitError | SequenceGapError) -> LocalAnomalyKind:
    """The kind of anomaly that a scan raised."""
    if isinstance(error, SequenceGapError):
        return LocalAnomalyKind.GAP if error.actual > error.expected else LocalAnomalyKind.ORDER
    return next((kind for words, kind in _KINDS if error.what.startswith(words)), LocalAnomalyKind.UNKNOWN)


_KINDS = (
    (("checksum",), LocalAnomalyKind.CHECKSUM),
    (("length", "bytes "), LocalAnomalyKind.LENGTH),
    (("sequence", "first sequence", "first transaction", "epoch"), LocalAnomalyKind.ORDER),
    (("log id", "forked log"), LocalAnomalyKind.FORK),
)
"""Beginnings of a CorruptCommitError's ``what``, and the kind of anomaly for each."""
