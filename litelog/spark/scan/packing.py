"""Packing what is to be read into partitions: few, of about the same size, each of it contiguous."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.spark.scan.partitions import LocalPiece, Part, Partition, SealedPiece, WalPiece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.objects.position import Position
    from litelog.reading.wal_chain import Link
    from litelog.spark.scan.partitions import Piece, PlannedLog
    from litelog.stores.replica_client import WalSegmentInfo

OPEN_COST_BYTES = 256 << 10
"""What opening an object costs, in bytes that are read in that time: so that many small ones are not one task's."""

MIN_PARTITION_BYTES = 32 << 20
"""Smaller ones only where they are asked for: to begin and end a task costs as much as to read a fifth of this."""

USUAL_SLOTS = 8
"""How many tasks are taken to run at a time where nobody says so: Spark tells a data source nothing of its processors.
What divides by 8 leaves none of 2 or 4 idle either, while the last ones are read."""


@dataclass(frozen=True, slots=True)
class SealedItem:
    """A sealed segment: the one kind of which a task may read a part."""

    log: PlannedLog
    piece: SealedPiece

    @property
    def raw(self) -> int:
        return self.piece.stop - self.piece.start


@dataclass(frozen=True, slots=True)
class WalItem:
    """A WAL segment; ``raw``: what it holds of the log, about. All else as in WalPiece."""

    log: PlannedLog
    info: WalSegmentInfo
    raw: int
    link: Link | None
    before: Position | None
    behind: Position | None
    starts_log: bool
    start: Position | None = None


@dataclass(frozen=True, slots=True)
class LocalItem:
    """A log segment in a local folder."""

    log: PlannedLog
    piece: LocalPiece
    raw: int


Item = SealedItem | WalItem | LocalItem


def pack(items: Sequence[Item], max_bytes: int, count: int | None, slots: int | None = None) -> tuple[Partition, ...]:
    """The partitions, none empty: ``count`` of them where there is enough to divide, or as ``max_bytes`` has it.

    An item costs what it holds of the log, uncompressed, and OPEN_COST_BYTES. One that is larger than a partition is
    divided, if it can be. ``slots``: how many tasks run at a time; None where that is not known.
    """
    total = sum(item.raw + OPEN_COST_BYTES for item in items)
    if not total:
        return ()
    bins = count or _whole_waves(total, max(max_bytes, OPEN_COST_BYTES), slots or USUAL_SLOTS)
    target = -(-total // bins)
    packed: list[list[Item]] = [[] for _ in range(bins)]
    held = [0] * bins
    at = 0
    for item in items:
        cost = item.raw + OPEN_COST_BYTES
        for number, share in _divide(item, at, cost, target):
            packed[min(number, bins - 1)].append(share)
            held[min(number, bins - 1)] += _size(share)
        at += cost
    return tuple(Partition(_parts(some), size) for some, size in zip(packed, held, strict=True) if some)


def _whole_waves(total: int, max_bytes: int, slots: int) -> int:
    """How many partitions of at most ``max_bytes``: as few as keep all slots busy to the end."""
    fewest = -(-total // max_bytes)
    return min(-(-fewest // slots) * slots, max(fewest, total // MIN_PARTITION_BYTES))


def _divide(item: Item, at: int, cost: int, target: int) -> Iterator[tuple[int, Item]]:
    """(partition, what it gets of the item, which begins behind ``at`` bytes of others)."""
    if not isinstance(item, SealedItem) or cost <= target or (item.piece.exact and item.log.format == "raw"):
        yield (at + cost // 2) // target, item
        return
    piece, length = item.piece, item.raw
    start = piece.start
    for number in range(at // target, (at + cost - 1) // target + 1):
        stop = min(piece.stop, piece.start + ((number + 1) * target - at) * length // cost)
        if stop > start:
            yield number, SealedItem(item.log, replace(piece, start=start, stop=stop))
        start = stop


def _size(item: Item) -> int:
    return item.raw


def _parts(items: Sequence[Item]) -> tuple[Part, ...]:
    return tuple(Part(some[0].log, tuple(_pieces(some))) for some in _by_log(items))


def _by_log(items: Sequence[Item]) -> Iterator[list[Item]]:
    for _, some in groupby(items, key=lambda item: id(item.log)):
        yield list(some)


def _pieces(items: Sequence[Item]) -> Iterator[Piece]:
    for kind, some in groupby(items, key=type):
        if kind is WalItem:
            yield _wal_piece([item for item in some if isinstance(item, WalItem)])
        elif kind is LocalItem:
            pieces = [item.piece for item in some if isinstance(item, LocalItem)]
            yield LocalPiece(pieces[0].first, pieces[-1].stop)
        else:
            yield from (item.piece for item in some if isinstance(item, SealedItem))


def _wal_piece(items: Sequence[WalItem]) -> WalPiece:
    places = [item.info.position for item in items]
    return WalPiece(
        indexes=array("Q", [place.index for place in places]),
        offsets=array("Q", [place.offset for place in places]),
        sizes=array("Q", [item.info.size for item in items]),
        link=items[0].link,
        before=items[0].before,
        stop=items[-1].behind,
        starts_log=items[0].starts_log,
        start=items[0].start,
    )
