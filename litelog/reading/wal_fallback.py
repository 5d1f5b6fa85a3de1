"""Reads log segments whose sealed segments are damaged or were deleted: from the sealed segment that the newest
snapshot names instead, or from WAL segments.

Specified in litelog/reading/README.md#damage-and-gaps.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, PrunedError, ReplicaGapError
from litelog.events import fields
from litelog.formats import Expectation
from litelog.objects.chain import ChainState, check_run, next_state, next_state_sealed
from litelog.objects.position import Position
from litelog.reading.contents import list_index, list_pieces
from litelog.reading.sealed_reader import BrokenEntryError, SealedBatch, SealedStart, read_sealed
from litelog.reading.search import read_segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from litelog.errors import LitelogError
    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalSegment
    from litelog.reading.contents import BaseSnapshot
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)


def read_history(
    client: ReplicaClient,
    executor: Executor,
    base: BaseSnapshot,
    number: int,
    start: SealedStart,
    log_format: LogFormat,
) -> Iterator[SealedBatch]:
    """Yield the records of ``base.entries`` from entry number ``number`` on, as ``read_sealed`` does.

    Replaces a damaged sealed segment by its WAL segments, if they still exist. Looks up a missing one in the newest
    snapshot. Yields no record twice.

    Args:
        client: the replica.
        executor: runs requests.
        base: the base of the generation.
        number: the number of the first entry to read.
        start: where to begin in that entry.
        log_format: the log's format.

    Raises:
        PrunedError: retention removed the log segment.
        CorruptObjectError: the sealed segment is damaged, and no other object has its bytes.
        ReplicaGapError: the sealed segment is missing, and no other object has its bytes.
    """
    entries, stop = base.entries, base.start.index
    while number < len(entries):
        at = start.offset
        try:
            for batch in read_sealed(client, executor, entries[number:], log_format, start):
                number, at = batch.entry.index - base.first.index, batch.end
                yield batch
            return
        except BrokenEntryError as error:
            broken = error.entry.index - base.first.index
            number, at = broken, at if broken == number else 0
            damage: LitelogError = error.cause
        if isinstance(damage, NotFoundError):
            index, key = entries[number].index, entries[number].key
            base = find_base_now(client, base.claim, index, at) or base
            number, damage = index - base.first.index, ReplicaGapError(key)
            entries = base.entries[: stop - base.first.index]
            if entries[number].key != key:
                start = SealedStart(at)
                continue
        extra = fields("sealed-segment-damaged", replica=client.url)
        _logger.warning("%s: %s; reading its WAL segments", client.url, damage, extra=extra)
        yield from read_unsealed(client, entries[number], at, log_format, damage)
        number, start = number + 1, SealedStart()


def find_base_now(client: ReplicaClient, claim: Claim, index: int, offset: int) -> BaseSnapshot | None:
    """Find the current base of a generation, after the sealed segment of the log segment at ``index`` disappeared.

    Returns None if the newest snapshot cannot be read, and an older one does not reach as far. Raises PrunedError if
    retention removed the log segment.
    """
    newest = list_pieces(client, claim).base
    if newest.first.index > index:
        raise PrunedError(str(Position(newest.start.generation, index, offset)))
    return newest if newest.start.index > index else None


def read_unsealed(
    client: ReplicaClient, entry: SnapshotEntry, offset: int, log_format: LogFormat, damage: LitelogError
) -> Iterator[SealedBatch]:
    """Yield the records of the log segment that ``entry`` names from byte ``offset`` on, where a commit starts.

    Makes a listing, and a GET for each WAL segment. Checks the WAL segments against each other, and their total against
    the length and the CRC-32C that the entry states. Raises ``damage`` if a check fails, or if one is missing.
    """
    last: WalSegment | None = None
    try:
        for segment in wal_segments_of(client, entry, offset):
            last = segment
            if segment.header.end > offset:
                yield _decode(entry, segment, offset, log_format)
    except CorruptionError:
        raise damage from None
    reached = None if last is None else (last.header.final, last.header.end, last.header.crc_total)
    if reached != (True, entry.length, entry.crc):
        raise damage


def wal_segments_of(client: ReplicaClient, entry: SnapshotEntry, offset: int) -> Iterator[WalSegment]:
    """Yield the remaining WAL segments of the log segment that ``entry`` names, from the one with byte ``offset`` on;
    none if that one is gone. A listing, and a GET for each.

    Checks them against each other. Raises CorruptObjectError, and ReplicaGapError if a listed one is missing.
    """
    positions = list_index(client, entry.generation, entry.sealed_index)
    begin = max((number for number, at in enumerate(positions) if at.offset <= offset), default=len(positions))
    state: ChainState | None = None
    for position in positions[begin:]:
        segment = read_segment(client, position)
        before = state or replace(ChainState.before(segment.header), file=entry.file)
        if segment.header.sealed is None:
            state = next_state(before, segment, None)
        else:
            state = next_state_sealed(before, segment, entry, None)
        yield segment


def _decode(entry: SnapshotEntry, segment: WalSegment, offset: int, log_format: LogFormat) -> SealedBatch:
    header = segment.header
    data, start, expect = segment.data(), header.offset, Expectation(header.first)
    check_run(header, segment.key, log_format.scan(header.path, data, start, expect), log_format)
    if start < offset:
        scan = log_format.scan(header.path, data[: offset - start], start, expect)
        if scan.end != offset:
            raise CorruptObjectError(segment.key, "end of the commit to continue after", offset, scan.end)
        data, start, expect = data[offset - start :], offset, scan.expectation
    columns = log_format.decode(header.path, data, start, expect)
    return SealedBatch(entry, start, header.end, columns, header.shipped)
