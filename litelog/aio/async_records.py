"""AsyncRecords: the records of a stream for asyncio. A thread waits for them, so the event loop does not."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from litelog.consumers.background_read import read_in_background
from litelog.consumers.consumer import Consumer
from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from types import TracebackType

    from litelog.formats.columns import Columns, Record
    from litelog.formats.record_stream import RecordStream


class AsyncRecords:
    """An asynchronous iterator of Record, and an asynchronous context manager. It keeps one batch in memory.

    If a task is cancelled while it waits for a record, no record is lost: the next iteration gets it.
    """

    def __init__(self, stream: RecordStream) -> None:
        """For ``follow``, which makes the object."""
        self._stream = stream
        self._reading: Future[Columns | None] | None = None
        self._records: Iterator[Record] = iter(())
        self._following: Iterator[int | None] = iter(())
        self._processed: int | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while (record := next(self._records, None)) is None:
            columns = await self._read()
            if columns is None:
                raise StopAsyncIteration
            self._records = iter(columns.records())
            end = self._stream.next_sequence if isinstance(self._stream, Consumer) else None
            self._following = iter([*columns.sequences[1:].tolist(), end])
        self._processed = next(self._following)
        return record

    async def commit(self) -> None:
        """Commit the record that was returned last, and all before it.

        Raises as ``Consumer.commit``, and ConfigError if the stream is not a consumer.
        """
        if not isinstance(self._stream, Consumer):
            raise ConfigError("only a consumer has a position to commit: follow a litelog.Consumer")
        if self._processed is not None:
            await asyncio.to_thread(self._stream.commit, self._processed)

    async def aclose(self) -> None:
        """End the iteration: the wait of a task ends without a record. Idempotent."""
        self._closed = True
        self._records = iter(())
        await asyncio.to_thread(self._stream.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _read(self) -> Columns | None:
        """The next batch of the stream. A read that began before a cancellation is continued."""
        if self._closed:
            return None
        reading = self._reading
        if reading is None:
            reading = self._reading = read_in_background(self._stream.read)
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def wake(_: Future[Columns | None]) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(done.set)

        reading.add_done_callback(wake)
        await done.wait()
        self._reading = None
        return reading.result()


def follow(stream: RecordStream) -> AsyncRecords:
    """Return the records of a reader as an asynchronous iterator.

        async with litelog.aio.follow(litelog.LogReader("orders", follow=True)) as records:
            async for record in records:
                await process(record)

    Args:
        stream: A ``LogReader``, what ``open_replica`` returns, or a ``Consumer``. With its ``follow=True`` it waits
            for new records. Nothing else may read from it, and closing the iterator closes it.

    Returns:
        The records.

    Raises:
        Nothing. The iteration raises what the stream's ``read`` raises.
    """
    return AsyncRecords(stream)
