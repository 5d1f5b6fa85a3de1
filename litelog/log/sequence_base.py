"""Numbers records in formats whose records carry no numbers: from the log's beginning, or from its tombstone.

The tombstone is a small file that states where a truncated log begins. It lies in the log's folder, or, for the formats
of other programs, next to the state of the log's replicas. It is durable before the first log segment is deleted, so a
reader that finds fewer log segments also finds the reason.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, build
from litelog.dataclass import dataclass
from litelog.formats import Expectation
from litelog.formats.capabilities import is_divisible
from litelog.system.private_files import read_json

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.log.disk import Disk
    from litelog.log.source import OpenSegment, SegmentFolder

HEAD_BYTES = 4096
"""How many bytes of the first log segment identify it: its name may later be another file's."""


def tombstone_folder(log_format: LogFormat, folder: str, state_folder: str) -> str:
    """Return the tombstone's folder for the log in ``folder``. ``state_folder``: the folder of its replicas' state."""
    return folder if log_format.has_log_id else state_folder


class SequenceBase:
    """Numbers the records of one log, in a format whose commits carry no numbers."""

    def __init__(self, folder: str, log_format: LogFormat, names: SegmentFolder, state_folder: str) -> None:
        self._folder = folder
        self._format = log_format
        self._names = names
        self._tombstones = tombstone_folder(log_format, folder, state_folder)

    def first(self) -> int:
        """Return the number of the first record that exists.

        0 if the log was never truncated, or no longer holds the log segment that its tombstone names: then another
        program removed more, and the number of removed records is unknown. Raises
        SourceError.
        """
        while True:
            with suppress(FileNotFoundError):  # a truncation is running: the tombstone says how far it gets
                return self._find_first()

    def beginning(self) -> int | None:
        """As ``first``, for all formats. None if the log carries its numbers or begins with its first record."""
        return None if self._format.self_numbered else self.first() or None

    def _find_first(self) -> int:
        tombstone, names = read_tombstone(self._tombstones), self._names.all()
        if tombstone is None or tombstone.first is None or tombstone.file not in names:
            return 0
        with self._names.open(tombstone.file) as segment:
            if not _begins_as(segment, tombstone):
                return 0
        left_over = names[: names.index(tombstone.file)]  # by an interrupted truncation
        return max(0, tombstone.first - sum(self.count(name) for name in left_over))

    def truncated_to(self, sequence: int) -> int | None:
        """Return where the log begins now, if that is after ``sequence``; None if it is not, or is unknown."""
        tombstone = read_tombstone(self._tombstones)
        if tombstone is None or tombstone.first is None or tombstone.first <= sequence:
            return None
        return tombstone.first if tombstone.file in self._names.all() else None

    def count(self, name: str) -> int:
        """Return how many numbers a log segment's records take. Raises FileNotFoundError."""
        path = os.path.join(self._folder, name)
        with self._names.open(name) as segment:
            if is_divisible(self._format):
                return segment.size()
            return sum(scan.records for scan in segment.scan_runs(self._format, path, Expectation(0)))


def describe_beginning(segment: OpenSegment, first: int | None, *, with_fingerprint: bool) -> Tombstone:
    """Return the tombstone of a log that begins with ``segment``, whose first record has the number ``first``.

    ``with_fingerprint``: the tombstone identifies the log segment by its first bytes.
    """
    if not with_fingerprint:
        return Tombstone(segment.name, first)
    head = segment.read(0, HEAD_BYTES)
    return Tombstone(segment.name, first, len(head), crc32c(head))


def _begins_as(segment: OpenSegment, tombstone: Tombstone) -> bool:
    head = segment.read(0, tombstone.head_length)
    return (len(head), crc32c(head)) == (tombstone.head_length, tombstone.head_crc)


TOMBSTONE_NAME = ".tombstone"
"""No log format accepts a log segment name that starts with a dot."""

TOMBSTONE_VERSION = 1

MAX_HEAD_BYTES = 64 << 10
"""The most bytes of a log segment that are compared."""

TOMBSTONE_LIMITS = JsonLimits(size=64 << 10, values=100, texts=100, containers=10, depth=2)
"""The most that such a file may hold: a name and four numbers."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The beginning of a log."""

    file: str
    """The first log segment that exists."""
    first: int | None
    """The first available sequence."""
    head_length: int = 0
    """How many of its first bytes identify it; 0 if its records carry their sequences."""
    head_crc: int = 0
    """Their CRC-32C."""


def read_tombstone(folder: str) -> Tombstone | None:
    """Return the tombstone in ``folder``; None if there is none that can be read."""
    try:
        fields = read_json(os.path.join(folder, TOMBSTONE_NAME), TOMBSTONE_LIMITS)
        if fields.pop("version") != TOMBSTONE_VERSION or fields.pop("crc") != _crc(fields):
            return None
        tombstone = build(Tombstone, fields)
        return tombstone if _is_possible(tombstone) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_tombstone(folder: str, tombstone: Tombstone, disk: Disk) -> None:
    """Write the tombstone, durably, over the one before. Raises OSError."""
    path = os.path.join(folder, TOMBSTONE_NAME)
    temporary = f"{path}.tmp"
    fields = asdict(tombstone)
    body = json.dumps({"version": TOMBSTONE_VERSION, **fields, "crc": _crc(fields)}).encode()
    mode = 0o600 | (os.stat(folder).st_mode & 0o044)  # in a private folder it is private
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        disk.write(descriptor, [body], 0)
        disk.sync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    disk.sync_folder(folder)


def _is_possible(tombstone: Tombstone) -> bool:
    return (tombstone.first or 0) >= 0 and 0 <= tombstone.head_length <= MAX_HEAD_BYTES and "/" not in tombstone.file


def _crc(fields: dict[str, object]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())
