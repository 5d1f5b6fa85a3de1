"""Values: the target of a restore, the plan for it, and the result for each object of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, CorruptObjectError, NothingToRestoreError
from litelog.units import format_count, format_iso

if TYPE_CHECKING:
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation, Position
    from litelog.objects.side_files import SideFile
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.contents import BaseSnapshot
    from litelog.restore.commit_writer import WrittenRun
    from litelog.stores.replica_client import WalSegmentInfo


@dataclass(frozen=True, slots=True)
class Target:
    """The requested extent of a restore: everything in the latest generation, unless a field restricts it. At most one
    bound."""

    generation: Generation | None = None
    """Restore this generation instead of the latest one."""
    index: int | None = None
    """Restore up to the end of this log segment, or to the end of its shipped part."""
    sequence: int | None = None
    """Restore the commits from the start on, and stop before the first one with a record above this sequence."""
    timestamp: int | None = None
    """Microseconds since 1970. Restore the commits from the start on, and stop before the first one with a later
    record. In a format without timestamps: all that is known to have been shipped by then. A time after the end means
    everything."""

    def __post_init__(self) -> None:
        bounds = [name for name in ("index", "sequence", "timestamp") if getattr(self, name) is not None]
        if len(bounds) > 1:
            raise ConfigError(f"a restore takes one bound, not {' and '.join(bounds)} at once")


class TooEarlyError(NothingToRestoreError):
    """A target precedes all that a generation holds."""

    def __init__(self, message: str, index: int, sequence: int | None) -> None:
        self.index = index
        """The index with which the generation begins."""
        self.sequence = sequence
        """The first sequence that it holds; None without records."""
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A log segment that a restore writes. ``size`` is in bytes, from its headers."""

    index: int
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class SealedSpan:
    """Bytes [start, stop) of a log segment that are read from its sealed segment."""

    entry: SnapshotEntry
    start: int
    """Above 0 if the bytes before come from WAL segments."""
    stop: int
    crc_before: int = 0
    """CRC-32C of [0, start), as those WAL segments state it."""

    @property
    def is_whole(self) -> bool:
        """Whether all of the log segment is read."""
        return self.start == 0 and self.stop == self.entry.length


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The objects that a restore reads, and its end."""

    replica: str
    claim: Claim
    pieces: tuple[WalSegmentInfo, ...]
    """The WAL segments to read, in order."""
    end: Position
    """The end of the restored log: after a commit of the last piece that holds any."""
    files: tuple[PlannedFile, ...]
    shipped: int
    """When the last planned object was shipped, in microseconds since 1970."""
    base: BaseSnapshot
    """The beginning of the WAL segments, and what they continue."""
    sealed: tuple[SealedSpan, ...] = ()
    """The parts of sealed segments to read, in the order of their indexes: those of the base, and those that a WAL
    segment stands for."""
    lost: tuple[CorruptObjectError, ...] = ()
    """Damage that the plan works around."""
    before: RestorePlan | None = None
    """The plan for the log segments before these, from the generation that this one continues."""

    @property
    def parts(self) -> tuple[RestorePlan, ...]:
        """This part and those before it, one for each generation, the oldest first."""
        return (*(() if self.before is None else self.before.parts), self)

    @property
    def all_files(self) -> tuple[PlannedFile, ...]:
        """The log segments of all parts, in order."""
        return tuple(file for part in self.parts for file in part.files)

    @property
    def side_files(self) -> tuple[SideFile, ...]:
        """The log's side files, in the order in which they are written, as of the plan's snapshot."""
        return () if self.base.snapshot is None else self.base.snapshot.side_files

    @property
    def size(self) -> int:
        """The restored bytes of all parts."""
        return sum(file.size for file in self.all_files)

    @property
    def objects(self) -> int:
        """The number of objects to read, of all parts."""
        return sum(len(part.sealed) + len(part.pieces) for part in self.parts)

    @property
    def object_bytes(self) -> int:
        """The most bytes that are read, of all parts."""
        sealed = sum(piece.entry.size for part in self.parts for piece in part.sealed)
        return sealed + sum(piece.size for part in self.parts for piece in part.pieces)

    def as_json(self) -> dict[str, object]:
        """The plan as JSON values, for programs."""
        return {
            "replica": self.replica,
            "generation": self.claim.generation,
            "log_id": self.claim.log,
            "format": self.claim.format,
            "owner": self.claim.owner,
            "position": str(self.end),
            "last_shipped": self.shipped,
            "log_bytes": self.size,
            "stored_bytes": self.object_bytes,
            "sealed_pieces": [
                {
                    "object": piece.entry.key,
                    "stored_bytes": piece.entry.size,
                    "start_offset": piece.start,
                    "end_offset": piece.stop,
                }
                for piece in self.sealed
            ],
            "wal_pieces": [{"position": str(piece.position), "stored_bytes": piece.size} for piece in self.pieces],
            "files": [{"index": each.index, "file": each.name, "log_bytes": each.size} for each in self.all_files],
            "side_files": [each.name for each in self.side_files],
            "lost_objects": [{"object": error.key, "reason": str(error)} for part in self.parts for error in part.lost],
            "before": None if self.before is None else self.before.as_json(),
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The plan as lines of text, for people."""
        parts = self.parts
        sealed, wal = (sum(map(len, pieces)) for pieces in zip(*((p.sealed, p.pieces) for p in parts), strict=True))
        counts = (format_count(sealed, "sealed segment"), format_count(wal, "WAL segment"))
        kinds = f" ({', '.join(counts)})" if sealed else ""
        older = [part.claim.generation for part in parts[:-1]]
        return [
            f"{self.replica}: generation {self.claim.generation}, log {self.claim.log}, format {self.claim.format}",
            f"up to {self.end}, shipped {format_iso(self.shipped)}",
            *([f"the part before it from generation {', '.join(older)}"] if older else []),
            f"{format_count(self.size, 'byte')} in {format_count(len(self.all_files), 'file')}",
            f"from {format_count(self.object_bytes, 'byte')} in {format_count(self.objects, 'object')}{kinds}",
            *(f"  {file.name}  {file.size:,}" for file in self.all_files),
            *(f"around {error}" for part in parts for error in part.lost),
        ]


@dataclass(frozen=True, slots=True)
class RepairedRange:
    """An object that the chosen replica lost, and the source of its bytes."""

    key: str
    """The object's key or position; of the first object if several are missing."""
    reason: str
    file: str | None = None
    """The log segment; None if the object held no bytes of the log."""
    start: int = 0
    """The bytes [start, end) of the log segment."""
    end: int = 0
    replica: str | None = None
    """The URL of the replica that had them; None if no bytes were needed."""
    generation: str | None = None
    """The generation in that replica."""

    def as_json(self) -> dict[str, object]:
        """The object as JSON values, for programs."""
        return {
            "object": self.key,
            "reason": self.reason,
            "file": self.file,
            "start_offset": self.start,
            "end_offset": self.end,
            "replica": self.replica,
            "generation": self.generation,
        }


@dataclass(frozen=True, slots=True)
class RestoredObject:
    """The result for one object of the plan, and for objects before it that no listing showed."""

    parts: tuple[WrittenRun, ...]
    repaired: tuple[RepairedRange, ...] = ()
    objects: int = 0
    """The number of objects of the chosen replica that were read."""
