"""Verification of a replica whose owner is at work: objects written or removed meanwhile are not anomalies.

The owner takes a step before each request of the verification, beginning with the first request, then with the second,
and so on. So each of its steps comes once between any two requests.
"""

from __future__ import annotations

from functools import partial
from random import Random
from threading import Event
from typing import TYPE_CHECKING

import pytest

from litelog.objects.claim import Relation
from litelog.objects.layout import parse_sealed, parse_wal, sealed_key, snapshot_key, wal_key
from litelog.objects.position import Position
from litelog.objects.wal_segment import digest
from litelog.verify.findings import Acknowledged
from litelog.verify.scrub import Scrub, ScrubSettings
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import FORMAT, ReplicaBuilder
from tests.builders.stores import CountingStore
from tests.builders.verify_helper import LOG, everything, found, verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from litelog.verify.report import VerifyReport
    from tests.builders.replica_builder import GenerationBuilder

REQUESTS = 60
"""More requests than any verification makes here."""


class Stepping:
    """A store that takes one more step before each of its requests, after the first ``after`` of them."""

    def __init__(self, inner: ObjectStore, steps: Iterable[object], after: int) -> None:
        self.inner = inner
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only
        self._steps = iter(steps)
        self._left = after
        self.requests = 0

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        raise AssertionError(f"a verification writes nothing: {key} {create_only} {body!r}")

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._step()
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._step()
        yield from self.inner.list(prefix, start_after)

    def delete(self, keys: Iterable[str]) -> None:
        raise AssertionError(f"a verification deletes nothing: {list(keys)}")

    def close(self) -> None: ...

    def _step(self) -> None:
        self.requests += 1
        self._left -= 1
        if self._left < 0:
            next(self._steps, None)


def shipping(built: GenerationBuilder) -> Iterator[object]:
    """All objects that an owner writes: its first snapshot, WAL segments, sealed log segments, later snapshots."""
    yield built.start()
    yield built.ship(LOG[0].data[: LOG[0].ends[0]], LOG[0].name)
    yield built.ship(LOG[0].data[LOG[0].ends[0] :], LOG[0].name, final=True)
    yield built.stand_for_sealed(LOG[1])
    yield built.stand_for_sealed(LOG[2])
    yield built.snapshot(1)
    yield built.snapshot(3)
    yield built.ship(LOG[3].data[: LOG[3].ends[0]], LOG[3].name)


def sealing(built: GenerationBuilder) -> Iterator[object]:
    """Log segments that were finished while the daemon was away go up sealed, after some WAL segments."""
    yield built.stand_for_sealed(LOG[1])
    yield built.stand_for_sealed(LOG[2])
    yield built.ship(LOG[3].data[: LOG[3].ends[0]], LOG[3].name)


def covering(builder: ReplicaBuilder, built: GenerationBuilder) -> Iterator[object]:
    """Put snapshots. After each, delete the WAL segments that it covers, and the snapshots before it."""
    for number in (1, 2, 3):
        yield built.snapshot(number, first=number - 1)
        for position in built.positions[:-1]:
            if position.index < number:
                yield builder.client.delete_wal_segments([position])
        yield builder.client.delete_snapshots([(built.name, number - 1)])
        if number > 1:
            yield builder.client.delete_sealed_segments([(built.name, number - 2)])


def removing(builder: ReplicaBuilder, built: GenerationBuilder) -> Iterator[object]:
    """Delete a whole generation in the order of retention."""
    keys = [info.key for info in builder.store.list(f"generations/{built.name}/")]
    wal = [position for key in keys if (position := parse_wal(key)) is not None]
    covered = [position for position in wal if position.index < 1]
    for position in covered:
        yield builder.client.delete_wal_segments([position])
    for index in (0, 1):
        yield builder.client.delete_snapshots([(built.name, index)])
    for position in wal[len(covered) : -2]:  # the last WAL segment and the terminal stay
        yield builder.client.delete_wal_segments([position])
    yield builder.client.delete_sealed_segments([held for key in keys if (held := parse_sealed(key)) is not None])


def begun(claimed_only: bool = False) -> tuple[ReplicaBuilder, GenerationBuilder]:
    builder = ReplicaBuilder()
    return builder, builder.add(start=not claimed_only)


def whole() -> tuple[ReplicaBuilder, GenerationBuilder]:
    builder, built = begun()
    for segment in LOG[:3]:
        built.ship_segment(segment, cuts=[0])
    return builder, built


def succeeded() -> tuple[ReplicaBuilder, GenerationBuilder]:
    """A generation with snapshots and a successor that needs nothing of it."""
    builder, built = whole()
    built.snapshot(1)
    builder.add(builder.claim(Relation.DIVERGED)).ship_segment(LOG[0])
    return builder, built


Scene = tuple[ReplicaBuilder, "Iterable[object]"]


def sweep(make: Callable[[], Scene], **options: object) -> Iterator[tuple[int, VerifyReport]]:
    """The report of a verification for each of its requests before which the steps may begin."""
    for after in range(REQUESTS):
        builder, steps = make()
        store = Stepping(builder.store, steps, after)
        yield after, verified(store, parallelism=1, **options)
        if store.requests <= after:
            return
    raise AssertionError(f"a verification makes more than {REQUESTS} requests")


def make_shipping() -> Scene:
    builder, built = begun(claimed_only=True)
    return builder, shipping(built)


def make_sealing() -> Scene:
    builder, built = begun()
    built.ship_segment(LOG[0], cuts=[0])
    return builder, sealing(built)


def make_covering() -> Scene:
    builder, built = whole()
    return builder, covering(builder, built)


def make_removing() -> Scene:
    builder, built = succeeded()
    return builder, removing(builder, built)


def make_all_at_once(make: Callable[[], Scene]) -> Scene:
    builder, steps = make()
    return builder, (list(steps) for _ in range(1))


OWNERS = pytest.mark.parametrize("make", [make_shipping, make_sealing, make_covering, make_removing])


@pytest.mark.slow
@OWNERS
def test_concurrent_changes_by_the_owner_are_not_an_anomaly(make: Callable[[], Scene]) -> None:
    for after, report in sweep(make):
        assert found(report) == [], (after, report.anomalies)


@pytest.mark.slow
@OWNERS
def test_all_at_once_between_two_requests_is_not_an_anomaly(make: Callable[[], Scene]) -> None:
    for after, report in sweep(partial(make_all_at_once, make)):
        assert found(report) == [], (after, report.anomalies)


@pytest.mark.slow
@OWNERS
def test_a_scrub_in_the_background_finds_nothing_where_its_owner_is_at_work(
    make: Callable[[], Scene], tmp_path: Path
) -> None:
    for after in range(0, 12, 3):
        builder, steps = make()
        scrub = Scrub(
            Stepping(builder.store, steps, after),
            ScrubSettings(interval=3600.0, rate=1 << 30),
            str(tmp_path),
            formats=lambda _: FORMAT,
            acknowledged=lambda: None,
            clock=ManualClock(),
            random=Random(1),
        )
        done = scrub.run(Event())
        assert done is not None
        assert (done[0].anomalies, done[0].unread, done[1]) == (0, 0, []), after


@pytest.mark.slow
def test_a_sealed_segment_that_came_after_the_listing_is_verified() -> None:
    def make() -> Scene:
        builder, built = begun()
        built.ship_segment(LOG[0], cuts=[0])
        return builder, seal_damaged(builder, built)

    def seal_damaged(builder: ReplicaBuilder, built: GenerationBuilder) -> Iterator[object]:
        built.stand_for_sealed(LOG[1])
        key = sealed_key(built.name, 1)
        body = bytearray(builder.store.open(key).read())
        body[40] ^= 1
        builder.store.delete([key])
        yield builder.store.put(key, [bytes(body)])

    reports = [report for _, report in sweep(make)]
    assert [key for _, key in found(reports[0])] == [sealed_key(make()[0].generations[0].name, 1)]
    seen = [report for report in reports if report.wal_segments == 3]
    assert len(seen) >= 3
    assert all(found(report) == found(reports[0]) for report in seen)


@pytest.mark.slow
def test_an_owners_last_object_is_not_missed_after_retention_deleted_its_generation() -> None:
    builder, built = succeeded()
    position = built.positions[1]
    known = Acknowledged(position, digest([builder.objects()[wal_key(position)]]))
    for after, report in sweep(make_removing, acknowledged=known):
        assert found(report) == [], (after, report.anomalies)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["snapshots", "segments", "wal"])
def test_an_object_that_is_gone_without_a_reason_stays_an_anomaly(part: str) -> None:
    def make() -> Scene:
        builder, built = whole()
        built.snapshot(1)
        lost = {
            "snapshots": [snapshot_key(built.name, 0), snapshot_key(built.name, 1)],
            "segments": [sealed_key(built.name, 0)],
            "wal": [wal_key(Position(built.name, 1, 0))],
        }
        return builder, (builder.store.delete(lost[part]) for _ in range(1))

    reports = [report for _, report in sweep(make)]
    assert found(reports[0])
    assert sum(bool(found(report)) for report in reports) > 2, "also where it was listed and could not be read"


def make_succession() -> Scene:
    builder, built = whole()
    built.snapshot(2)

    def steps() -> Iterator[object]:
        successor = builder.add(builder.claim(Relation.DIVERGED), start=False)
        yield successor
        yield successor.start()
        yield successor.ship_segment(LOG[0])

    return builder, steps()


@pytest.mark.slow
def test_a_log_is_compared_though_its_owner_begins_again(tmp_path: Path) -> None:
    for segment in LOG[:3]:
        (tmp_path / segment.name).write_bytes(segment.data)
    for after, report in sweep(make_succession, against=str(tmp_path)):
        assert found(report) == [], (after, report.anomalies)
        assert report.against is not None


@pytest.mark.slow
def test_a_replica_without_anomalies_is_listed_once() -> None:
    store = CountingStore(everything().store)
    assert found(verified(store, parallelism=1)) == []
    once = 1 + 2 * len(everything().generations)  # all objects, then sealed and WAL segments of each generation
    beside = 2  # sealed segments that still have WAL segments, whose marks are read
    assert store.requests["list"] == once + beside
