"""A log segment's records from its WAL segments, where they are still there and its sealed segment is damaged."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine
from litelog.errors import CorruptObjectError, NotFoundError, ReplicaGapError
from litelog.formats import Expectation
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.position import Position, generation
from litelog.reading.fetch import read_checked
from litelog.reading.sealed_reader import SealedBatch
from litelog.reading.wal_chain import check_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.formats import LogFormat
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalSegment
    from litelog.stores.replica_client import ReplicaClient


def read_unsealed(
    client: ReplicaClient, entry: SnapshotEntry, offset: int, log_format: LogFormat
) -> Iterator[SealedBatch]:
    """The records of the log segment that ``entry`` names from byte ``offset`` on, where a commit starts.

    A listing, and a GET for each WAL segment. What they hold must come to the length and the CRC-32C that the entry
    states; they are checked against each other on the way. ReplicaGapError, CorruptObjectError.
    """
    place = Position(generation(entry.generation), entry.sealed_index, 0)
    listed = client.wal_segments(place.generation, place)
    positions = [info.position for info in takewhile(lambda info: info.position.index == place.index, listed)]
    begin = max((number for number, at in enumerate(positions) if at.offset <= offset), default=None)
    if begin is None:
        raise ReplicaGapError(str(place), str(positions[0]) if positions else None)
    before: WalSegment | None = None
    for position in positions[begin:]:
        segment = _read(client, position)
        _check(entry, segment, before)
        before = segment
        if segment.header.end > offset:
            yield _decode(entry, segment, offset, log_format)
    assert before is not None
    last = before.header
    if (last.final, last.end, last.crc_total) != (True, entry.length, entry.crc):
        raise ReplicaGapError(str(Position(place.generation, place.index, last.end)))


def _read(client: ReplicaClient, position: Position) -> WalSegment:
    decode = partial(wal_segment.decode_checked, wal_key(position))
    try:
        return read_checked(partial(client.read_wal_segment, position), decode)
    except NotFoundError as error:
        raise ReplicaGapError(str(position)) from error


def _check(entry: SnapshotEntry, segment: WalSegment, before: WalSegment | None) -> None:
    header = segment.header
    facts: list[tuple[str, object, object]] = [("file", entry.file, header.file)]
    if before is not None:
        facts.append(("offset", before.header.end, header.offset))
        facts.append(("SHA-256 of the object before it", before.digest, header.previous))
    if before is not None or header.offset == 0:
        total = combine(before.header.crc_total if before is not None else 0, header.crc, header.length)
        facts.append(("CRC-32C up to its end", total, header.crc_total))
    for what, expected, actual in facts:
        if expected != actual:
            raise CorruptObjectError(segment.key, what, expected, actual)


def _decode(entry: SnapshotEntry, segment: WalSegment, offset: int, log_format: LogFormat) -> SealedBatch:
    header = segment.header
    data, start, expect = memoryview(segment.data()), header.offset, Expectation(header.first)
    check_run(header, segment.key, log_format.scan(header.path, data, start, expect), log_format)
    if start < offset:
        scan = log_format.scan(header.path, data[: offset - start], start, expect)
        if scan.end != offset:
            raise CorruptObjectError(segment.key, "end of the commit to go on behind", offset, scan.end)
        data, start, expect = data[offset - start :], offset, scan.expectation
    columns = log_format.decode(header.path, data, start, expect)
    return SealedBatch(entry, start, header.end, columns, header.shipped)
