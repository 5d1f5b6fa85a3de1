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


class Reader:
    """Counts the news that it gets."""

    def __init__(self) -> None:
        self.woken = 0
        self.passed = asyncio.Event()

    def wake(self) -> None:
        self.woken += 1

    def pass_time(self) -> None:
        self.passed.set()


def test_many_changes_wake_each_reader_once_and_one_that_left_never() -> None:
    async def run() -> list[int]:
        changes, readers = ChangeSignal(), [Reader() for _ in range(50)]
        desk = NewsDesk(changes)
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


def test_one_timer_gives_all_readers_their_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_desk, "KEEP_ALIVE_SECONDS", 0.001)

    async def run() -> int:
        desk, readers, timers = NewsDesk(ChangeSignal()), [Reader() for _ in range(20)], 0
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
