"""Reads the fragments of a journal as one log. A record is a line, or any bytes; its sequence is an offset."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from litelog.errors import CorruptObjectError, LogError
from litelog.formats import MAX_COMMIT_BYTES
from litelog.formats.columns import Columns
from litelog.formats.record_stream import RecordStream
from litelog.fragments.content import open_content
from litelog.fragments.cover import MAX_OFFSET, find_cover, list_fragments
from litelog.fragments.following import POLL_SECONDS, JournalFollower
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.fragments.cover import Span
    from litelog.stores.object_store import ObjectStore
    from litelog.system.clock import Clock

PIECE_BYTES = 4 << 20
"""How many bytes are decoded at a time."""

_NEWLINE = 10


class JournalGapError(LogError):
    """No fragment holds the bytes that come next. The next ``read`` continues after them."""

    def __init__(self, place: str, requested: int, following: int) -> None:
        self.requested = requested
        self.next = following
        super().__init__(f"{place}: no fragment holds the bytes {requested} to {following - 1} of the journal")


class FragmentReader(RecordStream):
    """Reads a journal from its fragments, in the journal's order.

    Each fragment is read and checked as a whole before its first record is returned.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        start: int | None = None,
        end: int | None = None,
        lines: bool = True,
        follow: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """List the fragments.

        Args:
            store: Where the journal's fragments are. The caller closes it.
            start: The offset to begin at; None: the first offset that a fragment holds.
            end: The offset to end before; None: no limit.
            lines: A record is a line without its end. Otherwise it is as many bytes as are decoded at once.
            follow: At the end, wait for new fragments instead of returning None.
            clock: For tests.

        Raises:
            NothingToRestoreError, ConfigError, StoreError: As ``list_fragments``.
        """
        super().__init__()
        self._store = store
        self._lines = lines
        self._start, self._end = start, MAX_OFFSET if end is None else end
        self._follower = JournalFollower(store, (clock or SystemClock()).monotonic) if follow else None
        self._closed = threading.Event()
        self._spans = [] if follow else self._wanted(find_cover(list_fragments(store)))
        self._at = start
        self._pieces: Iterator[Columns] | None = None

    def read(self) -> Columns | None:
        """Return the next records; None at the end, and after ``close``. A reader that follows waits at the end.

        Raises:
            ConfigError: A reader that follows found fragments of another journal.
            JournalGapError: Bytes are missing. The next call continues after them.
            CorruptObjectError: A fragment is damaged. The next call reads it again.
            StoreError: A request failed. The next call makes it again.
        """
        while True:
            if self._pieces is None and not self._open_next():
                return None
            piece = self._next_piece()
            if piece is None and self._spans:
                self._at = self._spans.pop(0).stop
                self._pieces = None
            elif piece is None:
                return None  # it was closed
            elif len(piece := self._within(piece)):
                last = 1 if self._lines else int(piece.value_lengths[-1])
                self._start = int(piece.sequences[-1]) + last
                return piece

    def _open_next(self) -> bool:
        """Begin the next span. Return False if there is none. Raises JournalGapError."""
        if not self._spans:
            self._await_spans()
        if not self._spans or self._spans[0].start >= self._end:
            return False
        span, requested = self._spans[0], self._at
        if requested is not None and requested < span.start:
            self._at = span.start
            raise JournalGapError(self._store.url, requested, span.start)
        self._pieces = read_span(self._store, span, lines=self._lines)
        return True

    def _await_spans(self) -> None:
        """Wait for new fragments, if this reader follows, and neither reached its end nor was closed."""
        while self._follower is not None and not self._spans and (self._at or 0) < self._end:
            if self._closed.is_set():
                return
            self._spans = self._wanted(self._follower.look())
            if not self._spans:
                self._closed.wait(POLL_SECONDS)

    def _wanted(self, spans: list[Span]) -> list[Span]:
        return [span for span in spans if span.stop > (self._start or 0)]

    def _next_piece(self) -> Columns | None:
        """The next piece of the current span; None at its end. After an error, the next call of ``read`` begins the
        span again."""
        pieces, self._pieces = self._pieces, None
        piece = None if pieces is None else next(pieces, None)
        self._pieces = pieces
        return piece

    def close(self) -> None:
        self._closed.set()
        self._spans.clear()
        self._pieces = None

    def _within(self, piece: Columns) -> Columns:
        """The records of ``piece`` that begin within the bounds. Bytes are cut there."""
        first, stop = self._start or 0, self._end
        if self._lines:
            return piece.slice(piece.find(first), piece.find(stop))
        start = max(0, first - int(piece.sequences[0]))
        length = min(int(piece.value_lengths[0]), stop - int(piece.sequences[0])) - start
        return (
            _whole(piece.data[start : start + length], int(piece.sequences[0]) + start)
            if length > 0
            else piece.slice(0, 0)
        )


def read_span(store: ObjectStore, span: Span, *, lines: bool) -> Iterator[Columns]:
    """Yield the records of a span, at least one at a time.

    An append to a journal holds whole lines, so a span does, too. If its last line has no end, it is a record as well.

    Raises CorruptObjectError, NotFoundError and StoreError before the first record.
    """
    with open_content(store, span.fragment) as content:
        content.seek(span.start - span.fragment.begin)
        at, rest = span.start, b""
        while at + len(rest) < span.stop:
            more = content.read(min(PIECE_BYTES, span.stop - at - len(rest)))
            data = rest + more
            end = len(data)
            if lines and at + end < span.stop:
                end = data.rfind(b"\n") + 1
            rest = data[end:]
            if len(rest) > MAX_COMMIT_BYTES:
                raise CorruptObjectError(
                    span.fragment.key, f"number of bytes of the line at {at}", f"up to {MAX_COMMIT_BYTES}", len(rest)
                )
            if end:
                piece = memoryview(data)[:end]
                yield _split(piece, at) if lines else _whole(piece, at)
                at += end


def _whole(data: memoryview, at: int) -> Columns:
    """One record that holds all of ``data``."""
    one = np.zeros(1, np.int64)
    return Columns(data, one + at, None, None, None, one, one + len(data))


def _split(data: memoryview, at: int) -> Columns:
    """The lines of ``data``, without their ends."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    if not len(ends) or int(ends[-1]) + 1 < len(data):
        ends = np.append(ends, len(data))
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    return Columns(data, starts + at, None, None, None, starts, ends - starts)
