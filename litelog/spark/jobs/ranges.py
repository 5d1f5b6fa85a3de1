"""Cuts a log into ranges of sequences of about equal size, and plans the reads of a task for one range."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, DivergedError, TruncatedError
from litelog.events import fields
from litelog.objects.position import Generation, epoch_of
from litelog.reading.latest import find_claim
from litelog.reading.search import HeaderReader, first_reaching
from litelog.reading.successors import find_shift
from litelog.reading.wal_cursor import describe
from litelog.spark.options import Range
from litelog.spark.scan.inputs import find_places
from litelog.spark.scan.packing import SealedItem, WalItem, pack
from litelog.spark.scan.planning import find_pieces, replica_items
from litelog.spark.scan.task import open_client

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.packing import ReplicaItem
    from litelog.spark.scan.partitions import Partition
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)

PARALLELISM = 16
"""Headers that are read in parallel."""


@dataclass(frozen=True, slots=True)
class GenerationContent:
    """The contents of a generation, in order, for the one log that the options name."""

    claim: Claim
    url: str
    items: tuple[ReplicaItem, ...]
    client: ReplicaClient
    headers: HeaderReader


def find_held(options: ReadOptions, stop: threading.Event) -> GenerationContent:
    """Find the contents of a replica within the options' bounds. Raises ConfigError unless they name one replica."""
    places = find_places(options)
    if len(places) != 1 or places[0].folder is not None:
        raise ConfigError("this job reads one replica: give its URL, not a log's folder or several replicas")
    pieces = find_pieces(places[0], options)
    client = open_client(places[0].url, options.store, stop)
    items = tuple(replica_items(places[0], options, pieces))
    return GenerationContent(pieces.base.claim, client.url, items, client, HeaderReader(client, PARALLELISM))


def first_held(held: GenerationContent) -> int | None:
    """The first sequence in the replica; None if it has no record."""
    for item in held.items:
        first: int | None = None
        if isinstance(item, SealedItem):
            first = item.piece.entry.first
        elif isinstance(item, WalItem):
            first = describe(held.client, held.headers([item.info.position])[0]).first
        if first is not None:
            return first
    return None


def require_start(options: ReadOptions, held: GenerationContent, first: int) -> int:
    """The sequence at which a run must begin reading: ``first``, or the first remaining one.

    Raises TruncatedError if records before that are gone, and ``failOnDataLoss`` is set.
    """
    left = first_held(held)
    if left is None or left <= first:
        return first
    error = TruncatedError(first, left)
    if options.fail_on_data_loss:
        raise error
    message = "%s: %s; skipped because of failOnDataLoss=false"
    _logger.warning(message, held.url, error, extra=fields("data-lost", replica=held.url))
    return left


def require_log(held: GenerationContent, log: str) -> None:
    """Raise ConfigError if the table holds another log."""
    if log != held.claim.log:
        raise ConfigError(f"the table is of log {log}, but {held.url} holds log {held.claim.log}")


def require_continued(
    options: ReadOptions, held: GenerationContent, generation_before: Generation, stop: threading.Event
) -> None:
    """Raise DivergedError if the generation to read does not continue ``generation_before``, which was exported.

    Raises ConfigError if the options name an older generation.
    """
    if held.claim.generation == generation_before:
        return
    if options.generation is not None and held.claim.epoch < epoch_of(generation_before):
        raise ConfigError(
            f"generation={options.generation} ended before {generation_before}, which was exported: leave it out, or "
            "choose a new target"
        )
    client = open_client(find_places(options)[0].url, options.store, stop)
    before = find_claim(client, generation_before)
    try:
        find_shift(client, before, held.claim)
    except DivergedError as error:
        reason = f"{error.reason}; the export holds another history: choose a new target"
        raise DivergedError(client.url, reason) from error


def cut(held: GenerationContent, first: int, max_bytes: int) -> tuple[int, ...]:
    """Bounds of ranges of about ``max_bytes`` of the log each, from sequence ``first`` to the end.

    Returns a single bound if nothing follows ``first``.
    """
    bounds = [first]
    end, size = first, 0
    for item in held.items:
        if isinstance(item, SealedItem):
            entry = item.piece.entry
            if entry.first is None or entry.next is None or entry.next <= first:
                continue
            shares = -(-entry.length // max_bytes)
            start = max(entry.first, first)
            if size and size + entry.length > max_bytes:
                bounds.append(start)
                size = 0
            if shares > 1:
                bounds += [start + (entry.next - start) * share // shares for share in range(1, shares)]
            size += entry.length // shares
            end = entry.next
        else:
            size += item.raw
            if size > max_bytes and isinstance(item, WalItem):
                header = held.headers([item.info.position])[0]
                if header.first is not None and header.first > bounds[-1]:
                    bounds.append(header.first)
                    size = item.raw
    end = max(end, _wal_end(held) or end)
    return (*(bound for bound in dict.fromkeys(bounds) if bound < end), end) if end > first else (first,)


def read_plan_of(held: GenerationContent, bounds: Sequence[int]) -> list[tuple[int, Partition]]:
    """Return (number of a range, the partition with exactly its records) for each range that has records."""
    wal = [item for item in held.items if isinstance(item, WalItem)]
    positions = [item.info.position for item in wal]
    partitions: list[tuple[int, Partition]] = []
    for number, (first, stop) in enumerate(pairwise(bounds)):
        chosen: list[ReplicaItem] = []
        for item in held.items:
            if isinstance(item, SealedItem) and item.piece.entry.records:
                entry = item.piece.entry
                if Range(first, stop).overlaps(entry.first, entry.next):
                    chosen.append(item)
        if wal:
            begin = first_reaching(positions, held.headers, first)
            end = min(first_reaching(positions, held.headers, stop - 1) + 1, len(wal))
            chosen += wal[begin:end]
        if chosen:
            log = replace(chosen[0].log, range=Range(first, stop))
            packed = pack([replace(item, log=log) for item in chosen], 1 << 62, 1)
            partitions += [(number, partition) for partition in packed]
    return partitions


def _wal_end(held: GenerationContent) -> int | None:
    """The sequence after the last WAL segment whose header states it."""
    for item in reversed(held.items):
        if not isinstance(item, WalItem):
            return None
        following = held.headers([item.info.position])[0].next
        if following is not None:
            return following
    return None
