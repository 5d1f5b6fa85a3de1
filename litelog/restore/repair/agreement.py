"""Whether two replicas hold one history of a log: the end of the shorter one is looked for in the longer one.

CRC-32C cannot tell: over commits that end with their own it depends on their lengths alone. So bytes are compared, or
the SHA-256 of the last commit's where a header states it.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError

if TYPE_CHECKING:
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.restore.repair.generation_bytes import History, HistoryFile, Place

MOST_ENDS = 8
"""How many objects at the end of a history are tried while damage keeps them from being compared."""


class Verdict(Enum):
    """What the comparison of two histories at one place came to."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"
    """One of them does not have the place (any more), or it is damaged there."""


def agreed_place(one: History, two: History) -> tuple[Verdict, Place | None]:
    """Whether two histories are one, and for SAME up to which place that is known."""
    ends = _last_place(one), _last_place(two)
    if ends[0] is None or ends[1] is None:
        return Verdict.UNKNOWN, None
    shorter, longer = (one, two) if ends[1].reaches(ends[0]) else (two, one)
    tried = 0
    for number in reversed(range(len(shorter.pieces))):
        header = shorter.header(number)
        if header is None or not header.length:
            continue
        verdict = _compare(shorter, number, header, longer)
        if verdict is not Verdict.UNKNOWN:
            return verdict, shorter.place_of(header) if verdict is Verdict.SAME else None
        tried += 1
        if tried == MOST_ENDS:
            return Verdict.UNKNOWN, None
    for entry in reversed(shorter.entries[tried - MOST_ENDS :]):
        verdict = _compare_sealed(entry, longer)
        if verdict is not Verdict.UNKNOWN:
            return verdict, shorter.end_of(entry) if verdict is Verdict.SAME else None
    return Verdict.UNKNOWN, None


def _last_place(history: History) -> Place | None:
    """Behind the last WAL segment whose header can be read and that holds any bytes, or the last sealed segment."""
    for number in reversed(range(len(history.pieces))):
        header = history.header(number)
        if header is not None and header.length:
            return history.place_of(header)
    return history.end_of(history.entries[-1]) if history.entries else None


def _compare(shorter: History, number: int, header: WalHeader, longer: History) -> Verdict:
    file = longer.find(header.file)
    if file is None:
        return _judge_absence(header.file, longer)
    at = longer.covering(file, header.end - 1)
    there = None if at is None else longer.header(at)
    if there is not None and there.end == header.end and _state_the_same(there, header):
        return Verdict.SAME if _stated(there) == _stated(header) else Verdict.OTHER
    size = longer.finished_size(file)
    if size is not None and size < header.end:
        return Verdict.OTHER
    if file.entry is None and (there is None or there.end < header.end):
        return Verdict.UNKNOWN
    try:
        return _compare_bytes(shorter, number, header, longer, file)
    except CorruptionError:
        return Verdict.UNKNOWN


def _compare_sealed(entry: SnapshotEntry, longer: History) -> Verdict:
    """As ``_compare``, for a whole log segment of the shorter history, whose digest is known."""
    file = longer.find(entry.file)
    if file is None:
        return _judge_absence(entry.file, longer)
    size = longer.finished_size(file)
    if size is not None and size != entry.length:
        return Verdict.OTHER
    if file.entry is not None:
        return Verdict.SAME if file.entry.digest == entry.digest else Verdict.OTHER
    found = hashlib.sha256()
    try:
        for chunk in longer.chunks(file.name, 0, entry.length):
            found.update(chunk.data)
    except CorruptionError:
        return Verdict.UNKNOWN
    return Verdict.SAME if found.hexdigest() == entry.digest else Verdict.OTHER


def _judge_absence(name: str, longer: History) -> Verdict:
    """What it means that one lacks a log segment of the other: nothing, where it begins behind it or is damaged."""
    names = [file.name for file in longer.files()]
    if not names or "" in names:
        return Verdict.UNKNOWN
    first, order = longer.format.segment_order(names[0]), longer.format.segment_order(name)
    return Verdict.UNKNOWN if first is None or order is None or order < first else Verdict.OTHER


def _state_the_same(one: WalHeader, two: WalHeader) -> bool:
    return one.check_digest is not None and two.check_digest is not None and one.check_start == two.check_start


def _stated(header: WalHeader) -> tuple[int, str | None]:
    return header.crc_total, header.check_digest


def _compare_bytes(shorter: History, number: int, header: WalHeader, longer: History, file: HistoryFile) -> Verdict:
    start, digest = header.check_start, header.check_digest
    if start is None or digest is None:
        start, digest = header.offset, hashlib.sha256(shorter.read(number).data()).hexdigest()
    found = hashlib.sha256()
    for chunk in longer.chunks(file.name, start, header.end):
        found.update(chunk.data)
    return Verdict.SAME if found.hexdigest() == digest else Verdict.OTHER
