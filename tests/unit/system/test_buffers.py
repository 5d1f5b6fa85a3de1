"""Room for buffers: bytes are counted, a waiter gets on, and a process with little memory gets little of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from litelog.system import buffers
from litelog.system.buffers import DEFAULT_BYTES, Portion, Room, limit_buffers
from tests.builders.stores import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def limits() -> Iterator[None]:
    """Sets the process's limit back afterwards."""
    yield
    limit_buffers(DEFAULT_BYTES)


def test_no_more_bytes_are_taken_than_there_is_room_for() -> None:
    room, most, counting = Room(100), 0, threading.Lock()

    def work(size: int) -> None:
        nonlocal most
        room.take(size)
        with counting:
            most = max(most, room.used)
        room.give_back(size)

    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(work, [30, 40, 50] * 200, timeout=WAIT_SECONDS))
    assert len(done) == 600
    assert 30 <= most <= 100
    assert room.used == 0


def test_something_larger_than_the_limit_has_all_of_the_room() -> None:
    room = Room(10)
    room.take(25)
    assert not room.try_take(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(room.take, 5)
        assert not waiting.done()
        room.give_back(25)
        waiting.result(WAIT_SECONDS)
    assert room.used == 5


def test_what_cannot_wait_takes_only_what_is_free() -> None:
    room = Room(10)
    assert room.try_take(6)
    assert not room.try_take(5)
    assert room.try_take(4)
    assert room.used == 10
    assert not Room(10).try_take(11)


def test_a_higher_limit_wakes_those_who_wait() -> None:
    room = Room(10)
    room.take(10)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(room.take, 10)
        room.set_limit(20)
        waiting.result(WAIT_SECONDS)
    assert room.used == 20


def test_one_user_may_take_all_of_a_room_and_several_take_half_of_it() -> None:
    room = Room(100)
    one, other = Portion(room), Portion(room)
    first = one.try_take(60)
    assert first is not None
    assert one.has_room(40)
    assert not one.has_room(41)
    assert not other.has_room(1)
    assert other.try_take(1) is None
    second = other.take_anyway(5)
    assert not one.has_room(1)  # another one is there
    first.resize(20)
    assert one.has_room(25)
    assert one.try_take(26) is None
    first.give_back()
    assert (room.used, other.has_room(95)) == (5, True)
    second.resize(200)  # its buffer grew
    assert room.used == other.size == 200
    for share in (first, second, second):
        share.give_back()
    assert (room.used, one.size, other.size) == (0, 0, 0)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("size", [1 << 20, 4 << 20, DEFAULT_BYTES, 1 << 30])
def test_the_rooms_of_a_process_hold_together_what_it_was_given(size: int) -> None:
    limit_buffers(size)
    assert size - 3 < buffers.PARTS.limit + buffers.AHEAD.limit <= size
    assert buffers.RUNS.limit == size
