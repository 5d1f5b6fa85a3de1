"""A replica whose root goes away while it is read: its objects are not lost, and nothing is said to be missing."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import pytest

from litelog.errors import NothingToRestoreError, StoreError
from litelog.reading.follower import Look, ReplicaFollower
from litelog.reading.search import find_header
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log, reader_of
from tests.builders.restoring import files_in, whole
from tests.builders.stores import DisappearingStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders.manual_clock import ManualClock

LOG = make_log([[2, 1, 3], [1, 2], [3, 1, 1], [2, 2]])
REQUESTS = 60
"""More than any of these readers makes until it has read everything."""


class Patience:
    """Stands for an event that is set once the copy is whole, or after many waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.waits = 0

    def is_set(self) -> bool:
        return self.waits > REQUESTS or files_in(self._folder) == whole(LOG)

    def wait(self, _seconds: float) -> None:
        self.waits += 1


@pytest.fixture
def builder() -> ReplicaBuilder:
    """Two generations: the first one with a sealed segment that a snapshot names, and pruned WAL segments."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0], cuts=[0, 1])
    built.ship_segment(LOG[1])
    built.seal(0)
    built.snapshot(1)
    built.prune(1)
    built.ship_segment(LOG[2], cuts=[0])
    builder.add(builder.claim(first=built.slot.index)).ship_segment(LOG[3], cuts=[0], final=None)
    return builder


@pytest.fixture
def following(builder: ReplicaBuilder, tmp_path: Path) -> Iterator[tuple[CopyFollower, DisappearingStore]]:
    """A follower of a copy that ends with the first log segment."""
    first = ReplicaBuilder()
    built = first.add()
    built.ship_segment(LOG[0], cuts=[0, 1], final=None)
    plan = find_plan(first.client, Target(), FORMAT)
    restore(first.client, plan, str(tmp_path / "copy"), log_format=FORMAT)
    store = DisappearingStore(builder.store, REQUESTS)
    with CopyFollower(ObjectReplicaClient(store), str(tmp_path / "copy"), plan, FORMAT) as follower:
        yield follower, store


@pytest.mark.parametrize("leaves_at", range(REQUESTS))
def test_a_reader_never_ends_early_and_calls_nothing_missing(builder: ReplicaBuilder, leaves_at: int) -> None:
    store = DisappearingStore(builder.store, leaves_at)
    reader = reader_of(ObjectReplicaClient(store), generation=builder.generations[0].name)
    found: list[int] = []
    error = None
    try:
        for batch in reader.batches():
            found += batch.sequences.tolist()
    except (NothingToRestoreError, StoreError) as raised:
        error = raised
    assert found == list(range(len(found)))
    if isinstance(error, NothingToRestoreError):
        assert leaves_at < 3, "it has found a claim"
    elif error is not None:
        assert "not mounted" in str(error)
        assert error.retryable
    else:
        assert len(found) == LOG[-1].next


@pytest.mark.parametrize("leaves_at", range(REQUESTS))
def test_a_restore_calls_nothing_missing(builder: ReplicaBuilder, tmp_path: Path, leaves_at: int) -> None:
    store = DisappearingStore(builder.store, REQUESTS)
    client = ObjectReplicaClient(store)
    plan = find_plan(client, Target(), FORMAT)
    store.leaves_at = store.total() + leaves_at
    replan = partial(find_plan, client, Target(), FORMAT)
    error = ""
    try:
        restore(client, plan, str(tmp_path / "out"), log_format=FORMAT, parallelism=1, replan=replan)
    except StoreError as raised:
        error = str(raised)
    if error:
        assert "not mounted" in error
        assert not (tmp_path / "out").exists()
    else:
        assert files_in(tmp_path / "out") == whole(LOG)


@pytest.mark.parametrize("requests", [1, 4, 20])
@pytest.mark.parametrize("leaves_at", range(0, REQUESTS, 2))
def test_a_copy_is_continued_after_the_root_came_back(
    following: tuple[CopyFollower, DisappearingStore], tmp_path: Path, leaves_at: int, requests: int
) -> None:
    follower, store = following
    store.leaves_at, store.back_at = leaves_at, leaves_at + requests
    follower.run(Patience(tmp_path / "copy"))  # type: ignore[arg-type]
    assert files_in(tmp_path / "copy") == whole(LOG)


@pytest.mark.parametrize("look", [Look.SLOT, Look.EPOCH, Look.PLACE])
def test_a_follower_at_the_head_stays_there(builder: ReplicaBuilder, clock: ManualClock, look: Look) -> None:
    store = DisappearingStore(builder.store, 0)
    client, built = ObjectReplicaClient(store), builder.generations[-1]
    follower = ReplicaFollower(client, built.claim, partial(find_header, client), monotonic=clock.monotonic)
    follower.stand_at(built.slot, built.positions[-1])
    if look is Look.PLACE:
        with pytest.raises(StoreError, match="not mounted"):
            follower.poll(look)
    else:
        assert follower.poll(look) is None
    store.leaves_at = REQUESTS
    store.back_at = math.inf
    assert follower.poll(look) is None
    assert follower.slot == built.slot
