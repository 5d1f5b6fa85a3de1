"""Several places of one log are read as one, between any bounds, while some of them are away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import litelog
from litelog.errors import ConfigError, NoReplicaError, StoreError
from litelog.stores.registry import open_store, register_object_store
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


class LeavingStore(CountingStore):
    """A store that answers ``answers`` requests, and then none, until ``answers`` is set again."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.answers = 10**9

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._answer(key)
        return super().open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._answer(prefix)
        return super().list(prefix, start_after)

    def _answer(self, key: str) -> None:
        self.answers -= 1
        if self.answers < 0:
            raise StoreError("open", key, "connection refused")


@pytest.fixture
def replica(tmp_path: Path) -> str:
    """A replica of a log with a record a minute, from noon on."""
    with litelog.LogWriter(tmp_path / "log", fsync="never", segment_bytes=4096) as writer:
        for minute in range(200):
            writer.append(b"%d" % minute * 20, timestamps=NOON + timedelta(minutes=minute))
    folder = str(tmp_path / "replica")
    with litelog.replicate(tmp_path / "log", folder, state_dir=tmp_path / "state", sync_interval=0.05) as replication:
        assert replication.wait_synced()
    return folder


@pytest.fixture
def leaving(replica: str) -> LeavingStore:
    """The replica as a store that may be away, at ``leaving://``."""
    store = LeavingStore(open_store(replica))

    def open_leaving(_url: str, _options: Mapping[str, object]) -> LeavingStore:
        return store

    register_object_store("leaving", open_leaving)
    return store


def read(*places: Any, **bounds: Any) -> list[int]:
    with litelog.open_replica(list(places), **bounds) as records:
        return [record.sequence for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("answers", range(0, 40, 8))
def test_a_place_that_goes_away_at_any_request_is_replaced_at_the_exact_record(
    leaving: LeavingStore, replica: str, answers: int
) -> None:
    leaving.answers = answers
    assert read("leaving://", replica) == list(range(200))


BOUNDS: list[tuple[dict[str, Any], range]] = [
    ({"start": 20}, range(20, 200)),
    ({"start": 20, "end": 30}, range(20, 30)),
    ({"start": "latest"}, range(199, 200)),
    ({"start": "end"}, range(0)),
    ({"start": NOON + timedelta(minutes=50)}, range(50, 200)),
    ({"start_time": NOON + timedelta(minutes=50), "end_time": NOON + timedelta(minutes=120)}, range(50, 120)),
    ({"end": NOON + timedelta(minutes=7)}, range(7)),
    ({"end_time": NOON}, range(0)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("bounds", "expected"), BOUNDS)
def test_bounds_mean_the_same_at_each_place(
    leaving: LeavingStore, replica: str, bounds: dict[str, Any], expected: range
) -> None:
    assert read("leaving://", replica, **bounds) == list(expected)
    leaving.answers = 0
    assert read("leaving://", replica, **bounds) == list(expected)


@pytest.mark.slow
def test_a_consumer_of_several_places_reads_the_one_that_is_there(
    leaving: LeavingStore, replica: str, tmp_path: Path
) -> None:
    for answers, expected in ((0, range(200)), (10**9, range(0))):
        leaving.answers = answers
        with litelog.Consumer(
            "leaving://", "billing", replicas=[replica], follow=False, state_dir=str(tmp_path / "mine")
        ) as consumer:
            assert [record.sequence for record in consumer] == list(expected)
            consumer.commit()


@pytest.mark.slow
def test_if_no_place_can_be_read_the_error_names_the_first(leaving: LeavingStore, replica: str, tmp_path: Path) -> None:
    leaving.answers = 0
    with pytest.raises(StoreError, match="connection refused"):
        read("leaving://", "leaving://")
    assert read(tmp_path / "nothing", replica) == list(range(200))
    with pytest.raises(NoReplicaError):
        read(tmp_path / "nothing", tmp_path / "nothing-either")


def test_what_is_for_one_place_is_refused_for_several(replica: str) -> None:
    for wrong in ({"generation": "0" * 16}, {"isolation": "read_committed"}, {"poll_interval": 0.1}):
        with pytest.raises(ConfigError, match="are for one place, and here are several"):
            litelog.open_replica([replica, replica], **wrong)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="name at least one replica"):
        litelog.open_replica([])
