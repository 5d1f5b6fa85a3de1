"""A reader that waits at the end gets the next run from the thread that publishes it. Everything else wakes its loop
first."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import LogError
from litelog.live.buffer_news import BufferNews, ForkedError
from litelog.live.live_buffer import BufferView
from litelog.live.news_desk import NewsDesk
from litelog.live.served_log import LiveReader
from litelog.objects.position import Generation
from litelog.system.change_signal import ChangeSignal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from litelog.live.encoding import Piece


class Buffer:
    """A buffer whose runs are numbers: each follows the one before."""

    def __init__(self) -> None:
        self.changes = ChangeSignal()
        self.view = BufferView(Generation("0000000100000001"), 1)
        self.runs: list[int] = []

    def newest(self) -> Any:
        return self.runs[-1] if self.runs else None

    def publish(self, *runs: int) -> None:
        """As the buffer's thread does."""

        def run() -> None:
            for number in runs:
                self.runs.append(number)
                self.changes.notify()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    def begin_again(self) -> None:
        self.runs = []
        self.view = BufferView(Generation("0000000100000001"), 2)
        self.changes.notify()


class Connection:
    """Takes every piece while it is lent, and what ``takes`` permits."""

    def __init__(self) -> None:
        self.is_lent = False
        self.takes = True
        self.sent: list[Piece] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What another thread does as soon as it is lent."""

    def lend(self) -> None:
        self.is_lent = True
        self.meanwhile()

    def send(self, piece: Piece) -> bool:
        if self.is_lent and self.takes:
            self.sent.append(piece)
        return self.is_lent and self.takes

    def take_back(self) -> None:
        self.is_lent = False

    def send_sign(self, piece: bytes) -> bool:
        return self.send(piece)


class Reader:
    """A reader of the buffer, whose next run is ``next``."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.next = 0
        self.connection = Connection()
        self.live = LiveReader("records", 0.0, connection=self.connection)
        self.news = BufferNews(
            SimpleNamespace(name="log", buffer=buffer, desk=NewsDesk(buffer)),  # type: ignore[arg-type]
            self.live,
            b"alive",
        )

    def find_piece(self, run: Any) -> Piece | None:
        return b"%d" % run if run == self.next else None

    def pass_run(self, run: Any, piece: Piece) -> None:
        assert piece == b"%d" % run
        self.next = run + 1


def with_waiting_reader(act: Callable[[Reader, asyncio.Task[bool]], Awaitable[None]]) -> Reader:
    """Let a reader wait for its next run, and do ``act`` meanwhile."""

    async def run() -> Reader:
        reader = Reader(Buffer())
        with reader.news:
            await reader.news.require_begun()
            waiting = asyncio.ensure_future(reader.news.wait_for_life(reader))
            await asyncio.sleep(0)
            assert reader.connection.is_lent
            await act(reader, waiting)
            waiting.cancel()
        return reader

    return asyncio.run(run())


async def settle() -> None:
    """Let the loop do what was asked of it."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_runs_that_follow_each_other_are_sent_and_wake_nobody() -> None:
    async def act(reader: Reader, waiting: asyncio.Task[bool]) -> None:
        reader.buffer.publish(0, 1)
        reader.buffer.publish(2)
        await settle()
        assert not waiting.done()

    reader = with_waiting_reader(act)
    assert (reader.connection.sent, reader.next) == ([b"0", b"1", b"2"], 3)


def test_a_run_that_is_not_the_next_wakes_the_reader_before_any_is_sent() -> None:
    async def act(reader: Reader, waiting: asyncio.Task[bool]) -> None:
        reader.buffer.publish(1, 0)  # the second would be the next one
        assert await waiting

    assert with_waiting_reader(act).connection.sent == []


def test_a_run_that_is_not_taken_is_for_the_loop_and_so_is_the_next() -> None:
    async def act(reader: Reader, waiting: asyncio.Task[bool]) -> None:
        reader.connection.takes = False
        reader.buffer.publish(0)
        reader.connection.takes = True
        reader.next = 1  # even then
        reader.buffer.publish(1)
        assert await waiting
        assert not reader.connection.is_lent

    assert with_waiting_reader(act).connection.sent == []


def test_nothing_of_another_history_is_sent() -> None:
    """The buffer begins again between the wait and the run that would be the next one."""

    async def act(reader: Reader, waiting: asyncio.Task[bool]) -> None:
        reader.buffer.publish(0)
        reader.buffer.begin_again()
        reader.buffer.publish(1)
        assert await waiting
        with pytest.raises(ForkedError):
            reader.news.require_same(reader.buffer.view)

    assert with_waiting_reader(act).connection.sent == [b"0"]


def test_news_that_came_before_the_wait_are_looked_at_first() -> None:
    async def act(reader: Reader, waiting: asyncio.Task[bool]) -> None:
        waiting.cancel()
        await settle()
        reader.buffer.publish(0)  # the loop has not heard of it yet
        reader.next = 1
        reader.connection.meanwhile = lambda: reader.buffer.publish(1)
        assert await reader.news.wait_for_life(reader)

    assert with_waiting_reader(act).connection.sent == []


def test_a_reader_whose_token_is_revoked_gets_nothing_more() -> None:
    async def act(reader: Reader, waiting: asyncio.Task[bool]) -> None:
        reader.live.end(LogError("revoked"))
        reader.buffer.publish(0)
        assert await waiting

    assert with_waiting_reader(act).connection.sent == []


def test_a_reader_that_left_gets_nothing_more() -> None:
    async def act(reader: Reader, waiting: asyncio.Task[bool]) -> None:
        waiting.cancel()
        await settle()
        reader.connection.is_lent = True
        reader.buffer.publish(0)

    assert with_waiting_reader(act).connection.sent == []
