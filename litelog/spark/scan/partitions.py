"""The plan of a task: the pieces of logs that it reads, and facts about the data before them."""

from __future__ import annotations

from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.objects.position import Generation, Position
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.objects.chain import ChainState
    from litelog.objects.claim import Claim
    from litelog.spark.options import Mode, Range

COMPRESSION_RATIO = 3
"""Assumed ratio of a WAL segment's content to its object's size, where names do not show the content's size."""


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """A log to read. The repr leaves out its URL, which may hold a secret, and options of its store."""

    name: str
    """The value of the column ``log``."""
    url: str = field(repr=False)
    store: Mapping[str, str] = field(repr=False)
    format: str
    pattern: str | None
    divisible: bool
    """Whether sequences count bytes, so that records may be cut anywhere."""
    folder: str | None
    """The folder of a local log; None for a replica."""
    claim: Claim | None
    """The claim of the generation to read; None for the folder of a log."""
    range: Range
    mode: Mode
    fail_on_data_loss: bool
    committed: Range | None = None
    """The records to yield, without those of aborted and open transactions. Then ``range`` has no end, as later records
    decide about earlier ones. None: all records of ``range`` are yielded."""

    @property
    def replica_claim(self) -> Claim:
        """The claim of the generation that is read. Only for replicas: a log in a folder has none."""
        assert self.claim is not None
        return self.claim

    @property
    def generation(self) -> Generation:
        """The generation of the replica that is read."""
        return self.replica_claim.generation


@dataclass(frozen=True, slots=True)
class SealedPiece:
    """A sealed segment, or its part in bytes [start, stop) of the log segment.

    The part consists of the runs of frames that start there or, if it is ``exact``, of the records there.
    """

    entry: SnapshotEntry
    start: int
    stop: int
    follows: int | None
    """The sequence after the previous log segment; None if that is not known."""
    exact: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether no other task reads any of the log segment."""
        return self.start == 0 and self.stop >= self.entry.length

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as plain values. A plan may hold a hundred thousand pieces, and dataclasses are slow to pickle."""
        return make_sealed_piece, (*_entry_values(self.entry), self.start, self.stop, self.follows, self.exact)


_entry_values = attrgetter(*SnapshotEntry.__slots__)


def make_sealed_piece(*values: Any) -> SealedPiece:
    """The piece of these values, in the order in which it is pickled."""
    return SealedPiece(SnapshotEntry(*values[:-4]), *values[-4:])


@dataclass(frozen=True, slots=True)
class WalPiece:
    """Contiguous WAL segments, as columns of equal length."""

    indexes: array[int]
    offsets: array[int]
    sizes: array[int]
    """Sizes of the objects in bytes."""
    link: ChainState | None
    """State of the chain before the first one. None: ``before`` is set."""
    before: Position | None
    """The WAL segment before the first one, to be read for the state of the chain. None: ``link`` is set."""
    stop: Position | None
    """The WAL segment after the last one, which another task reads. None: there is none."""
    starts_log: bool
    """Whether a start before its first record is a loss: nothing known comes before it, and records may have been
    removed there."""
    start: Position | None = None
    """The offset in the first one at which the piece begins. None: its first byte."""

    def __len__(self) -> int:
        return len(self.indexes)

    def infos(self, name: Generation) -> Iterator[WalSegmentInfo]:
        """The WAL segments in order, as objects of the generation ``name``."""
        for index, offset, size in zip(self.indexes, self.offsets, self.sizes, strict=True):
            yield WalSegmentInfo(Position(name, index, offset), size)


@dataclass(frozen=True, slots=True)
class LocalPiece:
    """Records of a log in a local folder, with sequences [first, stop). None: no bound."""

    folder: str
    first: int | None
    stop: int | None


Piece = SealedPiece | WalPiece | LocalPiece


@dataclass(frozen=True, slots=True)
class LogPart:
    """Pieces of one log, in order."""

    log: PlannedLog
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Partition:
    """The data that one task reads. Its repr, which Spark may log, shows neither places nor options."""

    parts: tuple[LogPart, ...] = field(repr=False)
    raw_bytes: int
    """Uncompressed bytes of the log, estimated from names and snapshots."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The partitions of a batch, ordered by log, index and offset."""

    partitions: tuple[Partition, ...]
