"""How records are numbered that do not carry their numbers: from the log's beginning, or, where that was truncated,
from what the tombstone says.

The tombstone of such a log lies where the state of its replicas is kept: its folder is another program's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.formats import MAX_COMMIT_BYTES, Expectation
from litelog.formats.raw import RawFormat
from litelog.log.tombstone import Tombstone, read_tombstone

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.log.source import OpenSegment, SegmentNames

READ_BYTES = 4 << 20

HEAD_BYTES = 4096
"""How much of the log segment where the log begins is known again: names alone may come to mean another file."""


def tombstone_folder(log_format: LogFormat, folder: str, state_folder: str) -> str:
    """Where the tombstone of the log in ``folder`` lies; ``state_folder``: where its replicas' state does."""
    return folder if log_format.has_log_id else state_folder


class Numbering:
    """Numbers the records of one log, of a format whose commits do not."""

    def __init__(self, folder: str, log_format: LogFormat, names: SegmentNames, state_folder: str) -> None:
        self._folder = folder
        self._format = log_format
        self._names = names
        self._tombstones = tombstone_folder(log_format, folder, state_folder)

    def first(self) -> int:
        """The number of the first record that is there.

        0 where the log was never truncated, or no longer holds what its tombstone names: then somebody else removed
        more, and nobody knows how much. SourceError.
        """
        while True:
            with suppress(FileNotFoundError):  # it is being truncated: the tombstone says how far
                return self._find_first()

    def beginning(self) -> int | None:
        """The same, for all formats: None where the log tells, or begins with its first record."""
        return None if self._format.self_numbered else self.first() or None

    def _find_first(self) -> int:
        tombstone, names = read_tombstone(self._tombstones), self._names.all()
        if tombstone is None or tombstone.first is None or tombstone.file not in names:
            return 0
        with self._names.open(tombstone.file) as segment:
            if not _begins_as(segment, tombstone):
                return 0
        left_over = names[: names.index(tombstone.file)]  # by a truncation that was interrupted
        return max(0, tombstone.first - sum(self.count(name) for name in left_over))

    def truncated_to(self, sequence: int) -> int | None:
        """Where the log begins now, if that is behind ``sequence``; None if it is not, or nobody knows."""
        tombstone = read_tombstone(self._tombstones)
        if tombstone is None or tombstone.first is None or tombstone.first <= sequence:
            return None
        return tombstone.first if tombstone.file in self._names.all() else None

    def count(self, name: str) -> int:
        """How many numbers a log segment's records take. FileNotFoundError."""
        with self._names.open(name) as segment:
            if isinstance(self._format, RawFormat):
                return segment.size()
            return self._count(name, segment)

    def _count(self, name: str, segment: OpenSegment) -> int:
        path = os.path.join(self._folder, name)
        offset, length, expect = 0, READ_BYTES, Expectation(0)
        while data := memoryview(segment.read(offset, length)):
            scan = self._format.scan(path, data, offset, expect)
            if scan.end == offset:
                if len(data) < length or length > MAX_COMMIT_BYTES:
                    break
                length *= 2
                continue
            offset, length, expect = scan.end, READ_BYTES, scan.expectation
        return expect.sequence or 0


def describe_beginning(segment: OpenSegment, first: int | None, *, known_again: bool) -> Tombstone:
    """The tombstone of a log that begins with ``segment``, whose first record has the number ``first``."""
    if not known_again:
        return Tombstone(segment.name, first)
    head = segment.read(0, HEAD_BYTES)
    return Tombstone(segment.name, first, len(head), crc32c(head))


def _begins_as(segment: OpenSegment, tombstone: Tombstone) -> bool:
    head = segment.read(0, tombstone.head_length)
    return (len(head), crc32c(head)) == (tombstone.head_length, tombstone.head_crc)
