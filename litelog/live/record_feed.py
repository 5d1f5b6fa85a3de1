"""RecordFeed: the records of a served log for one reader, as encoded pieces: first the past, then the live end.

The past is read in threads, from the log's folder and its replicas. At the live end all readers share what the buffer
has read, and each encoding of it. A slow reader falls behind the buffer and continues from the folder: it costs
the memory of one piece, and delays no other reader.

Specified in litelog/live/README.md#records.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.formats.capabilities import is_divisible
from litelog.live.buffer_news import BufferNews
from litelog.live.encoding import piece_size

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from litelog.formats.columns import Columns
    from litelog.live.encoding import Piece, RecordEncoding
    from litelog.live.live_buffer import LiveRun
    from litelog.live.served_log import LiveReader, ServedLog
    from litelog.log.read_bounds import Start
    from litelog.objects.position import Position
    from litelog.reading.combined_reader import CombinedReader


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """A reader's request."""

    start: int | Start = "earliest"
    end: int | None = None
    """The first sequence that is not sent."""
    follow: bool = False
    """Continue with new records."""
    wait: float = 0.0
    """Without ``follow``: how many seconds to wait for the first record."""
    limit: int | None = None
    """The most records."""
    consumer: str | None = None
    """The consumer at whose position to begin, instead of at ``start``."""
    start_time: int | None = None
    """The time of the first record, in microseconds since 1970, instead of ``start``."""


class RecordFeed:
    """One reader's way through a log. Its methods run in one event loop."""

    def __init__(self, served: ServedLog, request: RecordRequest, encoding: RecordEncoding, reader: LiveReader) -> None:
        self._served = served
        self._request = request
        self._encoding = encoding
        self._reader = reader
        self._divisible = is_divisible(served.log.source.format)
        self._next: int | None = request.start if isinstance(request.start, int) else None
        self._position: Position | None = None
        """The end of the buffer, as it was last looked at."""
        self._left = request.limit
        self._past: CombinedReader | None = None
        self._news = BufferNews(served, reader, encoding.keep_alive())
        self._ended = False
        self._loop = asyncio.get_running_loop()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the encoded records. An empty piece means that no record is there yet.

        Raises:
            NotYetAvailableError: The daemon has not begun a generation of the log.
            OffsetJumpError: Records are gone everywhere. The error says which one is next.
            ForkedError: The log's history forked.
            LitelogError: The past cannot be read.
        """
        wanted, kind, is_cut = self._served.buffer.wanted, self._encoding.kind, self._is_cut
        if not is_cut:
            wanted.add(kind, self._encode_whole, is_decoded=True)
        try:
            with self._news as news:
                await news.require_begun()
                while not self._ended:
                    news.clear()
                    piece = await self._next_piece()
                    if piece is not None:
                        yield piece
                    elif not self._ended:
                        if self._request.follow and not self._reader.sent_bytes:
                            yield b""  # the answer begins before there is a record
                        if not await self._is_worth_waiting():
                            return
                        if not news.is_set:
                            yield self._encoding.keep_alive()
        finally:
            if not is_cut:
                wanted.remove(kind)
            self._leave_past()

    @property
    def _is_cut(self) -> bool:
        """Whether the request may end within a run."""
        return self._left is not None or self._request.end is not None

    async def _next_piece(self) -> bytes | None:
        """The next encoded records; None if there are none now."""
        buffer = self._served.buffer
        if self._next is None:
            self._next = self._find_word()
        view, runs = (buffer.view, None) if self._next is None else buffer.look_at(self._next)
        self._position = view.position
        self._news.require_same(view)
        if runs is None or self._past is not None:
            piece = await self._read_past(view.first if view.first is not None else view.next)
            self._news.require_same(buffer.view)
            return piece
        pieces = (self._encode_run(run) for run in runs)
        return next((piece for piece in pieces if piece), None)

    def _find_word(self) -> int | None:
        """The sequence that the request's start, such as "latest", means now; None if only the past shows it."""
        view, runs = self._served.buffer.look()
        if self._request.start == "end":
            return view.next
        for run in reversed(runs) if self._request.start == "latest" else ():
            if len(columns := self._served.columns(run)):
                return int(columns.sequences[-1])
        return None

    async def _read_past(self, stop: int | None) -> bytes | None:
        """Records that the buffer does not hold, up to where it begins."""
        if self._past is None:
            start = self._request.start if self._next is None else self._next
            self._past = self._served.read_past(start, None if start == "latest" else stop)
        columns = await asyncio.to_thread(self._past.read)
        if columns is None:
            self._leave_past()
            if self._next is None:
                self._next = stop or 0  # the log holds no record yet
            return b""
        return self._encode(columns) or b""

    def _leave_past(self) -> None:
        """Close the reader of the past, in a thread: a request of it may hang. Nothing waits for that."""
        past, self._past = self._past, None
        if past is not None and not self._loop.is_closed():
            self._loop.run_in_executor(None, past.close)

    def _encode_run(self, run: LiveRun) -> bytes:
        """The records of a run from the next one on. A whole run is encoded once for all readers."""
        kind, is_cut = self._encoding.kind, self._is_cut
        is_whole = not is_cut and run.first is not None and (self._next or 0) <= run.first
        if is_whole and run.find_encoded(kind) is not None:
            self._next = run.next
            return self._count(run.encoded(kind, bytes))
        columns = self._served.columns(run)
        if not len(columns):
            self._next = run.next if run.next is not None else self._next
            return b""
        if is_cut or (self._next or 0) > int(columns.sequences[0]):
            return self._encode(columns)
        self._next = run.next
        return self._count(run.encoded(kind, partial(self._encode_whole, run)))

    def find_piece(self, run: LiveRun) -> Piece | None:
        """As ``NextRun`` has it: no record comes between two runs that follow each other."""
        is_next = run.position == self._position and run.first is not None and (self._next or 0) <= run.first
        return run.find_encoded(self._encoding.kind) if is_next and not self._is_cut else None

    def pass_run(self, run: LiveRun, piece: Piece) -> None:
        """As ``NextRun`` has it."""
        self._next, self._position = run.next, run.after
        self._served.count(self._reader, piece_size(piece), run.next)

    def _encode_whole(self, run: LiveRun) -> bytes:
        """All records of a run. Any thread may call it."""
        return self._encoding.encode(self._served.columns(run))

    def _encode(self, columns: Columns) -> bytes:
        """Encode those records that the request asks for."""
        columns = columns.slice(columns.find(self._next or 0), len(columns))
        stop = len(columns)
        if self._request.end is not None:
            stop = columns.find(self._request.end)
            self._ended = stop < len(columns)
        if self._left is not None:
            stop = min(stop, self._left)
            self._left -= stop
            self._ended = self._ended or not self._left
        kept = columns.slice(0, stop)
        if not len(kept):
            return b""
        last = int(kept.sequences[-1])
        self._next = last + (int(kept.value_lengths[-1]) if self._divisible else 1)
        if self._request.end is not None and self._next >= self._request.end:
            self._ended = True
        return self._count(self._encoding.encode(kept))

    def _count(self, piece: bytes) -> bytes:
        self._served.count(self._reader, len(piece), self._next)
        return piece

    async def _is_worth_waiting(self) -> bool:
        """Whether to continue after no record was there. Waits for news, at most until a sign of life is due."""
        request = self._request
        if request.follow:
            await self._news.wait_for_life(self)
            return True
        if self._reader.sent_bytes or not request.wait:
            return False
        return await self._news.wait(request.wait)
