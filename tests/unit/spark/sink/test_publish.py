"""A Spark write makes its records readable, or fails if another owner claims the replica meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import NothingToRestoreError
from litelog.objects.claim import Relation, batch_owner
from litelog.objects.layout import Fencing
from litelog.objects.position import new_generation
from litelog.reading.generations import newest_claims
from litelog.reading.latest import find_latest
from litelog.shipping.claiming import close_below
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import OvertakenError, WritePlan
from litelog.spark.sink.publish import publish
from litelog.spark.sink.segments import StagingGeneration, new_write
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import LOG, GenerationBuilder, ReplicaBuilder, make_log
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.object_store import ObjectStore

SEGMENTS = make_log([[2, 1], [3]])


class InterruptedStore(CountingStore):
    """Calls ``act`` once: before or after the first put of a snapshot."""

    def __init__(self, inner: ObjectStore, act: Callable[[], object], *, after: bool) -> None:
        super().__init__(inner)
        self._act: Callable[[], object] | None = act
        self._after = after

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        act = self._act if "/snapshots/" in key else None
        if act is not None and not self._after:
            self._act = None
            act()
        super().put(key, body, create_only=create_only)
        if act is not None and self._after:
            self._act = None
            act()


def written(builder: ReplicaBuilder) -> tuple[WritePlan, list[list[SnapshotEntry]]]:
    """A plan for a new replica, and the entries that its tasks wrote."""
    claim = replace(builder.claim(), owner=batch_owner(LOG))
    carrying = builder.add(claim, start=False)
    entries = [carrying.seal_unshipped(index, segment) for index, segment in enumerate(SEGMENTS)]
    staging = StagingGeneration(claim, 0, claim.time, new_write())
    options = parse_write_options({"path": "memory://built"})
    return WritePlan(options, staging, replace(claim, generation=new_generation(2, 0xA2)), None, 0), [entries]


def take_over(builder: ReplicaBuilder) -> None:
    """Another owner claims the replica, and closes the generations below its claim."""
    newest = list(newest_claims(builder.client, builder.client.claims()))
    claim = replace(
        builder.claim(Relation.FIRST), generation="00000003000000a3", predecessor=None, predecessor_end=None
    )
    GenerationBuilder(builder.client, claim, builder.format)
    close_below(builder.client, claim, newest, ManualClock())


def test_records_that_tasks_wrote_are_readable_once_they_are_published() -> None:
    builder = ReplicaBuilder()
    plan, entries = written(builder)
    published = publish(builder.client, plan, entries, ManualClock())
    assert published is not None
    assert (published.first, published.next, published.segments) == (0, 6, 2)
    assert find_latest(builder.client).generation == published.generation


@pytest.mark.slow
def test_a_write_overtaken_before_its_snapshot_fails_even_if_that_is_put() -> None:
    builder = ReplicaBuilder()
    plan, entries = written(builder)
    store = InterruptedStore(builder.store, lambda: take_over(builder), after=False)
    with pytest.raises(OvertakenError, match="nothing of this one is in the log"):
        publish(ObjectReplicaClient(store), plan, entries, ManualClock())
    with pytest.raises(NothingToRestoreError):
        find_latest(builder.client)


@pytest.mark.slow
def test_a_write_that_is_overtaken_after_its_snapshot_is_readable() -> None:
    builder = ReplicaBuilder()
    plan, entries = written(builder)
    store = InterruptedStore(builder.store, lambda: take_over(builder), after=True)
    published = publish(ObjectReplicaClient(store), plan, entries, ManualClock())
    assert published is not None
    assert find_latest(builder.client).generation == published.generation


def test_a_write_whose_generation_another_owner_ended_fails() -> None:
    """An isolated owner's claim does not take the epoch that the write needs. Its terminal shows it all the same."""
    builder = ReplicaBuilder()
    plan, entries = written(builder)
    isolated = replace(plan.draft, generation=new_generation(2, 0xF), owner="0f" * 16, fencing=Fencing.ISOLATED)
    close_below(builder.client, isolated, [plan.staging.claim], ManualClock())
    with pytest.raises(OvertakenError):
        publish(builder.client, plan, entries, ManualClock())
