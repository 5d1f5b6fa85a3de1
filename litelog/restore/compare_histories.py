"""Compares the histories that replicas of one log hold: whether they are the same, and up to where.

The end of the shorter history must be in the longer one. A CRC-32C cannot prove that: over commits that end with their
own CRC it depends only on their lengths. So this module compares bytes, or the SHA-256 of the last commit's bytes if a
header states it.
"""

from __future__ import annotations

import hashlib
import logging
from enum import Enum
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, NotFoundError, UnknownVersionError
from litelog.events import fields
from litelog.reading.generations import read_claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.restore.generation_bytes import GenerationBytes, GenerationFile, LogPosition
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)

MOST_ENDS = 8
"""How many objects at the end of a history are tried if damage prevents a comparison."""


class HistoryRelation(Enum):
    """The result of comparing two histories at one place."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"
    """One of them does not hold the place, or no longer does, or is damaged there."""


def common_end(one: GenerationBytes, two: GenerationBytes) -> tuple[HistoryRelation, LogPosition | None]:
    """Compare two histories at the end of the shorter one. Returns the result and, for SAME, the place up to which they
    are known to be the same."""
    ends = _last_place(one), _last_place(two)
    if ends[0] is None or ends[1] is None:
        return HistoryRelation.UNKNOWN, None
    shorter, longer = (one, two) if ends[1].reaches(ends[0]) else (two, one)
    tried = 0
    for number in reversed(range(len(shorter.pieces))):
        header = shorter.header(number)
        if header is None or not header.length:
            continue
        verdict = _compare(shorter, number, header, longer)
        if verdict is not HistoryRelation.UNKNOWN:
            return verdict, shorter.place_of(header) if verdict is HistoryRelation.SAME else None
        tried += 1
        if tried == MOST_ENDS:
            return HistoryRelation.UNKNOWN, None
    for entry in reversed(shorter.entries[tried - MOST_ENDS :]):
        verdict = _compare_sealed(entry, longer)
        if verdict is not HistoryRelation.UNKNOWN:
            return verdict, shorter.end_of(entry) if verdict is HistoryRelation.SAME else None
    return HistoryRelation.UNKNOWN, None


def _last_place(history: GenerationBytes) -> LogPosition | None:
    """The place after the last WAL segment with a readable header and bytes, or after the last sealed segment."""
    for number in reversed(range(len(history.pieces))):
        header = history.header(number)
        if header is not None and header.length:
            return history.place_of(header)
    return history.end_of(history.entries[-1]) if history.entries else None


def _compare(shorter: GenerationBytes, number: int, header: WalHeader, longer: GenerationBytes) -> HistoryRelation:
    file = longer.find(header.file)
    if file is None:
        return _compare_missing(header.file, longer)
    at = longer.covering(file, header.end - 1)
    there = None if at is None else longer.header(at)
    if there is not None and there.end == header.end and _state_the_same(there, header):
        return HistoryRelation.SAME if _stated(there) == _stated(header) else HistoryRelation.OTHER
    size = longer.finished_size(file)
    if size is not None and size < header.end:
        return HistoryRelation.OTHER
    if file.entry is None and (there is None or there.end < header.end):
        return HistoryRelation.UNKNOWN
    try:
        return _compare_bytes(shorter, number, header, longer, file)
    except (CorruptionError, UnknownVersionError):
        return HistoryRelation.UNKNOWN


def _compare_sealed(entry: SnapshotEntry, longer: GenerationBytes) -> HistoryRelation:
    """As ``_compare``, at the end of a sealed log segment of the shorter history."""
    file = longer.find(entry.file)
    if file is None:
        return _compare_missing(entry.file, longer)
    size = longer.finished_size(file)
    if size is not None and size != entry.length:
        return HistoryRelation.OTHER
    if file.entry is not None:
        return HistoryRelation.SAME if file.entry.digest == entry.digest else HistoryRelation.OTHER
    found = hashlib.sha256()
    try:
        for chunk in longer.chunks(file.name, 0, entry.length):
            found.update(chunk.data)
    except (CorruptionError, UnknownVersionError):
        return HistoryRelation.UNKNOWN
    return HistoryRelation.SAME if found.hexdigest() == entry.digest else HistoryRelation.OTHER


def _compare_missing(name: str, longer: GenerationBytes) -> HistoryRelation:
    """The verdict if the longer history lacks a log segment: unknown if it begins later or lost something there."""
    order, before = longer.format.segment_order(name), None
    for file in longer.files():
        there = longer.format.segment_order(file.name) if file.name else None
        if order is None or there is None:
            return HistoryRelation.UNKNOWN
        if order < there:
            return HistoryRelation.OTHER if before is not None and file.index == before + 1 else HistoryRelation.UNKNOWN
        before = file.index
    return HistoryRelation.OTHER if before is not None else HistoryRelation.UNKNOWN


def _state_the_same(one: WalHeader, two: WalHeader) -> bool:
    return one.check_digest is not None and two.check_digest is not None and one.check_start == two.check_start


def _stated(header: WalHeader) -> tuple[int, str | None]:
    return header.crc_total, header.check_digest


def _compare_bytes(
    shorter: GenerationBytes, number: int, header: WalHeader, longer: GenerationBytes, file: GenerationFile
) -> HistoryRelation:
    start, digest = header.check_start, header.check_digest
    if start is None or digest is None:
        start, digest = header.offset, hashlib.sha256(shorter.read(number).data()).hexdigest()
    found = hashlib.sha256()
    for chunk in longer.chunks(file.name, start, header.end):
        found.update(chunk.data)
    return HistoryRelation.SAME if found.hexdigest() == digest else HistoryRelation.OTHER


def readable_claims(client: ReplicaClient) -> Iterator[Claim]:
    """Yield the intact claims, newest first. Each takes a GET when it is requested."""
    for name in reversed(client.claims()):
        try:
            yield read_claim(client, name)
        except (CorruptionError, NotFoundError) as error:
            extra = fields("claim-damaged", replica=client.url, generation=str(name))
            _logger.warning("%s: %s", client.url, error, extra=extra)


def same_log(one: Claim, two: Claim, log_format: LogFormat) -> bool:
    """Whether two claims can be of one log. If the format has no log ids, each replica has a made-up one."""
    return one.format == two.format and (one.log == two.log or not log_format.has_log_id)
