"""Reads a run of whole commits at a position of an open log segment, and checks it. The follower decides what it means.

A commit that is larger than the limit comes whole. After one, the head of the next commit is read first: it shows how
many bytes that takes, so that commits of one size are read and checked once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError, LitelogError, SequenceGapError
from litelog.formats.capabilities import scan_columns

if TYPE_CHECKING:
    from litelog.formats import LogFormat, Scan
    from litelog.formats.columns import Columns
    from litelog.log.source import OpenSegment
    from litelog.log.source_position import CommitRun, SourcePosition

HEAD_BYTES = 4 << 10
"""How many bytes are read to see how large a commit is."""


class RunReader:
    """Used by one thread at a time."""

    def __init__(self, log_format: LogFormat, most_bytes: int) -> None:
        """``most_bytes``: no run is larger."""
        self._format = log_format
        self._most_bytes = most_bytes
        self._was_large = False
        """Whether the last run took more than the limit."""
        self.decoded_bytes = 0
        """Up to how many bytes are decoded as they are checked, for ``columns_of``."""
        self._decoded: tuple[Scan, Columns] | None = None

    def read(
        self, segment: OpenSegment, path: str, place: SourcePosition, size: int, limit: int
    ) -> tuple[memoryview, Scan | None]:
        """Return the bytes at ``place``, and what was found in them; no bytes and None at the end.

        Args:
            segment: The log segment of the place, whose path is ``path``, for errors.
            place: A position in it.
            size: Up to which offset it may be read.
            limit: About how many bytes to return, unless a single commit is larger.

        Raises:
            CorruptCommitError, SequenceGapError: The first commit is bad. Commits before a bad one are returned.
        """
        most = size - place.offset
        if not most:
            return memoryview(b""), None
        length = min(limit, most)
        if self._was_large and length < most:
            length = min(max(length, self._find_wanted(segment, path, place)), most, self._most_bytes)
        while True:
            data = memoryview(segment.read(place.offset, length))
            self._was_large = length > limit
            try:
                scan = self._scan(path, data, place)
            except (CorruptCommitError, SequenceGapError) as error:
                return self._read_before(error, path, data, place)
            longer = min(most, max(scan.wanted, 2 * length), self._most_bytes)
            if scan.end > place.offset or longer <= length:
                return data, scan
            length = longer  # a commit larger than the limit

    def columns_of(self, run: CommitRun) -> Columns | None:
        """The records of the run that was read last, if they were decoded then. Once."""
        decoded, self._decoded = self._decoded, None
        return decoded[1] if decoded is not None and decoded[0] is run.scan else None

    def _find_wanted(self, segment: OpenSegment, path: str, place: SourcePosition) -> int:
        """How many bytes the next commit takes, if its head shows that; otherwise 0."""
        head = memoryview(segment.read(place.offset, HEAD_BYTES))
        with suppress(LitelogError):  # the fault is found when the commit is read
            scan = self._format.scan(path, head, place.offset, place.expectation)
            return scan.wanted if scan.end == place.offset else 0
        return 0

    def _scan(self, path: str, data: memoryview, place: SourcePosition) -> Scan:
        """Scan what follows the position. Decodes few bytes as well, unless only their records are damaged."""
        if 0 < len(data) <= self.decoded_bytes:
            with suppress(LitelogError):
                self._decoded = scan_columns(self._format, path, data, place.offset, place.expectation)
                return self._decoded[0]
        return self._format.scan(path, data, place.offset, place.expectation)

    def _read_before(
        self, error: CorruptCommitError | SequenceGapError, path: str, data: memoryview, place: SourcePosition
    ) -> tuple[memoryview, Scan]:
        """Return the whole commits before the bad one. Raises ``error`` if there are none."""
        good = data[: max(0, error.offset - place.offset)]
        if len(good) == len(data):
            raise error
        scan = self._format.scan(path, good, place.offset, place.expectation)
        if scan.end == place.offset:
            raise error
        return good, scan
