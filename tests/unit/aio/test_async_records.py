"""Records in an event loop: the loop stays free, a cancelled task loses none, and commits cover what was returned."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import litelog
from litelog.aio import follow
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """The folder of a log with five records."""
    append(str(tmp_path / "orders"), *(b"%d" % number for number in range(5)))
    return str(tmp_path / "orders")


def append(log: str, *values: bytes) -> None:
    with litelog.LogWriter(log, fsync="never") as writer:
        writer.append(list(values))


def consumer_of(orders: str, tmp_path: Path, **options: bool) -> litelog.Consumer:
    return litelog.Consumer(orders, "billing", state_dir=str(tmp_path / "state"), **options)  # type: ignore[arg-type]


def test_each_record_is_returned_in_order(orders: str) -> None:
    async def work() -> list[int]:
        async with follow(litelog.LogReader(orders, start=1)) as records:
            return [record.sequence async for record in records]

    assert asyncio.run(work()) == [1, 2, 3, 4]


def test_the_loop_stays_free_while_a_task_waits(orders: str) -> None:
    async def work() -> bytes:
        async with follow(litelog.LogReader(orders, start=5, follow=True)) as records:
            waiting = asyncio.create_task(anext(records))
            await asyncio.to_thread(append, orders, b"new")
            return (await asyncio.wait_for(waiting, WAIT_SECONDS)).value

    assert asyncio.run(work()) == b"new"


def test_a_cancelled_task_loses_no_record(orders: str) -> None:
    async def work() -> list[int]:
        async with follow(litelog.LogReader(orders, follow=True)) as records:
            seen = [(await anext(records)).sequence for _ in range(5)]
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(records), 0.001)
            await asyncio.to_thread(append, orders, b"5", b"6")
            return seen + [(await asyncio.wait_for(anext(records), WAIT_SECONDS)).sequence for _ in range(2)]

    assert asyncio.run(work()) == list(range(7))


def test_a_commit_covers_the_records_that_were_returned(orders: str, tmp_path: Path) -> None:
    async def work(count: int) -> list[int]:
        async with follow(consumer_of(orders, tmp_path, follow=False)) as records:
            seen: list[int] = []
            async for record in records:
                seen.append(record.sequence)
                if len(seen) == count:
                    await records.commit()
                    break
            return seen

    assert asyncio.run(work(2)) == [0, 1]
    assert consumer_of(orders, tmp_path).position == 2
    assert asyncio.run(work(3)) == [2, 3, 4]
    assert consumer_of(orders, tmp_path).position == 5


def test_a_commit_after_a_cancellation_leaves_out_what_was_read_ahead(orders: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with follow(consumer_of(orders, tmp_path)) as records:
            for _ in range(5):
                await anext(records)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.001)
            await asyncio.to_thread(append, orders, b"5")
            assert records._reading is not None
            await asyncio.to_thread(records._reading.result, WAIT_SECONDS)  # read, and not returned
            await records.commit()

    asyncio.run(work())
    assert consumer_of(orders, tmp_path).position == 5


def test_closing_ends_a_task_that_waits(orders: str) -> None:
    async def work() -> list[int]:
        records = follow(litelog.LogReader(orders, start="end", follow=True))

        async def consume() -> list[int]:
            return [record.sequence async for record in records]

        task = asyncio.create_task(consume())
        await asyncio.sleep(0)
        await records.aclose()
        return await asyncio.wait_for(task, WAIT_SECONDS)

    assert asyncio.run(work()) == []


def test_errors_of_the_reader_are_raised_by_the_iteration(tmp_path: Path, orders: str) -> None:
    async def work() -> None:
        async with follow(litelog.LogReader(tmp_path / "none")) as records:
            with pytest.raises(litelog.SourceMissingError):
                await anext(records)
        async with follow(litelog.LogReader(orders)) as records:
            with pytest.raises(litelog.ConfigError, match="only a consumer"):
                await records.commit()

    asyncio.run(work())
