"""Lag in records: how many of a log's records a replica has not acknowledged yet, counted in the log's own files."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from litelog.errors import LitelogError
from litelog.formats.capabilities import is_divisible
from litelog.log.source import SegmentFolder

if TYPE_CHECKING:
    from litelog.formats import Expectation, LogFormat
    from litelog.log.source_position import SourcePosition
    from litelog.system.clock import Clock

MOST_BYTES = 4 << 20
"""How many bytes of a log are read at a time to count its records. Further ones are counted at the next look."""

_PIECE_BYTES = 1 << 20


class _Reached(NamedTuple):
    """The place up to which records were counted."""

    file: str
    """Empty before the first log segment."""
    offset: int
    expect: Expectation


class PendingRecords:
    """Counts the records after a replica's position in one generation. For one thread.

    While the replica catches up, it reads no counted byte again.
    """

    def __init__(self, folder: str, log_format: LogFormat, clock: Clock) -> None:
        self._folder = folder
        self._format = log_format
        self._names = SegmentFolder(folder, log_format, clock, reports=False)
        self._reached: _Reached | None = None
        self.read_bytes = 0
        """How many bytes the last call of ``count`` read."""
        self.end: tuple[str, int] | None = None
        """The file and offset at which the log's last whole commit ends, by the last call of ``count``; None if that is
        not known. Bytes after that are not a commit yet, such as the zeros of a file that its writer preallocated."""

    def count(self, place: SourcePosition, most_bytes: int = MOST_BYTES) -> int | None:
        """Return how many sequences lie between the last whole commit in the log and ``place``.

        Args:
            place: The position up to which the log is acknowledged.
            most_bytes: The most bytes to read, except for one commit that is larger.

        Returns:
            The number; None if it is unknown: more bytes follow than were read, the log cannot be read, or its
            sequences count bytes.
        """
        self.read_bytes, self.end = 0, None
        if place.sequence is None or is_divisible(self._format):
            return None
        try:
            reached = self._begin(place)
            while self.read_bytes < most_bytes:
                following = self._step(reached)
                if following is None:
                    self._reached, self.end = reached, (reached.file, reached.offset)
                    return max(0, (reached.expect.sequence or 0) - place.sequence)
                reached = following
            self._reached = reached
        except (LitelogError, OSError):
            self._reached = None
        return None

    def _begin(self, place: SourcePosition) -> _Reached:
        """The place at which counting continues: the last one, unless ``place`` follows it."""
        here = _Reached(place.file or place.finished, place.offset, place.expectation)
        if not place.file and place.finished:
            here = here._replace(offset=place.finished_end or 0)
        reached = self._reached
        return here if reached is None or self._order(reached) < self._order(here) else reached

    def _order(self, reached: _Reached) -> tuple[object, ...]:
        order = self._format.segment_order(reached.file) if reached.file else None
        return () if order is None else (*order, reached.offset)

    def _step(self, reached: _Reached) -> _Reached | None:
        """The place after the next whole commits; None if there are none."""
        if reached.file and (found := self._scan(reached)) is not None:
            return found
        for name in self._names.after(reached.file):
            if (found := self._scan(_Reached(name, 0, reached.expect))) is not None:
                return found
        return None

    def _scan(self, reached: _Reached) -> _Reached | None:
        """The place after some of the whole commits at a place; None if there are none, or no file."""
        path, length = os.path.join(self._folder, reached.file), _PIECE_BYTES
        with suppress(FileNotFoundError), self._names.open(reached.file) as segment:
            while data := memoryview(segment.read(reached.offset, length)):
                self.read_bytes += len(data)
                scan = self._format.scan(path, data, reached.offset, reached.expect)
                if scan.end > reached.offset:
                    return _Reached(reached.file, scan.end, scan.expectation)
                if len(data) < length:
                    break
                length = max(2 * length, scan.wanted)
        return None
