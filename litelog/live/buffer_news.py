"""BufferNews: lets a reader in an event loop wait for a buffer, and notices when the buffer begins again.

A reader that waits at the end lends its connection to the thread that publishes runs. That thread sends the next run if
it is encoded, and the reader's loop sleeps on. Whatever else happens ends the loan first, and wakes the reader.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from litelog.errors import DivergedError, NotYetAvailableError

if TYPE_CHECKING:
    from types import TracebackType

    from litelog.live.encoding import Piece
    from litelog.live.live_buffer import BufferView, LiveRun
    from litelog.live.served_log import LiveReader, ServedLog

PLACE_SECONDS = 10.0
"""How many seconds a request waits for the buffer of its log to begin."""


class ForkedError(DivergedError):
    """The log's history forked while it was read: what was sent may no longer exist."""


class NextRun(Protocol):
    """A reader's place at the end of a buffer. The publishing thread calls it while the reader waits."""

    def find_piece(self, run: LiveRun) -> Piece | None:
        """The run in the reader's form; None unless it begins at the place and is encoded."""

    def pass_run(self, run: LiveRun, piece: Piece) -> None:
        """The piece was sent: continue after the run."""


class BufferNews:
    """A context manager. Its methods run in one event loop, except for ``take``."""

    def __init__(self, served: ServedLog, reader: LiveReader, sign_of_life: bytes) -> None:
        self._reader = reader
        self._sign_of_life = sign_of_life
        self._name = served.name
        self._buffer = served.buffer
        self._desk = served.desk
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        """Guards the two fields below."""
        self._is_news = False
        self._place: NextRun | None = None
        """While another thread may send to the reader: its place."""
        self._waiting: asyncio.Future[bool] | None = None
        self._awaits_tick = False
        self._history = -1

    def __enter__(self) -> Self:
        self._desk.join(self)
        self._reader.wake = self.wake
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._desk.leave(self)

    def take(self, run: LiveRun | None) -> bool:
        """Send the newest run, if the reader waits for just that. Returns False if there is other news: the event loop
        has to call ``hear``. The buffer's threads call it after each change."""
        with self._lock:
            place, connection = self._place, self._reader.connection
            if run is not None and place is not None and connection is not None:
                piece = place.find_piece(run)
                if piece and connection.send(piece):
                    place.pass_run(run, piece)
                    return True
            self._is_news, self._place = True, None  # what comes after it takes the same way
            return False

    def hear(self) -> None:
        """Wake the reader if there is news."""
        if self._is_news:
            self._end_wait(is_news=True)

    def wake(self) -> None:
        """There is news."""
        self._end_loan(is_news=True)
        self._end_wait(is_news=True)

    def pass_time(self) -> None:
        """A sign of life is due."""
        connection = self._reader.connection
        if self._awaits_tick and (connection is None or not connection.send_sign(self._sign_of_life)):
            self._end_wait(is_news=False)

    async def require_begun(self) -> None:
        """Wait until the buffer has begun. Raises NotYetAvailableError if the daemon has not begun a generation."""
        deadline = self._loop.time() + PLACE_SECONDS
        while self._buffer.view.generation is None:
            left = deadline - self._loop.time()
            if left <= 0:
                reason = self._buffer.view.error or "its daemon has not begun a generation yet"
                raise NotYetAvailableError(f"{self._name}: {reason}")
            self.clear()
            await self.wait(min(left, 1.0))
        self._history = self._buffer.view.history

    def require_same(self, view: BufferView) -> None:
        """Raise ForkedError if what was sent may be of another history than ``view``, and the error that the reader's
        stream has to end with."""
        if self._reader.ended_by is not None:
            raise self._reader.ended_by
        if view.history != self._history:
            reason = f"its history forked; generation {view.generation} continues at sequence {view.first}"
            raise ForkedError(self._name, reason)

    @property
    def is_set(self) -> bool:
        """Whether there was news since ``clear``."""
        return self._is_news

    def clear(self) -> None:
        """Forget the news. Call it before the buffer is looked at."""
        self._is_news = False

    async def wait(self, seconds: float) -> bool:
        """Wait for news; return whether there was any."""
        timer = self._loop.call_later(max(seconds, 0.0), partial(self._end_wait, is_news=False))
        try:
            return await self._wait()
        finally:
            timer.cancel()

    async def wait_for_life(self, place: NextRun) -> bool:
        """Wait for news, at most until the caller has to send a sign of life; return whether there was any. Meanwhile,
        runs from ``place`` on may be sent."""
        self._awaits_tick = True
        try:
            self._lend(place)
            return await self._wait()
        finally:
            self._awaits_tick = False
            self._end_loan()

    def _lend(self, place: NextRun) -> None:
        """Let another thread send the next runs. After news that was not looked at, none is the next."""
        if self._reader.connection is not None:
            with self._lock:
                self._place = None if self._is_news else place
            self._reader.connection.lend()

    def _end_loan(self, *, is_news: bool = False) -> None:
        """No other thread sends to the reader from now on, and what was begun comes first."""
        with self._lock:
            self._place = None
            self._is_news = self._is_news or is_news
        if self._reader.connection is not None:
            self._reader.connection.take_back()

    async def _wait(self) -> bool:
        if self._is_news:
            return True
        waiting: asyncio.Future[bool] = self._loop.create_future()
        self._waiting = waiting
        try:
            return await waiting
        finally:
            self._waiting = None

    def _end_wait(self, *, is_news: bool) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(is_news)
