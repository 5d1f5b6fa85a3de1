"""Values: what a repair does to each damaged place of a log, and to each file."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from litelog.repair.histories import History
    from litelog.verify.local_report import LocalAnomalyKind, LocalReport


class RepairMethod(StrEnum):
    """The action for one damaged place."""

    REPLACE = "replace"
    """The bytes of the place are taken from a replica."""
    CREATE = "create"
    """A missing log segment is taken from a replica."""
    CUT = "cut"
    """A torn tail is cut off."""
    REMOVE = "remove"
    """A log segment after the place at which a person has the log cut off is moved to the backup."""
    LEAVE = "leave"
    """Nothing: ``reason`` says why."""


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Bytes [start, stop) of a log segment, and their source."""

    start: int
    stop: int
    history: History | None
    """The replica's history that holds them; None if they are the log segment's own."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The new content of one log segment."""

    name: str
    spans: tuple[FileSpan, ...]
    """In order, without a hole."""
    exists: bool
    """Whether the log has the file, so that it is backed up."""

    @property
    def size(self) -> int:
        """The size of the new file in bytes."""
        return self.spans[-1].stop if self.spans else 0


@dataclass(frozen=True, slots=True)
class PlacePlan:
    """The action for one damaged place."""

    kind: LocalAnomalyKind
    file: str
    """The log segment that is changed; for LEAVE, the one with the anomaly."""
    offset: int
    end: int | None
    """The bytes [offset, end) that are replaced, made or cut off; None if that is unknown."""
    method: RepairMethod
    replica: str | None = None
    """The URL of the replica that supplies the bytes."""
    generation: str | None = None
    """The generation there."""
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """The place as JSON values, for programs."""
        return {
            "kind": self.kind,
            "file": self.file,
            "offset": self.offset,
            "end": self.end,
            "method": self.method,
            "replica": self.replica,
            "generation": self.generation,
            "reason": self.reason or None,
        }


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The changes that a repair makes to a log."""

    report: LocalReport
    """The check that found the damage."""
    places: tuple[PlacePlan, ...]
    """One or more for each harmful anomaly, in the order of the log. None for an anomaly that another place's repair
    settles."""
    files: tuple[FilePlan, ...]
    """The log segments that are written, in the order of the log."""
    removed: tuple[str, ...]
    """The log segments that are moved to the backup, in the order of the log."""
    skipped: tuple[tuple[str, str], ...]
    """The replicas that could not be read: the URL, and the reason."""

    @property
    def left(self) -> int:
        """How many places stay damaged."""
        return sum(place.method is RepairMethod.LEAVE for place in self.places) + len(self.report.failures)


@dataclass(frozen=True, slots=True)
class RepairResult:
    """A plan, and what became of it."""

    plan: RepairPlan
    carried_out: bool
    """Whether the plan was carried out."""
    backup: str | None
    """The folder with the replaced files; None if none was replaced."""
    after: LocalReport | None
    """The check of the repaired log; None if nothing was changed."""
    seconds: float

    @property
    def left(self) -> int:
        """How many anomalies are left, or would be left by the plan."""
        if self.after is None:
            return self.plan.left
        return self.after.harmful + len(self.after.failures)

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values, for programs."""
        report = self.plan.report
        return {
            "log": report.log,
            "format": report.format,
            "harmful_count": report.harmful,
            "carried_out": self.carried_out,
            "places": [place.as_json() for place in self.plan.places],
            "files": [{"file": each.name, "log_bytes": each.size} for each in self.plan.files],
            "backup": self.backup,
            "left_count": self.left,
            "skipped": [{"replica": url, "reason": reason} for url, reason in self.plan.skipped],
            "seconds": self.seconds,
        }
