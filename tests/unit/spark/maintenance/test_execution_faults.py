"""Maintenance that dies at any request, or meets another writer at any request, changes no record."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import FencedError, NotFoundError, StoreError
from litelog.retention.policy import RetentionPolicy
from litelog.spark.maintenance.plan import MaintenanceOptions
from tests.builders.batch_replicas import (
    InterruptedStore,
    copy_of,
    die_in_write,
    kill,
    records_of,
    run,
    small_appends,
)
from tests.builders.stores import KilledError
from tests.sampling import sampled

if TYPE_CHECKING:
    from litelog.formats.columns import Record
    from tests.builders.many_generations import CountedReplica

OPTIONS = MaintenanceOptions(RetentionPolicy(max_age=3600.0))
"""Merge, delete orphans and prune."""

MOST = 12
"""A run tries one in this many requests."""


@pytest.fixture(scope="module")
def replica() -> CountedReplica:
    """Appends, some of them after a write that died, and a write that died last."""
    made = small_appends(3)
    die_in_write(made)
    made.append()
    made.append()
    die_in_write(made)
    return made


@pytest.fixture(scope="module")
def before(replica: CountedReplica) -> list[Record]:
    return records_of(replica)


def requests_of(replica: CountedReplica) -> range:
    """The numbers of the requests of an undisturbed run."""
    copied = copy_of(replica)
    store = InterruptedStore(copied.inner, 0, lambda: None)
    run(copied, OPTIONS, store=store)
    return range(1, store.requests["all"] + 1)


def finish(replica: CountedReplica, before: list[Record]) -> None:
    """Maintain the replica again, once its last write counts as dead: nothing is left to do after that."""
    assert records_of(replica) == before
    for hours in (100, 150):
        run(replica, OPTIONS, hours=hours)
        assert records_of(replica) == before
    assert run(replica, OPTIONS, hours=150).plan.is_empty


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed_at_any_request_loses_nothing(
    replica: CountedReplica, before: list[Record], after: bool
) -> None:
    for at in sampled(requests_of(replica), MOST, "maintenance, killed"):
        killed = copy_of(replica)
        with pytest.raises(KilledError):
            run(killed, OPTIONS, store=InterruptedStore(killed.inner, at, kill, after=after))
        finish(killed, before)


@pytest.mark.slow
def test_a_run_whose_store_fails_at_any_request_loses_nothing(replica: CountedReplica, before: list[Record]) -> None:
    def fail() -> None:
        raise StoreError("any", "key", "injected")

    for at in sampled(requests_of(replica), MOST, "maintenance, failing"):
        failed = copy_of(replica)
        with pytest.raises(StoreError):
            run(failed, OPTIONS, store=InterruptedStore(failed.inner, at, fail))
        finish(failed, before)


@pytest.mark.slow
def test_of_two_writers_at_any_request_each_record_stays(replica: CountedReplica, before: list[Record]) -> None:
    """A write during maintenance wins, or is not visible at all; what was readable stays readable."""
    appended = fenced = 0
    for at in sampled(requests_of(replica), MOST, "maintenance, two writers"):
        shared = copy_of(replica)
        try:
            run(shared, OPTIONS, store=InterruptedStore(shared.inner, at, shared.append))
        except FencedError:
            fenced += 1
        found = records_of(shared)
        assert found[: len(before)] == before
        assert len(found) == len(before) + 2
        appended += 1
        finish(shared, found)
    assert 0 < fenced <= appended


@pytest.mark.slow
def test_of_two_runs_at_once_one_does_the_work(replica: CountedReplica, before: list[Record]) -> None:
    for at in sampled(requests_of(replica), MOST, "maintenance, two runs"):
        shared = copy_of(replica)
        with suppress(FencedError, NotFoundError):  # the other one began a generation, or pruned a snapshot
            run(shared, OPTIONS, store=InterruptedStore(shared.inner, at, partial(run, shared, OPTIONS)))
        finish(shared, before)
