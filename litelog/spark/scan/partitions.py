"""What a task gets: the pieces of logs that it reads, and all that it must know of what lies before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from litelog.objects.position import Generation, Position
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Mapping

    from litelog.objects.claim import Claim
    from litelog.reading.wal_chain import Link
    from litelog.spark.options import Mode, Range


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """A log that is read. Its repr shows no place, whose URL may hold a secret, and no option of a store."""

    name: str
    """What its rows say in the column ``log``."""
    url: str = field(repr=False)
    store: Mapping[str, str] = field(repr=False)
    format: str
    pattern: str | None
    folder: str | None
    """Where a log in a local folder lies; None for a replica."""
    claim: Claim | None
    """Of the generation that is read; None for the folder of a log."""
    range: Range
    mode: Mode
    fail_on_data_loss: bool

    @property
    def generation(self) -> Generation:
        """The generation that is read of a replica."""
        assert self.claim is not None
        return Generation(self.claim.generation)


@dataclass(frozen=True, slots=True)
class SealedPiece:
    """A sealed segment, or what of it lies in bytes [start, stop) of the log segment: the runs of frames that start
    there, or, where it is ``exact``, the records."""

    entry: SnapshotEntry
    start: int
    stop: int
    follows: int | None
    """The sequence behind the log segment before it; None where that is not known."""
    exact: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the log segment is left to other tasks."""
        return self.start == 0 and self.stop >= self.entry.length

    def __reduce__(self) -> tuple[object, ...]:
        """As plain values: a plan may hold a hundred thousand, and what a dataclass gives is slow to pickle."""
        return _make_sealed_piece, (*_entry_values(self.entry), self.start, self.stop, self.follows, self.exact)


_entry_values = attrgetter(*SnapshotEntry.__slots__)


def _make_sealed_piece(*values: Any) -> SealedPiece:
    return SealedPiece(SnapshotEntry(*values[:-4]), *values[-4:])


@dataclass(frozen=True, slots=True)
class WalPiece:
    """WAL segments that lie one behind the other, as columns of the same length."""

    indexes: array[int]
    offsets: array[int]
    sizes: array[int]
    """Bytes of the objects."""
    link: Link | None
    """Where the chain stands before the first one; None: ``before`` tells."""
    before: Position | None
    """The WAL segment before the first one, which is read to continue the chain; None: ``link`` tells."""
    stop: Position | None
    """The WAL segment behind the last one, which is another task's; None: it is the end."""
    starts_log: bool
    """Whether nothing that is known of lies before it."""
    start: Position | None = None
    """Where in the first one it begins; None: with its first byte."""

    def __len__(self) -> int:
        return len(self.indexes)

    def infos(self, name: Generation) -> Iterator[WalSegmentInfo]:
        """The WAL segments, in order, in the generation of that name."""
        for index, offset, size in zip(self.indexes, self.offsets, self.sizes, strict=True):
            yield WalSegmentInfo(Position(name, index, offset), size)


@dataclass(frozen=True, slots=True)
class LocalPiece:
    """Records of a log in a local folder: those with sequences [first, stop). None: no bound."""

    first: int | None
    stop: int | None


Piece = SealedPiece | WalPiece | LocalPiece


@dataclass(frozen=True, slots=True)
class Part:
    """Pieces of one log, one behind the other."""

    log: PlannedLog
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """What one task reads."""

    parts: tuple[Part, ...] = field(repr=False)
    raw_bytes: int
    """Of the log, uncompressed, as far as names and snapshots tell."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is read, in order: by log, and in each by index and offset."""

    partitions: tuple[Partition, ...]
