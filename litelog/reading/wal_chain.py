"""The checks of every reader: what each object of a generation must say, given the one before it.

Specified in litelog/reading/README.md#what-each-object-must-say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine
from litelog.errors import CorruptObjectError, ReplicaGapError
from litelog.formats import Expectation, FinishedTail
from litelog.reading.beginning import never_began

if TYPE_CHECKING:
    from litelog.formats import LogFormat, Scan
    from litelog.objects.claim import Claim
    from litelog.objects.position import Position
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader, WalSegment

MAX_FILE_NAME_BYTES = 255
"""The longest file name that file systems take, in bytes."""


@dataclass(frozen=True, slots=True)
class ChainState:
    """The state of a generation's chain: what the next WAL segment must continue."""

    claim: Claim
    slot: Position
    """The position at which it must lie."""
    digest: str
    """The SHA-256 that it must name as the preceding object."""
    shipped: int = 0
    """The earliest time at which it can have been shipped, in microseconds since 1970."""
    next: int | None = None
    """The sequence that follows; None before the first record."""
    crc_total: int = 0
    """CRC-32C of the index's bytes so far."""
    file: str = ""
    """The file name of the index's log segment; empty at the start of an index."""
    file_before: str = ""
    """The file name of the log segment of the index before."""
    ended: bool = False
    """Whether a terminal was seen: nothing may follow it."""


def link_after(claim: Claim, segment: WalSegment) -> ChainState:
    """The link after a WAL segment whose statements are trusted: for a reader that starts in the middle."""
    header = segment.header
    _require_same_generation(claim, header, segment.key)
    link = ChainState(claim, header.position, header.previous, header.shipped, header.next, file=header.file)
    return _behind(replace(link, crc_total=header.crc_total), segment)


def next_state(link: ChainState, segment: WalSegment, log_format: LogFormat) -> ChainState:
    """The link after ``segment``, which must continue ``link``.

    Raises ReplicaGapError if an object between them is missing, and CorruptObjectError, which names the segment's key,
    for any other mismatch. ``WalSegment.pieces`` and ``check_run`` check the segment's bytes.
    """
    header, key = segment.header, segment.key
    _check_place(link, segment)
    if header.sealed is not None:
        raise CorruptObjectError(key, "stands for a sealed segment, which is to be read for it")
    if header.successor is not None:
        if header.length or header.final or header.file not in ("", link.file or header.file):
            raise CorruptObjectError(key, "is a terminal, and not an empty one")
        return replace(_behind(link, segment), ended=True)
    if header.length == 0 and not header.final:
        raise CorruptObjectError(key, "holds nothing and ends nothing")
    _check_file(link, header.file, key, log_format)
    _check_sequences(link, header, key)
    return _behind(link, segment)


def link_after_sealed(link: ChainState, segment: WalSegment, entry: SnapshotEntry, log_format: LogFormat) -> ChainState:
    """The link after a ``final`` that stands for a sealed segment, which ``entry`` describes.

    Raises as ``next_state``. Instead of it, read the sealed segment from ``link.slot`` on.
    """
    header, key = segment.header, segment.key
    _check_place(link, segment)
    _check_file(link, header.file, key, log_format)
    for what, expected, actual in (
        ("generation", header.generation, entry.generation),
        ("index", header.index, entry.sealed_index),
        ("file", header.file, entry.file),
        ("SHA-256 of its log segment", header.sealed, entry.digest),
    ):
        _require_equal(entry.key, f"{what}, which {key} states,", expected, actual)
    if header.offset > entry.length:
        raise CorruptObjectError(entry.key, "length", f"{header.offset} or more", entry.length)
    if link.next is not None and entry.next is not None and entry.next < link.next:
        raise CorruptObjectError(entry.key, "next sequence", f"{link.next} or above", entry.next)
    known = entry.next if entry.next is not None else link.next
    _require_equal(key, "next sequence", known, header.next)
    return _behind(link, segment)


def _check_place(link: ChainState, segment: WalSegment) -> None:
    """Check what every WAL segment that continues ``link`` must say."""
    header, key = segment.header, segment.key
    if link.ended:
        raise CorruptObjectError(key, "lies after the end of its generation")
    if header.position > link.slot:
        raise ReplicaGapError(str(link.slot), str(header.position))
    _require_equal(key, "position", link.slot, header.position)
    _require_same_generation(link.claim, header, key)
    if not never_began(link.claim.first, header):  # otherwise its snapshot came too late for this writer
        _require_equal(key, "SHA-256 of the object before it", link.digest, header.previous)
    total = combine(link.crc_total, header.crc, header.length)
    _require_equal(key, "CRC-32C up to its end", f"{total:#010x}", f"{header.crc_total:#010x}")
    if header.shipped < link.shipped:
        raise CorruptObjectError(key, "time shipped", f"{link.shipped} or later", header.shipped)


def expectation(link: ChainState, header: WalHeader) -> Expectation:
    """What the first commit in a segment that continues ``link`` must be."""
    return Expectation(header.first if link.next is None else link.next)


def check_run(header: WalHeader, key: str, scan: Scan, log_format: LogFormat) -> None:
    """Check a header against a scan of its segment's whole bytes."""
    may_have_tail = header.final and log_format.finished_tail is FinishedTail.SHIP
    if scan.end != header.end and not may_have_tail:
        raise CorruptObjectError(key, "end of the last whole commit", header.end, scan.end)
    _require_equal(key, "records", header.records, scan.records)
    if scan.commits:
        for name in ("first", "next", "lowest", "highest"):
            _require_equal(key, name, getattr(header, name), getattr(scan, name))


def _behind(link: ChainState, segment: WalSegment) -> ChainState:
    header = segment.header
    link = replace(
        link,
        slot=header.position if header.successor is not None else header.next_slot,
        digest=segment.digest,
        shipped=max(link.shipped, header.shipped),
        next=link.next if header.next is None else header.next,
        crc_total=header.crc_total,
        file=header.file or link.file,
    )
    return replace(link, crc_total=0, file="", file_before=link.file) if header.final else link


def _require_same_generation(claim: Claim, header: WalHeader, key: str) -> None:
    for name in ("log", "format", "generation"):
        _require_equal(key, name, getattr(claim, name), getattr(header, name))
    if header.successor is None:
        _require_equal(key, "owner", claim.owner, header.owner)


def _check_file(link: ChainState, file: str, key: str, log_format: LogFormat) -> None:
    if link.file:
        _require_equal(key, "file", link.file, file)
        return
    order = log_format.segment_order(file)
    plain = file not in ("", ".", "..") and not any(mark in file for mark in "/\\\0")
    if order is None or not plain or len(file.encode(errors="replace")) > MAX_FILE_NAME_BYTES:
        raise CorruptObjectError(key, f"file {file!r} is not the name of a log segment of format {log_format.name}")
    before = log_format.segment_order(link.file_before) if link.file_before else None
    if before is not None and order <= before:
        raise CorruptObjectError(key, "file", f"one that sorts after {link.file_before!r}", repr(file))


def _check_sequences(link: ChainState, header: WalHeader, key: str) -> None:
    if header.first is None:
        if header.records or (header.next is not None and link.next is not None and header.next != link.next):
            raise CorruptObjectError(key, "records without a first sequence", link.next, header.next)
    elif link.next is not None and header.first < link.next:
        raise CorruptObjectError(key, "first sequence", f"{link.next} or above", header.first)


def _require_equal(key: str, what: str, expected: object, actual: object) -> None:
    if expected != actual:
        raise CorruptObjectError(key, what, expected, actual)
