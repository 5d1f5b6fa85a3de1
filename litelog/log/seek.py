"""Finds where in a log to start reading: from a sequence, a time, the beginning or the end."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError, SequenceGapError, TruncatedError
from litelog.formats import Expectation
from litelog.formats.capabilities import first_sequence, is_divisible, was_truncated
from litelog.log.cursor import read_piece
from litelog.log.sparse_index import IndexReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import Commit, LogFormat
    from litelog.log.cursor import DecodedCommits
    from litelog.log.sequence_base import SequenceBase
    from litelog.log.source import OpenSegment, SegmentFolder
    from litelog.log.sparse_index import IndexEntry

HEAD_BYTES = 64 << 10
"""How many bytes of a log segment are read for its first commit; more if that commit is larger."""


@dataclass(frozen=True, slots=True)
class StartPlace:
    """The start: ``offset`` of log segment ``name``; ``expect``: what must follow there."""

    name: str
    offset: int
    expect: Expectation


class Seeker:
    """Finds positions in one log. Reads only, and checks everything it looks up.

    If log segments are removed meanwhile, raises FileNotFoundError or returns a position in a log segment that is gone:
    search again.
    """

    def __init__(self, folder: str, log_format: LogFormat, names: SegmentFolder, numbering: SequenceBase) -> None:
        """``numbering``: numbers the records if they do not carry their numbers."""
        self._folder = folder
        self._format = log_format
        self._names = names
        self._numbering = numbering

    def earliest(self) -> StartPlace | None:
        """Return the log's first commit; None while there is none."""
        for name in self._names.all():
            if self._head(name) is not None if self._numbered else self._begins(name):
                return StartPlace(name, 0, Expectation(None if self._numbered else self._numbering.first()))
        return None

    def before(self, sequence: int) -> StartPlace | None:
        """Return a position at or before the commit with ``sequence``, or at the end; None while the log holds no
        commit.

        Raises TruncatedError for a sequence below the first one, if the log was truncated.
        """
        names = self._names.all()
        if not self._numbered:
            return self._count_to(names, sequence)
        name = self._last_segment(names, lambda head: int(head.columns.sequences[0]) <= sequence)
        if name is None:
            head = next((head for head in map(self._head, names) if head is not None), None)
            if head is None:
                return None
            if not was_truncated(self._format, os.listdir(self._folder)):
                return self.earliest()
            raise TruncatedError(sequence, int(head.columns.sequences[0]))
        return self._hinted(name, lambda index: index.before(sequence)) or StartPlace(name, 0, Expectation())

    def before_time(self, timestamp: int) -> StartPlace | None:
        """Return a position at or before the first commit with a record at or after ``timestamp``, in microseconds
        since 1970.

        If callers gave timestamps that go back from one log segment to another, such a commit may not be the first one.
        """

        def begins_before(head: DecodedCommits) -> bool:
            stamps = head.columns.timestamps
            return stamps is not None and int(stamps.min()) < timestamp

        name = self._last_segment(self._names.all(), begins_before)
        if name is None:
            return self.earliest()
        return self._hinted(name, lambda index: index.before_time(timestamp)) or StartPlace(name, 0, Expectation())

    def last(self) -> StartPlace | None:
        """Return the log's last commit; None while there is none."""
        names = self._names.all()
        if not self._numbered:
            return self._count_to(names, None)
        for name in reversed(names):
            place = self._last_in(name)
            if place is not None:
                return place
        return None

    @property
    def _numbered(self) -> bool:
        # A format without the flag counts from the log's beginning: that is slower, but right for every format.
        return bool(getattr(self._format, "self_numbered", False))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _head(self, name: str) -> DecodedCommits | None:
        """Return the first commits of a log segment that hold records; None if it has none (yet)."""
        try:
            segment = self._names.open(name)
        except FileNotFoundError:
            return None
        with segment:
            expect = Expectation(None if self._numbered else 0)
            offset, path = 0, self._path(name)
            while (piece := read_piece(self._format, path, segment, offset, expect, HEAD_BYTES)) is not None:
                if len(piece.columns) or piece.end == offset:
                    break  # else they are the writer's own
                offset, expect = piece.end, piece.expect
        return piece if piece is not None and len(piece.columns) else None

    def _begins(self, name: str) -> bool:
        """Whether a log segment begins with a commit. It may hold no records, and still take numbers."""
        with suppress(FileNotFoundError), self._names.open(name) as segment:
            piece = read_piece(self._format, self._path(name), segment, 0, Expectation(0), HEAD_BYTES)
            return piece is not None and piece.end > 0
        return False

    def _last_segment(self, names: list[str], fits: Callable[[DecodedCommits], bool]) -> str | None:
        """Return the last log segment whose first commit fits. Those that fit come first. Log segments without a commit
        are skipped."""
        low, high, found = 0, len(names), None
        while low < high:
            middle = probe = (low + high) // 2
            head = self._head(names[probe])
            while head is None and probe + 1 < high:
                probe += 1
                head = self._head(names[probe])
            if head is not None and fits(head):
                low, found = probe + 1, names[probe]
            else:
                high = middle
        return found

    def _hinted(self, name: str, look_up: Callable[[IndexReader], IndexEntry | None]) -> StartPlace | None:
        """Return the position that the log segment's index gives, if a commit with that sequence is there."""
        if not self._format.has_log_id:
            return None
        path = self._path(name)
        try:
            segment = self._names.open(name)
        except FileNotFoundError:
            return None
        with segment:
            log_id = self._format.log_id(path, memoryview(segment.read(0, HEAD_BYTES)))
            if log_id is None:
                return None
            with IndexReader(path, log_id) as index:
                entry = look_up(index)
            if entry is None or entry.offset <= 0 or entry.sequence < (first_sequence(self._format, name) or 0):
                return None
            expect = Expectation(entry.sequence)
            try:
                piece = read_piece(self._format, path, segment, entry.offset, expect, HEAD_BYTES)
            except (CorruptCommitError, SequenceGapError):
                return None  # the index may be at fault; if the log is, reading it reports that
        return StartPlace(name, entry.offset, expect) if piece is not None and len(piece.columns) else None

    def _last_in(self, name: str) -> StartPlace | None:
        """Return the last commit of a log segment; None if it has none."""
        hint = self._hinted(name, lambda index: index.before((1 << 63) - 1))
        place = hint or StartPlace(name, 0, Expectation())
        try:
            segment = self._names.open(name)
        except FileNotFoundError:
            return None
        with segment:
            return self._walk(segment, place, None)[0]

    def _count_to(self, names: list[str], sequence: int | None) -> StartPlace | None:
        """Return the commit with ``sequence`` (None: the last one) in a log whose records are counted from its
        beginning."""
        first, found = self._numbering.first(), None
        if sequence is not None and sequence < first:
            raise TruncatedError(sequence, first)
        expect = Expectation(first)
        for name in names:
            with self._names.open(name) as segment:
                if is_divisible(self._format):
                    end = segment.size() + (expect.sequence or 0)
                    found = StartPlace(name, 0, expect)
                    if sequence is not None and sequence < end:
                        offset = sequence - (expect.sequence or 0)
                        return StartPlace(name, offset, Expectation(sequence))
                    expect = Expectation(end)
                    continue
                place, expect = self._walk(segment, StartPlace(name, 0, expect), sequence)
                found = place or found
                if sequence is not None and expect.sequence is not None and sequence < expect.sequence:
                    break
        return found

    def _walk(
        self, segment: OpenSegment, place: StartPlace, sequence: int | None
    ) -> tuple[StartPlace | None, Expectation]:
        """Return the commit with ``sequence``, or else the last one, from ``place`` on; and what must follow it."""
        path = self._path(segment.name)
        offset, expect, found = place.offset, place.expect, None
        while (piece := read_piece(self._format, path, segment, offset, expect)) is not None and piece.end > offset:
            found = (offset, expect, piece)
            offset, expect = piece.end, piece.expect
            if sequence is not None and sequence < (expect.sequence or 0):
                break
        if found is None:
            return None, expect
        commit = self._pick(segment, path, found, sequence)
        return StartPlace(segment.name, commit.start, Expectation(commit.first)) if commit.start else place, expect

    def _pick(
        self, segment: OpenSegment, path: str, found: tuple[int, Expectation, DecodedCommits], sequence: int | None
    ) -> Commit:
        offset, expect, piece = found
        data = memoryview(segment.read(offset, piece.end - offset))
        commits = self._format.commits(path, data, offset, expect)
        if sequence is None:
            return commits[-1]
        return next((commit for commit in commits if sequence < commit.next), commits[-1])
