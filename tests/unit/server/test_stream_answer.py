"""The answer with a stream ends as a whole, wherever its client leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.live.encoding import JsonLines
from litelog.live.reader_limits import LimitCounts, ReaderLimits
from litelog.live.wal_feed import WalFraming
from litelog.server import stream_answer
from litelog.server.stream_answer import Compressor, StreamPace, answer_stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Message

    from litelog.live.encoding import StreamFraming


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("sent", [0, 1, 2])
def test_a_stream_whose_client_leaves_frees_its_reader(sent: int, is_compressed: bool) -> None:
    """The client reads ``sent`` messages, of which the first one is the head, and no more."""

    async def answer() -> list[str]:
        gone, ended, messages = asyncio.Event(), list[str](), []  # type: tuple[asyncio.Event, list[str], list[Message]]

        async def pieces() -> AsyncGenerator[bytes, None]:
            try:
                while True:
                    yield b"piece"
            finally:
                ended.append("pieces")

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if len(messages) == sent:
                gone.set()
                await asyncio.Event().wait()
            messages.append(message)

        pace = StreamPace(ReaderLimits(), LimitCounts())
        compressor = Compressor() if is_compressed else None
        response = await answer_stream(pieces(), WalFraming(), lambda: ended.append("reader"), pace, compressor)
        scope = {"type": "http", "method": "GET", "asgi": {"version": "3.0", "spec_version": "2.3"}}
        await response(scope, receive, send)
        return ended

    assert asyncio.run(answer()) == ["reader", "pieces"]


@pytest.mark.parametrize("framing", [JsonLines(["value"]), WalFraming()])
def test_a_slowed_reader_gets_signs_of_life(monkeypatch: pytest.MonkeyPatch, framing: StreamFraming) -> None:
    """At a byte in a second, the pause after the first piece would last for minutes."""
    monkeypatch.setattr(stream_answer, "KEEP_ALIVE_SECONDS", 0.001)

    async def answer() -> tuple[list[bytes], LimitCounts]:
        bodies, enough, counts = list[bytes](), asyncio.Event(), LimitCounts()

        async def pieces() -> AsyncGenerator[bytes, None]:
            while True:
                yield bytes(1000)

        async def receive() -> Message:
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            bodies.append(message.get("body", b""))
            if len(bodies) == 6:
                enough.set()

        pace = StreamPace(ReaderLimits(rate=1), counts)
        response = await answer_stream(pieces(), framing, lambda: None, pace, None)
        scope = {"type": "http", "method": "GET", "asgi": {"version": "3.0", "spec_version": "2.3"}}
        await response(scope, receive, send)
        return [body for body in bodies if body], counts

    bodies, counts = asyncio.run(answer())
    assert bodies[:3] == [bytes(1000), framing.keep_alive(), framing.keep_alive()]
    assert 990 < counts.slowed_seconds <= 1000
