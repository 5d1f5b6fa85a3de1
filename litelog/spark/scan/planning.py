"""Plans a batch in the driver: decides which pieces of which logs each task reads. Reads no log records.

A replica costs four requests: list the claims, list the names, read the newest claim and the newest snapshot. A log in
a local folder is split between its log segments if their names show which records they hold.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.errors import (
    ConfigError,
    EmptyLogError,
    LitelogError,
    NoReplicaError,
    NothingToRestoreError,
    ReplicaGapError,
    TruncatedError,
)
from litelog.events import fields
from litelog.formats.capabilities import (
    extra_columns,
    first_sequence,
    has_kafka_schema,
    is_divisible,
    was_truncated,
)
from litelog.formats.committed_reading import CommittedReading
from litelog.log.reader import LogReader
from litelog.log.source import SegmentFolder
from litelog.objects.claim import open_claimed_format
from litelog.objects.snapshot_entries import EntryColumns
from litelog.reading.contents import list_pieces
from litelog.reading.generations import read_claim
from litelog.reading.latest import find_claim, open_latest
from litelog.reading.wal_names import WalNames
from litelog.spark.options import RecordSchema
from litelog.spark.scan.inputs import find_places, log_format_of
from litelog.spark.scan.packing import Item, LocalItem, ReplicaItem, SealedItem, WalItem, pack
from litelog.spark.scan.partitions import LocalPiece, Plan, PlannedLog, SealedPiece
from litelog.spark.scan.record_runs import RecordRun
from litelog.spark.scan.runs import MOST_RAW, Run, SealedRun, WalRun
from litelog.spark.scan.schema import FORMAT_TYPES, kafka_columns, log_columns
from litelog.spark.scan.task import open_client, open_log_format
from litelog.stores.registry import redact
from litelog.system.clock import SystemClock
from litelog.system.memory import without_collections

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.contents import GenerationContents
    from litelog.spark.options import Range, ReadOptions
    from litelog.spark.scan.inputs import ScanInput
    from litelog.spark.scan.partitions import Partition
    from litelog.spark.scan.schema import Column
    from litelog.spark.scan.task import Task

_logger = logging.getLogger(__name__)


def plan(options: ReadOptions, slots: int | None = None) -> Plan:
    """Plan a batch, so that the tasks together read each record once, in the order of their partitions.

    Args:
        options: what to read.
        slots: how many tasks run at a time; None if that is not known.

    Returns:
        The plan, with one partition for each task.

    Raises:
        NothingToRestoreError: a log does not exist. A log that holds nothing yet has no rows.
        TruncatedError: the start lies before the first record, and ``failOnDataLoss`` is set.
        ReplicaGapError: names show a missing object, and ``failOnDataLoss`` is set.
        CorruptObjectError: an object that planning reads is damaged.
        StoreError: a request to the store failed.
        ConfigError: an option does not fit.
    """
    with without_collections():
        items = _plan_places(find_places(options), options)
        if options.committed:
            return Plan(tuple(_one_for_each_log(items, options.max_partition_bytes)))
        count, least = options.num_partitions, options.min_partitions
        return Plan(pack(items, options.max_partition_bytes, count, slots, least=least))


def _one_for_each_log(items: Sequence[Item | Run], max_bytes: int) -> Iterator[Partition]:
    """Yield a partition for each log: only later records of a log show whether a record was committed."""
    for _, some in groupby(items, key=lambda item: id(item.log)):
        yield from pack(list(some), max_bytes, 1)


def _plan_places(places: Sequence[ScanInput], options: ReadOptions) -> list[Item | Run]:
    items: list[Item | Run] = []
    missing = 0
    for place in places:
        try:
            items += _plan_place(place, options)
        except NothingToRestoreError as error:
            is_there = isinstance(error, EmptyLogError)
            missing += not is_there
            if is_there and not place.is_matched:
                continue
            if not is_there and (not place.is_matched or options.generation is not None or missing == len(places)):
                raise
            message = "%s: %s; skipped"
            _logger.warning(message, place.name, error, extra=fields("nothing-yet", log=place.name))
    return items


def _plan_place(place: ScanInput, options: ReadOptions) -> Sequence[Item | Run]:
    """The items to read from one log, in order."""
    if place.folder is not None:
        log_format = log_format_of(options)
        return local_items(plan_log(place, options, log_format, None), place.folder, log_format)
    pieces = find_pieces(place, options)
    return _replica_runs(place, options, pieces)


def stated_columns(options: ReadOptions) -> tuple[Column, ...]:
    """All columns of the logs that the options name. Costs a listing and a GET for each replica."""
    places = find_places(options)
    remote = all(place.folder is None for place in places)
    formats = [_format_of(place, options) for place in places]
    if options.record_schema is not RecordSchema.LOG and all(map(has_kafka_schema, formats)):
        return kafka_columns(options)
    if options.record_schema is RecordSchema.KAFKA:
        raise ConfigError("recordSchema=kafka needs logs of the format kafka: leave it out")
    timed = all(log_format.has_timestamps for log_format in formats)
    own = [name for name in FORMAT_TYPES if all(name in extra_columns(log_format) for log_format in formats)]
    return log_columns(options, has_timestamps=timed, has_generations=remote, own=own)


def has_timestamps(options: ReadOptions, places: Sequence[ScanInput]) -> bool:
    """Whether all records of the logs have timestamps, by their formats. One listing and one GET for each replica."""
    return all(_format_of(place, options).has_timestamps for place in places)


def find_pieces(place: ScanInput, options: ReadOptions) -> GenerationContents:
    """The contents of the requested generation. Four requests for a replica with one generation."""
    client = open_client(place.url, options.store, threading.Event())
    if options.generation is None:
        return open_latest(client, keep=None)
    return list_pieces(client, find_claim(client, options.generation))


def replica_items(place: ScanInput, options: ReadOptions, pieces: GenerationContents) -> list[ReplicaItem]:
    """The items to read from a generation, in order, except those that are known to hold no wanted record."""
    items: list[ReplicaItem] = []
    for part in _replica_runs(place, options, pieces):
        if isinstance(part, SealedRun):
            items += (SealedItem(part.log, piece) for piece in part.pieces())
        elif isinstance(part, WalRun):
            items += _wal_items(part)
        else:
            items.append(part)
    return items


def _replica_runs(place: ScanInput, options: ReadOptions, pieces: GenerationContents) -> list[ReplicaItem | Run]:
    base = pieces.base
    log_format = _held_format(place, base.claim, options)
    log = plan_log(place, options, log_format, base.claim)
    if pieces.gap is not None:
        _lose(log, pieces.gap)
    truncated = base.was_truncated(log_format)
    if truncated:
        _check_start(log, base.entries)
    items = _sealed_items(log, log_format, base.entries)
    if not pieces.wal or (base.snapshot is None and pieces.gap is None):
        return items
    link = None if base.snapshot is None else base.link()
    if link is not None and log.range.stop is not None and link.next is not None and link.next >= log.range.stop:
        return items
    names = pieces.wal if isinstance(pieces.wal, WalNames) else WalNames(base.claim.generation, pieces.wal)
    starts = truncated and not any(entry.records for entry in base.entries)
    return [*items, WalRun.of(log, names, link, starts_log=starts)]


def _sealed_items(log: PlannedLog, log_format: LogFormat, entries: Sequence[SnapshotEntry]) -> list[ReplicaItem | Run]:
    wanted = log.range
    if isinstance(entries, EntryColumns) and not wanted.has_bounds and not wanted.has_times:
        run = SealedRun.of(log, entries)
        if int(run.raws.max(initial=0)) <= MOST_RAW:
            return [run]
    return [SealedItem(log, piece) for piece in _sealed(log, log_format, entries)]


def _wal_items(run: WalRun) -> Iterator[WalItem]:
    names = run.names
    for number, (info, raw) in enumerate(zip(names, run.raws.tolist(), strict=True)):
        before = names[number - 1].position if number else None
        behind = names[number + 1].position if number + 1 < len(names) else None
        starts = run.starts_log and not number
        yield WalItem(run.log, info, raw, None if number else run.link, before, behind, starts)


def plan_log(
    place: ScanInput, options: ReadOptions, log_format: LogFormat, claim: Claim | None, wanted: Range | None = None
) -> PlannedLog:
    """A log to read: the generation of ``claim``, or the folder of a log.

    ``wanted``: by default the options' range, within the log's own bounds.
    """
    within = options.range.within(place.bounds) if wanted is None else wanted
    if options.committed:
        CommittedReading(lambda _: log_format).open_format(log_format.name)  # ConfigError without transactions
    return PlannedLog(
        name=place.name,
        url=place.url,
        store=options.store,
        format=log_format.name,
        pattern=options.pattern,
        divisible=is_divisible(log_format),
        folder=place.folder,
        claim=claim,
        range=replace(within, stop=None, since=None, until=None) if options.committed else within,
        mode=options.mode,
        fail_on_data_loss=options.fail_on_data_loss,
        committed=within if options.committed else None,
    )


def _sealed(log: PlannedLog, log_format: LogFormat, entries: Sequence[SnapshotEntry]) -> Iterator[SealedPiece]:
    wanted, follows = log.range, None
    for entry in entries:
        held = wanted.overlaps(entry.first, entry.next) if entry.records else not wanted.has_bounds
        if held and wanted.has_times:
            stamped = (entry.lowest, entry.highest) if log_format.has_timestamps else _shipped(entry)
            held = wanted.overlaps_times(*stamped)
        if held:
            yield SealedPiece(entry, 0, entry.length, follows)
        follows = follows if entry.next is None else entry.next


def _shipped(entry: SnapshotEntry) -> tuple[int | None, int | None]:
    """Range of times when the log segment was shipped. None: bound not known."""
    return entry.shipped_first if entry.exact else None, entry.shipped_last


def _check_start(log: PlannedLog, entries: Sequence[SnapshotEntry]) -> None:
    first = next((entry.first for entry in entries if entry.first is not None), None)
    try:
        _check_first(log.range.start, first)
    except TruncatedError as error:
        _lose(log, error)


def _check_first(asked: int | None, first: int | None) -> None:
    if first is not None and asked is not None and asked < first:
        raise TruncatedError(asked, first)


def _lose(log: PlannedLog, error: LitelogError) -> None:
    """Raise an error that reports data loss; only log it if ``fail_on_data_loss`` is off."""
    if log.fail_on_data_loss or not isinstance(error, ReplicaGapError | TruncatedError):
        raise error
    message = "%s: %s; skipped because of failOnDataLoss=false"
    _logger.warning(message, log.name, error, extra=fields("data-lost", log=log.name))


def _format_of(place: ScanInput, options: ReadOptions) -> LogFormat:
    if place.folder is not None:
        return log_format_of(options)
    client = open_client(place.url, options.store, threading.Event())
    names = client.claims()
    if not names:
        raise NoReplicaError(client.url)
    return _held_format(place, read_claim(client, names[-1]), options)


def _held_format(place: ScanInput, claim: Claim, options: ReadOptions) -> LogFormat:
    if place.format not in (None, claim.format):
        raise ConfigError(
            f"{redact(place.url)}: is a replica, and its log has format {claim.format}: leave out format={place.format}"
        )
    return open_claimed_format(claim, lambda name: open_log_format(name, options.pattern))


def local_items(log: PlannedLog, folder: str, log_format: LogFormat) -> list[Item]:
    """The log segments that hold wanted records, up to the current end of the log.

    Returns a single item if names do not show sequences: these are counted from the first log segment on.
    """
    if log.range.has_times and not log_format.has_timestamps:
        raise ConfigError(f"{folder}: the format {log_format.name} has no timestamps to start or end at")
    names = SegmentFolder(folder, log_format, SystemClock(), reports=False).all()
    sizes = {name: _size(os.path.join(folder, name)) for name in names}
    wanted = log.range
    if names and first_sequence(log_format, names[0]) is None:
        return [LocalItem(log, LocalPiece(folder, wanted.first, wanted.stop), sum(sizes.values()))]
    end = _find_end(folder, log_format)
    if end is None:
        return []
    firsts = [first_sequence(log_format, name) or 0 for name in names]
    items: list[Item] = []
    if was_truncated(log_format, os.listdir(folder)) and log.fail_on_data_loss:
        _check_first(wanted.start, firsts[0])
    for name, first, behind in zip(names, firsts, [*firsts[1:], end], strict=True):
        begin, stop = max(first, wanted.first or 0), min(behind, end, end if wanted.stop is None else wanted.stop)
        if begin < stop:
            items.append(LocalItem(log, LocalPiece(folder, begin, stop), sizes[name]))
    return items


def _find_end(folder: str, log_format: LogFormat) -> int | None:
    """The sequence after the last record; None if there is none."""
    with LogReader(folder, log_format, start="end") as reader:
        while reader.read() is not None:
            pass  # appended meanwhile
        return reader.next_sequence


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def read_local(task: Task, piece: LocalPiece) -> Iterator[RecordRun]:
    """The records of a piece. LogReader checks them, and raises the errors."""
    start = "earliest" if piece.first is None else piece.first
    with LogReader(piece.folder, task.format, start=start, end=piece.stop) as reader:
        for columns in reader.batches():
            yield RecordRun(columns, None, reader.read_from)
