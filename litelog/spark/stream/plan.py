"""Plans the tasks of a stream's batch: turns the steps between two offsets into partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.objects.claim import open_claimed_format
from litelog.spark.options import Range
from litelog.spark.scan.packing import Item, SealedItem, WalItem
from litelog.spark.scan.partitions import COMPRESSION_RATIO, SealedPiece
from litelog.spark.scan.planning import plan_log
from litelog.spark.scan.task import open_log_format
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation, Position
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.inputs import ScanInput
    from litelog.spark.scan.partitions import PlannedLog
    from litelog.spark.stream.steps import LogOffset, StreamStep


def step_items(
    place: ScanInput,
    options: ReadOptions,
    claims: Mapping[Generation, Claim],
    start: LogOffset,
    steps: Sequence[StreamStep],
) -> list[Item]:
    """The items to read from one log, in order, for the steps that begin at ``start``."""
    items: list[Item] = []
    log: PlannedLog | None = None
    first = start.sequence
    for step in steps:
        if step.is_move:
            log, first = None, None if step.renumbers else first
            continue
        if log is None:
            claim = claims[step.start.generation]
            log_format = open_claimed_format(claim, lambda name: open_log_format(name, options.pattern))
            log = plan_log(place, options, log_format, claim, Range(first=first))
        if step.entry is not None:
            items += _sealed_item(log, step)
        else:
            items.append(_wal_item(log, step))
    return items


def until(steps: Sequence[StreamStep], stop: Position) -> Iterator[StreamStep]:
    """``steps`` up to ``stop``, which may lie inside the last one."""
    for step in steps:
        if step.start >= stop:
            return
        stop = step.carry(stop)
        yield step if step.is_move or step.stop <= stop else step.until(stop)


def _sealed_item(log: PlannedLog, step: StreamStep) -> Iterator[SealedItem]:
    entry = step.entry
    assert entry is not None
    stop = entry.length if step.stop.index > step.start.index else step.stop.offset
    whole = step.start.offset == 0 and stop == entry.length
    if whole or step.start.offset < stop:
        follows = step.follows if step.start.offset == 0 else None
        yield SealedItem(log, SealedPiece(entry, step.start.offset, stop, follows, exact=not whole))


def _wal_item(log: PlannedLog, step: StreamStep) -> WalItem:
    segment = step.segment
    assert segment is not None
    return WalItem(
        log,
        WalSegmentInfo(segment, max(1, step.raw // COMPRESSION_RATIO)),
        step.raw,
        step.link,
        step.before,
        step.stop,
        starts_log=False,
        start=step.start if step.start != segment else None,
    )
