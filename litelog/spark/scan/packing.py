"""Packs the items to read into a few contiguous partitions of about equal size."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.spark.scan.partitions import LocalPiece, LogPart, Partition, SealedPiece, WalPiece
from litelog.spark.scan.runs import LazyPieces, Run, SealedRun, WalRun, cut_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.objects.chain import ChainState
    from litelog.objects.position import Position
    from litelog.spark.scan.partitions import Piece, PlannedLog
    from litelog.stores.replica_client import WalSegmentInfo

OPEN_COST_BYTES = 256 << 10
"""The cost of opening an object, in bytes read in the same time. Keeps one task from getting many small objects."""

MIN_PARTITION_BYTES = 32 << 20
"""Smaller partitions are made only on request: starting and ending a task costs as much as reading a fifth of this."""

USUAL_SLOTS = 8
"""The assumed number of concurrent tasks if the caller does not know it: Spark does not tell a data source how many
processors it has. A multiple of 8 also keeps 2 or 4 processors busy to the end."""


@dataclass(frozen=True, slots=True)
class SealedItem:
    """A sealed segment, the only kind of object that several tasks may share."""

    log: PlannedLog
    piece: SealedPiece

    @property
    def raw(self) -> int:
        return self.piece.stop - self.piece.start


@dataclass(frozen=True, slots=True)
class WalItem:
    """A WAL segment. ``raw``: roughly how many bytes of the log it holds. The other fields are as in WalPiece."""

    log: PlannedLog
    info: WalSegmentInfo
    raw: int
    link: ChainState | None
    before: Position | None
    following: Position | None
    starts_log: bool
    start: Position | None = None


@dataclass(frozen=True, slots=True)
class LocalItem:
    """A log segment in a local folder."""

    log: PlannedLog
    piece: LocalPiece
    raw: int


ReplicaItem = SealedItem | WalItem
Item = ReplicaItem | LocalItem


def pack(
    items: Sequence[Item | Run], max_bytes: int, count: int | None, slots: int | None = None, *, least: int = 1
) -> tuple[Partition, ...]:
    """Pack items into non-empty partitions: ``count`` of them if there is enough to divide, else by ``max_bytes``.

    An item costs its uncompressed bytes of the log, plus OPEN_COST_BYTES. One larger than a partition is divided, if
    it can be. ``slots``: how many tasks run at a time; None if that is not known. ``least``: the fewest partitions
    if there is no ``count``.
    """
    costs = [_cost(item) for item in items]
    total = sum(costs)
    if not total:
        return ()
    bins = count or max(least, _whole_waves(total, max(max_bytes, OPEN_COST_BYTES), slots or USUAL_SLOTS))
    target = -(-total // bins)
    packed: list[list[Item | Run]] = [[] for _ in range(bins)]
    held = [0] * bins
    at = 0
    for item, cost in zip(items, costs, strict=True):
        for number, share in _divide(item, at, cost, target):
            packed[min(number, bins - 1)].append(share)
            held[min(number, bins - 1)] += _size(share)
        at += cost
    return tuple(Partition(_parts(some), size) for some, size in zip(packed, held, strict=True) if some)


def _cost(item: Item | Run) -> int:
    return _size(item) + OPEN_COST_BYTES * (len(item) if isinstance(item, Run) else 1)


def _whole_waves(total: int, max_bytes: int, slots: int) -> int:
    """The smallest number of partitions of at most ``max_bytes`` that keeps all slots busy to the end."""
    fewest = -(-total // max_bytes)
    return min(-(-fewest // slots) * slots, max(fewest, total // MIN_PARTITION_BYTES))


def _divide(item: Item | Run, at: int, cost: int, target: int) -> Iterator[tuple[int, Item | Run]]:
    """(partition, its share of the item). The item begins after ``at`` bytes of earlier ones."""
    if isinstance(item, Run):
        for number, start, part in cut_run(item, at, OPEN_COST_BYTES, target):
            if isinstance(part, SealedRun) and len(part) == 1:
                single = SealedItem(part.log, next(part.pieces()))
                yield from _divide(single, start, _cost(single), target)
            else:
                yield number, part
        return
    if not isinstance(item, SealedItem) or cost <= target or (item.piece.exact and item.log.divisible):
        yield (at + cost // 2) // target, item
        return
    piece, length = item.piece, item.raw
    start = piece.start
    for number in range(at // target, (at + cost - 1) // target + 1):
        stop = min(piece.stop, piece.start + ((number + 1) * target - at) * length // cost)
        if stop > start:
            yield number, SealedItem(item.log, replace(piece, start=start, stop=stop))
        start = stop


def _size(item: Item | Run) -> int:
    return int(item.raws.sum()) if isinstance(item, Run) else item.raw


def _parts(items: Sequence[Item | Run]) -> tuple[LogPart, ...]:
    return tuple(LogPart(some[0].log, _pieces(some)) for some in _by_log(items))


def _by_log(items: Sequence[Item | Run]) -> Iterator[list[Item | Run]]:
    for _, some in groupby(items, key=lambda item: id(item.log)):
        yield list(some)


def _pieces(items: Sequence[Item | Run]) -> Sequence[Piece]:
    parts: list[Run | tuple[Piece, ...]] = []
    for kind, some in groupby(items, key=type):
        if kind in (SealedRun, WalRun):
            parts += (item for item in some if isinstance(item, Run))
        elif kind is WalItem:
            parts.append((_wal_piece([item for item in some if isinstance(item, WalItem)]),))
        elif kind is LocalItem:
            pieces = [item.piece for item in some if isinstance(item, LocalItem)]
            parts.append((LocalPiece(pieces[0].folder, pieces[0].first, pieces[-1].stop),))
        else:
            parts.append(tuple(item.piece for item in some if isinstance(item, SealedItem)))
    return LazyPieces(parts)


def _wal_piece(items: Sequence[WalItem]) -> WalPiece:
    places = [item.info.position for item in items]
    return WalPiece(
        indexes=array("Q", [place.index for place in places]),
        offsets=array("Q", [place.offset for place in places]),
        sizes=array("Q", [item.info.size for item in items]),
        link=items[0].link,
        before=items[0].before,
        stop=items[-1].following,
        starts_log=items[0].starts_log,
        start=items[0].start,
    )
