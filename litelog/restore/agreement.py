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
    from litelog.restore.history import History, HistoryFile, Place
    from litelog.wal_segment import WalHeader

MOST_ENDS = 8
"""How many WAL segments at the end of a history are tried while damage keeps them from being compared."""


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
            break
    return Verdict.UNKNOWN, None


def _last_place(history: History) -> Place | None:
    """Behind the last WAL segment whose header can be read and that holds any bytes."""
    for number in reversed(range(len(history.pieces))):
        header = history.header(number)
        if header is not None and header.length:
            return history.place_of(header)
    return None


def _compare(shorter: History, number: int, header: WalHeader, longer: History) -> Verdict:
    file = longer.find(header.file)
    if file is None:
        return _judge_absence(header, longer)
    at = longer.covering(file, header.end - 1)
    there = None if at is None else longer.header(at)
    if at is None or there is None:
        return Verdict.UNKNOWN
    if there.end < header.end:
        return Verdict.OTHER if longer.finished_size(file) == there.end else Verdict.UNKNOWN
    if there.end == header.end and _state_the_same(there, header):
        return Verdict.SAME if _stated(there) == _stated(header) else Verdict.OTHER
    try:
        return _compare_bytes(shorter, number, header, longer, file)
    except CorruptionError:
        return Verdict.UNKNOWN


def _judge_absence(header: WalHeader, longer: History) -> Verdict:
    """What it means that one lacks a log segment of the other: nothing, where it begins behind it or is damaged."""
    names = [file.name for file in longer.files()]
    if not names or "" in names:
        return Verdict.UNKNOWN
    first, order = longer.format.segment_order(names[0]), longer.format.segment_order(header.file)
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
