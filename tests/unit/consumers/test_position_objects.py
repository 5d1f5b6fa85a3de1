"""The positions of consumers in a replica: create-only objects, of which the highest revision counts."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.consumers.administration import list_consumers, move_consumer
from litelog.consumers.consumed_log import open_consumed_log
from litelog.consumers.position_objects import KEPT, MOST, PositionObjects
from litelog.errors import ConfigError, ConsumerMovedError, ConsumerStateError, StoreError, UnknownVersionError
from litelog.log.read_bounds import ReadBounds
from litelog.objects import layout
from litelog.objects.consumer_position import Evidence
from litelog.stores.registry import open_store, register_object_store
from replica_clients.memory import MemoryStore
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import AnswerLosingStore, CarelessStore, CountingStore, KilledError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from typing_extensions import Buffer

    from litelog.stores.object_store import ObjectInfo, ObjectStore

NAME = "billing"
EVIDENCE = Evidence(4, 1, 99)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    found = open_store(f"memory://{request.node.name.replace('[', '-').replace(']', '')}")
    assert isinstance(found, MemoryStore)
    return found


@pytest.fixture
def positions(store: MemoryStore) -> PositionObjects:
    return PositionObjects(store.url, {})


def keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list(layout.CONSUMERS)]


def through(store: ObjectStore) -> PositionObjects:
    """The positions in a store that a test wraps."""

    def open_wrapped(_url: str, _options: Mapping[str, object]) -> ObjectStore:
        return store

    register_object_store("wrapped", open_wrapped)
    return PositionObjects("wrapped://", {})


def test_a_position_moves_by_compare_and_set(positions: PositionObjects) -> None:
    kept = positions.of(NAME)
    assert (kept.read(), positions.names()) == (None, [])
    first = kept.move(None, 3, None, 100)
    second = kept.move(first, 5, EVIDENCE, 200)
    assert (second.revision, second.next, second.evidence, second.updated) == (2, 5, EVIDENCE, 200)
    assert (kept.read(), positions.names()) == (second, [NAME])
    with pytest.raises(ConsumerMovedError) as refused:
        positions.of(NAME).move(first, 4, None, 300)
    assert refused.value.next == 5
    with pytest.raises(ConsumerMovedError):
        kept.move(None, 1, None, 300)  # it believes that there is none
    assert kept.read() == second


def test_of_many_that_move_at_once_one_does(positions: PositionObjects, store: MemoryStore) -> None:
    held = positions.of(NAME).move(None, 0, None, 1)
    for turn in range(20):
        won, lost = [], []
        start = threading.Barrier(4)

        def move(number: int, start: threading.Barrier = start, won: list = won, lost: list = lost) -> None:  # type: ignore[type-arg]
            start.wait()
            try:
                won.append(PositionObjects(store.url, {}).of(NAME).move(held, number, None, 1))  # noqa: B023
            except ConsumerMovedError:
                lost.append(number)

        threads = [threading.Thread(target=move, args=(10 * turn + number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(lost)) == (1, 3)
        assert positions.of(NAME).read() == won[0]
        held = won[0]


def test_one_that_comes_back_after_its_object_was_removed_is_refused(
    positions: PositionObjects, store: MemoryStore
) -> None:
    kept = positions.of(NAME)
    old = held = kept.move(None, 0, None, 1)
    for number in range(1, MOST + 1):
        held = kept.move(held, number, None, 1)
    assert layout.consumer_key(NAME, 2) not in keys(store)
    with pytest.raises(ConsumerMovedError) as refused:
        kept.move(old, 7, None, 1)  # its put succeeds: the key is free again
    assert (refused.value.next, kept.read()) == (MOST, held)


def test_only_the_newest_objects_stay(positions: PositionObjects, store: MemoryStore) -> None:
    kept = positions.of(NAME)
    held = None
    for number in range(5 * MOST):
        held = kept.move(held, number, None, 1)
        assert len(keys(store)) <= MOST
    assert len(keys(store)) >= KEPT
    assert kept.read() == held


def test_a_person_moves_it_in_any_case(positions: PositionObjects, store: MemoryStore) -> None:
    kept = positions.of(NAME)
    held = kept.move(None, 3, EVIDENCE, 1)
    forced = kept.force(1, 2)
    assert (forced.next, forced.evidence, kept.read()) == (1, None, forced)
    with pytest.raises(ConsumerMovedError):
        kept.move(held, 9, None, 3)
    damage(store, forced.revision)
    damage(store, held.revision)
    assert kept.force(2, 3) == kept.read()


def test_a_deleted_consumer_is_a_new_one_and_its_process_is_refused(
    positions: PositionObjects, store: MemoryStore
) -> None:
    kept = positions.of(NAME)
    assert not kept.delete()
    held = kept.move(kept.move(None, 3, None, 1), 4, None, 2)
    assert kept.delete()
    assert (kept.read(), positions.names(), len(keys(store)), kept.delete()) == (None, [], 1, False)
    with pytest.raises(ConsumerMovedError):
        kept.move(held, 5, None, 3)
    created = kept.move(None, 0, None, 4)
    assert (created.revision, kept.read(), positions.names()) == (4, created, [NAME])


def damage(store: MemoryStore, revision: int, body: bytes = b'{"version": 1}') -> None:
    key = layout.consumer_key(NAME, revision)
    store.delete([key])
    store.put(key, [body])


def test_a_damaged_position_counts_as_the_one_before(positions: PositionObjects, store: MemoryStore) -> None:
    kept = positions.of(NAME)
    first = kept.move(None, 3, None, 1)
    second = kept.move(first, 5, None, 2)
    damage(store, second.revision)
    found = kept.read()
    assert found is not None
    assert (found.next, found.revision) == (3, second.revision)
    assert kept.move(found, 4, None, 3) == kept.read()  # above the damaged one


def test_if_both_are_damaged_a_person_states_the_place(positions: PositionObjects, store: MemoryStore) -> None:
    kept = positions.of(NAME)
    second = kept.move(kept.move(None, 3, None, 1), 5, None, 2)
    damage(store, 1)
    damage(store, second.revision)
    with pytest.raises(ConsumerStateError, match="run litelog consumers move to state where consumer billing"):
        kept.read()
    assert positions.names() == [NAME]
    assert kept.delete()
    assert kept.read() is None


def test_a_position_of_a_newer_version_is_named_and_the_others_are_listed(
    positions: PositionObjects, store: MemoryStore, orders: str
) -> None:
    positions.of("audit").move(None, 4, None, 1)
    held = positions.of(NAME).move(None, 3, None, 1)
    damage(store, held.revision, b'{"version": 9}')
    assert positions.names() == ["audit", NAME]
    log = replace(open_consumed_log(orders, (), None, None, None), positions=positions)
    audit, billing = list_consumers(log)
    assert (audit.consumer, audit.next, audit.lag_records, audit.reason) == ("audit", 4, 6, None)
    assert (billing.consumer, billing.next, billing.lag_records) == (NAME, None, None)
    assert "version of its position is 9, expected 1" in str(billing.reason)
    with pytest.raises(UnknownVersionError):
        positions.of(NAME).read()
    with pytest.raises(UnknownVersionError):
        positions.of(NAME).move(None, 7, None, 1)
    assert move_consumer(log, NAME, ReadBounds(start=5), ManualClock()) == 5
    assert positions.of(NAME).read().next == 5  # type: ignore[union-attr]
    damage(store, 2, b'{"version": 9}')
    assert positions.of(NAME).delete()
    assert positions.names() == ["audit"]


def test_a_put_whose_answer_was_lost_counts_once() -> None:
    kept = through(AnswerLosingStore(MemoryStore())).of(NAME)
    held = kept.move(None, 3, None, 1)
    assert kept.move(held, 4, None, 2) == kept.read()


def test_a_store_that_takes_a_key_twice_keeps_no_positions() -> None:
    careless = CarelessStore(MemoryStore())
    careless.enforces_create_only = False
    with pytest.raises(ConfigError, match="name a state folder on this machine"):
        through(careless).of(NAME).move(None, 3, None, 1)


class KeepingStore(CountingStore):
    """A store that permits no deletion."""

    def delete(self, keys: Iterable[str]) -> None:
        raise StoreError("delete", next(iter(keys)), "access denied", retryable=False)


def test_a_store_without_deletions_keeps_all_positions(caplog: pytest.LogCaptureFixture) -> None:
    keeping = KeepingStore(MemoryStore())
    kept = through(keeping).of(NAME)
    held = None
    for number in range(MOST + 5):
        held = kept.move(held, number, None, 1)
    assert kept.read() == held
    assert len(keys(keeping)) == MOST + 5
    assert [record.message for record in caplog.records if "cannot be deleted" in record.message] != []
    assert len([record for record in caplog.records if "cannot be deleted" in record.message]) == 1


def test_errors_name_the_replica() -> None:
    class DeadStore(CountingStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterable[None]:  # type: ignore[override]
            raise StoreError("list", prefix, "access denied", retryable=False)

    dead = DeadStore(MemoryStore("dead"))
    with pytest.raises(StoreError, match="memory://dead: list consumers/billing/: access denied"):
        through(dead).of(NAME).read()


def test_a_position_tells_nothing_of_an_encrypted_record(tmp_path: Path) -> None:
    pytest.importorskip("pyrage")
    from tests.builders.encrypted import make_identity, write_identity

    identity = write_identity(tmp_path / "key.txt", make_identity()[0])
    kept = PositionObjects(str(tmp_path / "replica"), {"identity-file": identity}).of(NAME)
    assert kept.move(None, 5, EVIDENCE, 1) == kept.read()
    assert kept.move(kept.read(), 6, EVIDENCE, 1).evidence is None


class StoppingStore(CountingStore):
    """A store whose process is killed at a request: before it is carried out, or after that."""

    def __init__(self, inner: ObjectStore, at: int, *, after: bool) -> None:
        super().__init__(inner)
        self._left, self._after = at, after

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._stop(after=False)
        super().put(key, body, create_only=create_only)
        self._stop(after=True)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._stop(after=False)
        found = list(super().list(prefix, start_after))
        self._stop(after=True)
        return iter(found)

    def delete(self, keys: Iterable[str]) -> None:
        self._stop(after=False)
        super().delete(keys)
        self._stop(after=True)

    def _stop(self, *, after: bool) -> None:
        if after is self._after:
            self._left -= 1
            if self._left == 0:
                raise KilledError


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 8))
def test_a_consumer_killed_at_any_request_has_its_old_or_its_new_position(at: int, after: bool) -> None:
    """It commits 16 times before, so that old objects are removed."""
    inner = MemoryStore()
    kept = through(inner).of(NAME)
    held = None
    for number in range(MOST):
        held = kept.move(held, number, EVIDENCE, 1)
    assert held is not None
    dying = through(StoppingStore(inner, at, after=after)).of(NAME)
    committed = held.next
    with suppress(KilledError):
        for number in range(MOST, MOST + 4):
            held = dying.move(held, number, EVIDENCE, 1)
            committed = held.next
    assert committed is not None
    found = through(inner).of(NAME).read()
    assert found is not None
    assert found.next in (committed, committed + 1)
    assert through(inner).of(NAME).move(found, 99, None, 2).next == 99
