"""The readers of a buffer that wait in one event loop are woken together."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from litelog.live import news_desk
from litelog.live.news_desk import NewsDesk
from litelog.system.change_signal import ChangeSignal

if TYPE_CHECKING:
    import pytest

    from litelog.live.live_buffer import LiveRun


class Buffer:
    """A buffer without runs."""

    def __init__(self) -> None:
        self.changes = ChangeSignal()

    def newest(self) -> None:
        return None


class Reader:
    """Counts the news that it gets."""

    def __init__(self, takes: bool = False) -> None:
        self.takes = takes
        self.woken = self.taken = 0
        self.passed = asyncio.Event()

    def take(self, run: LiveRun | None) -> bool:
        assert run is None
        self.taken += 1
        return self.takes

    def hear(self) -> None:
        self.woken += 1

    def pass_time(self) -> None:
        self.passed.set()


def test_many_changes_wake_each_reader_once_and_one_that_left_never() -> None:
    async def run() -> list[int]:
        buffer, readers = Buffer(), [Reader() for _ in range(50)]
        changes, desk = buffer.changes, NewsDesk(buffer)
        for reader in readers:
            desk.join(reader)
        desk.leave(readers[0])
        for _ in range(2):
            thread = threading.Thread(target=lambda: [changes.notify() for _ in range(10)])
            thread.start()
            thread.join()  # the loop has not run meanwhile
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        for reader in readers[1:]:
            desk.leave(reader)
        changes.notify()
        await asyncio.sleep(0)
        return [reader.woken for reader in readers]

    assert asyncio.run(run()) == [0] + [2] * 49


def test_the_loop_wakes_only_if_a_reader_did_not_take_the_change() -> None:
    async def run(readers: list[Reader]) -> int:
        buffer, woken = Buffer(), 0
        desk, loop = NewsDesk(buffer), asyncio.get_running_loop()
        call_soon = loop.call_soon_threadsafe

        def count(*arguments: object) -> asyncio.Handle:
            nonlocal woken
            woken += 1
            return call_soon(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = count  # type: ignore[method-assign,assignment]
        for reader in readers:
            desk.join(reader)
        buffer.changes.notify()
        for reader in readers:
            desk.leave(reader)
        assert [reader.taken for reader in readers] == [1] * len(readers)
        return woken

    assert asyncio.run(run([Reader(takes=True), Reader(takes=True)])) == 0
    assert asyncio.run(run([Reader(takes=True), Reader()])) == 1


def test_one_timer_gives_all_readers_their_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_desk, "KEEP_ALIVE_SECONDS", 0.001)

    async def run() -> int:
        desk, readers, timers = NewsDesk(Buffer()), [Reader() for _ in range(20)], 0
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def count(*arguments: object) -> asyncio.TimerHandle:
            nonlocal timers
            timers += 1
            return call_later(*arguments)  # type: ignore[arg-type]

        loop.call_later = count  # type: ignore[method-assign,assignment]
        for reader in readers:
            desk.join(reader)
        begun = timers
        for _ in range(2):
            for reader in readers:
                await reader.passed.wait()
                reader.passed.clear()
        for reader in readers:
            desk.leave(reader)
        return begun

    assert asyncio.run(run()) == 1
