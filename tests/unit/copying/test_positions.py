"""Positions of consumers in a copy: carried from the replica, never ahead of the records, and never over own ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

import litelog
from litelog.consumers.position_objects import MOST, PositionObjects
from litelog.copying.execution import copy
from litelog.objects import layout
from litelog.stores.registry import open_store
from tests.builders.growing_replica import GrowingReplica
from tests.builders.stores import CountingStore
from tests.builders.verify_helper import everything, found, verified

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.stores.object_store import ObjectInfo
    from replica_clients.memory import MemoryStore

NAME = "billing"


@pytest.fixture
def target(request: pytest.FixtureRequest) -> MemoryStore:
    return cast("MemoryStore", open_store(f"memory://target-{request.node.name}"))


@pytest.fixture
def source(request: pytest.FixtureRequest) -> MemoryStore:
    """A replica."""
    made = cast("MemoryStore", open_store(f"memory://source-{request.node.name}"))
    everything().put_into(made)
    return made


def move(store: MemoryStore, following: int, times: int = 1) -> None:
    kept = PositionObjects(store.url, {}).of(NAME)
    for _ in range(times):
        kept.move(kept.read(), following, None, 1)


def place(store: MemoryStore) -> int | None:
    position = PositionObjects(store.url, {}).of(NAME).read()
    return None if position is None else position.next


def test_a_copy_has_the_positions_of_the_replica(source: MemoryStore, target: MemoryStore) -> None:
    before = copy(source, target)
    assert (place(target), before.foreign) == (None, 0)
    for following in (1, 2, 3):
        move(source, following, times=2 * MOST)  # far more than are kept between two copies
        done = copy(source, target)
        assert (place(target), done.objects, done.foreign) == (following, 1, 0)
        assert len(list(target.list(layout.CONSUMERS))) <= 2
    assert copy(source, target).objects == 0
    assert found(verified(target)) == []
    PositionObjects(source.url, {}).of(NAME).delete()
    copy(source, target)
    assert place(target) is None


def test_the_first_copy_of_a_replica_with_consumers_has_as_many_objects_as_it(
    source: MemoryStore, target: MemoryStore
) -> None:
    """Of the positions of a consumer, the newest one counts, and only that is copied."""
    move(source, 3, times=5)
    done = copy(source, target)
    assert (done.objects, done.bytes) == (done.total, done.total_bytes)
    assert done.total == len(everything().objects()) + 1


def test_a_consumer_that_moved_in_the_copy_keeps_its_position(source: MemoryStore, target: MemoryStore) -> None:
    move(source, 1)
    copy(source, target)
    move(target, 2)
    move(source, 7, times=5)
    assert copy(source, target).objects == 0
    assert (place(source), place(target)) == (7, 2)
    PositionObjects(target.url, {}).of("audit").force(3, 1)
    copy(source, target)
    assert PositionObjects(target.url, {}).names() == ["audit", NAME]


def test_a_position_in_a_copy_is_not_ahead_of_its_records(tmp_path: Path) -> None:
    """A consumer processes what was appended after the copy had listed the replica."""
    growing = GrowingReplica(tmp_path / "replica").grow(3)

    def consume(place: str) -> list[int]:
        with litelog.Consumer(place, NAME, follow=False) as consumer:
            sequences = [record.sequence for record in consumer]
            consumer.commit()
            return sequences

    assert consume(growing.url) == [0, 1, 2]

    class Growing(CountingStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            found = list(super().list(prefix, start_after))
            if prefix == "" and self.requests["grown"] == 0:
                self.requests["grown"] += 1
                growing.grow(2)
                assert consume(growing.url) == [3, 4]
            return iter(found)

    target = open_store(str(tmp_path / "copy"))
    copy(Growing(open_store(growing.url)), target)
    assert PositionObjects(growing.url, {}).of(NAME).read().next == 5  # type: ignore[union-attr]
    assert consume(str(tmp_path / "copy")) == []
    copy(open_store(growing.url), target)
    assert consume(str(tmp_path / "copy")) == []


def test_a_damaged_position_is_not_carried_and_stops_no_copy(source: MemoryStore, target: MemoryStore) -> None:
    move(source, 1)
    (key,) = (info.key for info in source.list(layout.CONSUMERS))
    source.delete([key])
    source.put(key, [b"{}"])
    PositionObjects(source.url, {}).of("audit").force(2, 1)
    copy(source, target)
    assert PositionObjects(target.url, {}).names() == ["audit"]
    assert [each[1] for each in found(verified(source))] == [key]


def spoil(store: MemoryStore, body: bytes = b"{}") -> str:
    """Damage the newest object. Returns its key."""
    key = max(info.key for info in store.list(layout.CONSUMERS))
    store.delete([key])
    store.put(key, [body])
    return key


def test_the_position_before_a_damaged_one_is_carried(source: MemoryStore, target: MemoryStore) -> None:
    move(source, 1)
    move(source, 2)
    spoil(source)
    copy(source, target)
    assert place(source) == place(target) == 1
    move(source, 3)
    copy(source, target)
    assert place(source) == place(target) == 3


@pytest.mark.parametrize("body", [b"{}", b'{"version": 9}'])
def test_a_consumer_of_the_copy_whose_newest_position_cannot_be_read_keeps_it(
    source: MemoryStore, target: MemoryStore, body: bytes
) -> None:
    move(target, 1)
    move(target, 5)
    key = spoil(target, body)
    move(source, 7, times=9)
    assert copy(source, target).objects == len(everything().objects())
    assert max(info.key for info in target.list(layout.CONSUMERS)) == key
    spoil(target, body)
    move(source, 8)
    assert copy(source, target).objects == 0
    if body == b"{}":
        assert place(target) == 1


def test_a_damaged_position_that_was_carried_is_replaced(source: MemoryStore, target: MemoryStore) -> None:
    move(source, 1)
    copy(source, target)
    move(source, 2)
    copy(source, target)
    spoil(target)
    move(source, 3)
    copy(source, target)
    assert place(target) == 3
