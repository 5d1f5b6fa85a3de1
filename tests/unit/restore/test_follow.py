"""A restored copy that follows its replica: which records it appends, and which errors end it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    DivergedError,
    LockedError,
    NotFoundError,
    PrunedError,
    StoreError,
)
from litelog.objects.claim import Relation
from litelog.objects.layout import wal_key
from litelog.reading.follower import LOOK_SECONDS
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.generation_bytes import GenerationBytes
from litelog.restore.growing_copy import GrowingCopy
from litelog.restore.history_plan import Target, find_plan
from litelog.restore.output import OutputError
from litelog.stores.object_store import ObjectReplicaClient
from litelog.system.clock import SystemClock
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, client_of, make_log, make_segment
from tests.builders.restoring import files_in, whole
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litelog.restore.generation_bytes import ByteRun
    from litelog.stores.object_store import ByteRange
    from litelog.system.clock import Clock
    from replica_clients.memory import MemoryStore
    from tests.builders.replica_builder import GenerationBuilder

    Grown = tuple[ReplicaBuilder, GenerationBuilder, CopyFollower, Path]

LOG = make_log([[2, 1, 3], [1, 2], [3, 1, 1], [2, 2]])


@pytest.fixture
def grown(tmp_path: Path) -> Iterator[Grown]:
    """A replica with two commits, and a follower of the copy of them."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship(LOG[0].data[: LOG[0].ends[1]], LOG[0].name)
    with follow(builder, tmp_path / "out", SystemClock()) as follower:
        yield builder, built, follower, tmp_path / "out"


def follow(builder: ReplicaBuilder, out: Path, clock: Clock) -> CopyFollower:
    """Restore the replica, and return a follower of the copy."""
    plan = find_plan(builder.client, Target(), FORMAT)
    restore(builder.client, plan, str(out), log_format=FORMAT)
    return CopyFollower(builder.client, str(out), plan, FORMAT, clock=clock)


def drain(follower: CopyFollower) -> None:
    while follower.step():
        pass


def finish_first(built: GenerationBuilder) -> None:
    built.ship(LOG[0].data[LOG[0].ends[1] :], LOG[0].name, final=True)


def test_the_time_since_the_last_news_is_known(tmp_path: Path) -> None:
    builder, clock = ReplicaBuilder(), ManualClock()
    built = builder.add()
    built.ship(LOG[0].data[: LOG[0].ends[1]], LOG[0].name)
    with follow(builder, tmp_path / "out", clock) as follower:
        drain(follower)
        assert follower.seconds_since_news is None
        finish_first(built)
        drain(follower)
        assert follower.seconds_since_news == 0.0
        clock.advance(3.0)
        drain(follower)
        assert follower.seconds_since_news == 3.0


def test_shipped_records_are_appended(grown: Grown) -> None:
    _, built, follower, out = grown
    drain(follower)
    assert follower.appended == 0
    finish_first(built)
    built.ship_segment(LOG[1], cuts=[0])
    drain(follower)
    assert files_in(out) == whole(LOG[:2])
    built.ship_segment(LOG[2], final="empty")
    built.ship_segment(LOG[3], final=None)
    drain(follower)
    assert files_in(out) == whole(LOG)
    assert follower.position == built.slot


def test_next_log_segment_is_read_while_the_one_before_it_is_appended(
    grown: Grown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run of a log segment waits until a thread has read the first run of the next one."""
    _, built, follower, out = grown
    finish_first(built)
    for each in LOG[1:]:
        built.ship_segment(each, cuts=[0])
    names = [each.name for each in LOG]
    chunks, append, read = GenerationBytes.chunks, GrowingCopy.append, list[str]()
    waits = list[str]()

    def note(*arguments: Any) -> Iterator[ByteRun]:
        for chunk in chunks(*arguments):
            read.append(arguments[1])
            yield chunk

    def append_late(copy: GrowingCopy, *arguments: Any, **more: Any) -> None:
        following = names[names.index(copy.name) + 1 :][:1]
        if following and copy.name in names[1:] and copy.size:
            waits.append(copy.name)
            wait_until(lambda: following[0] in read)
        append(copy, *arguments, **more)

    monkeypatch.setattr(GenerationBytes, "chunks", note)
    monkeypatch.setattr(GrowingCopy, "append", append_late)
    follower.catch_up()
    assert files_in(out) == whole(LOG)
    assert waits == names[1:3]
    assert sorted(read) == sorted([names[0], *names[1:], *names[1:]]), "each run was read once"


def test_segments_pruned_meanwhile_are_appended_from_sealed_segments(
    grown: Grown,
) -> None:
    _, built, follower, out = grown
    drain(follower)
    finish_first(built)
    built.ship_segment(LOG[1], cuts=[0])
    built.stand_for_sealed(LOG[2])
    built.snapshot(3)
    built.ship_segment(LOG[3], final=None)
    built.prune(3)
    assert not follower.step()
    follower.catch_up()
    assert files_in(out) == whole(LOG)


def drop_behind(built: GenerationBuilder, first: int) -> None:
    """Ship and prune, so that the replica holds the log from ``first`` on, and nothing before that."""
    for segment in LOG[1:3]:
        built.ship_segment(segment)
    built.snapshot(3, first=first)
    built.ship_segment(LOG[3], final=None)
    built.prune(3)


@pytest.mark.parametrize(("is_finished", "first"), [(False, 1), (False, 2), (True, 2), (True, 3)])
def test_a_copy_that_retention_overtook_gets_no_hole(grown: Grown, is_finished: bool, first: int) -> None:
    _, built, follower, out = grown
    drain(follower)
    if is_finished:
        finish_first(built)
        drain(follower)
    before, end = files_in(out), follower.position
    if not is_finished:
        finish_first(built)
    drop_behind(built, first)
    for _ in range(2):
        with pytest.raises(PrunedError, match=str(end)):
            follower.catch_up()
    assert files_in(out) == before


def test_a_copy_of_all_that_retention_took_continues_after_it(
    grown: Grown,
) -> None:
    _, built, follower, out = grown
    drain(follower)
    finish_first(built)
    drain(follower)
    drop_behind(built, 1)
    follower.catch_up()
    assert files_in(out) == whole(LOG)


def test_a_final_for_a_sealed_segment_is_appended(grown: Grown) -> None:
    _, built, follower, out = grown
    drain(follower)
    finish_first(built)
    built.stand_for_sealed(LOG[1])
    built.ship_segment(LOG[2], final=None)
    drain(follower)
    assert files_in(out) == whole(LOG[:3])


def test_a_generation_that_continues_is_followed(
    grown: Grown,
) -> None:
    builder, built, follower, out = grown
    drain(follower)
    finish_first(built)
    newer = builder.add(builder.claim(first=1), start=False)
    newer.start([newer.seal_unshipped(0, LOG[0])])
    newer.ship_segment(LOG[1], final=None)
    drain(follower)
    assert files_in(out) == whole(LOG[:2])


def test_older_log_segments_that_come_back_are_not_put_before_a_copy(tmp_path: Path) -> None:
    builder, out = ReplicaBuilder(), tmp_path / "out"
    built = builder.add()
    built.ship_segment(LOG[2], final=None)
    plan = find_plan(builder.client, Target(), FORMAT)
    restore(builder.client, plan, str(out), log_format=FORMAT)
    with CopyFollower(builder.client, str(out), plan, FORMAT) as follower:
        drain(follower)
        newer = builder.add(builder.claim(first=2, shift=2), start=False)
        newer.start([newer.seal_unshipped(index, LOG[index]) for index in range(2)])
        newer.ship_segment(LOG[2])
        newer.ship_segment(LOG[3], final=None)
        drain(follower)
    assert files_in(out) == whole(LOG[2:])


def test_a_generation_that_diverged_ends_it_by_name_and_leaves_the_copy(
    grown: Grown,
) -> None:
    builder, _, follower, out = grown
    drain(follower)
    before = files_in(out)
    builder.add(builder.claim(Relation.DIVERGED)).ship_segment(make_segment(0, [1, 1], tag=b"other"), final=None)
    with pytest.raises(DivergedError, match="rewound"):
        drain(follower)
    assert files_in(out) == before


def test_a_damaged_object_is_not_appended(grown: Grown) -> None:
    builder, built, _, out = grown
    before, copy = files_in(out), out.parent / "other"
    plan = find_plan(builder.client, Target(), FORMAT)
    restore(builder.client, plan, str(copy), log_format=FORMAT)
    finish_first(built)
    key, objects = wal_key(built.positions[-1]), builder.objects()
    body = objects[key]
    damaged = client_of({**objects, key: body[:-9] + bytes([body[-9] ^ 1]) + body[-8:]})
    with CopyFollower(damaged, str(copy), plan, FORMAT) as follower, pytest.raises(CorruptionError):
        drain(follower)
    assert files_in(copy) == before


@pytest.mark.parametrize(
    ("seen", "change", "what"),
    [(False, {"shipped": 1}, "time shipped"), (True, {"shipped": 1}, "time shipped"), (True, {"previous": ""}, "SHA")],
)
def test_an_object_that_does_not_continue_the_chain_is_not_appended(
    grown: Grown, seen: bool, change: dict[str, Any], what: str
) -> None:
    """``seen``: whether the follower read the object before it. Otherwise it knows only that object's header."""
    _, built, follower, out = grown
    drain(follower)
    if seen:
        finish_first(built)
        drain(follower)
    before = files_in(out)
    data, name = (LOG[1].data, LOG[1].name) if seen else (LOG[0].data[LOG[0].ends[1] :], LOG[0].name)
    built.ship(data, name, **change)
    with pytest.raises(CorruptObjectError, match=what):
        drain(follower)
    assert files_in(out) == before


def test_a_copy_that_somebody_changes_is_not_appended_to(
    grown: Grown,
) -> None:
    _, built, follower, out = grown
    drain(follower)
    with (out / LOG[0].name).open("ab") as file:
        file.write(b"x")
    finish_first(built)
    with pytest.raises(OutputError, match="changed"):
        drain(follower)


def test_a_copy_has_one_follower(grown: Grown) -> None:
    builder, _, _, out = grown
    with pytest.raises(LockedError):
        CopyFollower(builder.client, str(out), find_plan(builder.client, Target(), FORMAT), FORMAT)


class Watched:
    """A store that counts its listings and the requests for missing WAL segments. It calls ``behind`` after it opens a
    WAL segment. While a test holds ``held``, it opens none."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.held = threading.RLock()
        self.listings = self.absent = 0
        self.behind = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, *place: str | None) -> Iterator[Any]:
        self.listings += 1
        return self._store.list(*place)

    def open(self, key: str, *part: ByteRange | None) -> BinaryIO:
        if "/wal/" not in key:
            return self._store.open(key, *part)
        with self.held:
            try:
                stream = self._store.open(key, *part)
            except NotFoundError:
                self.absent += 1
                raise
            self.behind()
            return stream


class Running:
    """A copy of a replica's two commits, followed by ``run`` in a thread."""

    def __init__(
        self,
        grown: Grown,
        clock: SystemClock | ManualClock,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        builder, self.built, _, out = grown
        self.copy, self.clock = out.parent / "followed", clock
        plan = find_plan(builder.client, Target(), FORMAT)
        restore(builder.client, plan, str(self.copy), log_format=FORMAT)
        self.store = Watched(builder.store)
        client = ObjectReplicaClient(self.store)
        self.follower = CopyFollower(client, str(self.copy), plan, FORMAT, look_seconds=look_seconds, clock=self.clock)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.follower.run, args=(self._stop, 0.001))

    def __enter__(self) -> Running:
        self._thread.start()
        self.wait_for(lambda: self.store.absent > 0)
        return self

    def __exit__(self, *_: None) -> None:
        self._stop.set()
        self._thread.join(WAIT_SECONDS)
        self.follower.__exit__(None, None, None)
        assert not self._thread.is_alive()

    def wait_for(self, condition: Callable[..., Any]) -> None:
        wait_until(condition, pause=0.005)

    def prune_ahead(self) -> None:
        """Seal all log segments ahead except the newest one, name them in a snapshot, and prune them."""
        for segment in LOG[1:3]:
            self.built.ship_segment(segment, cuts=[0])
        self.built.snapshot(3)
        self.built.ship_segment(LOG[3], final=None)
        self.built.prune(3)

    def is_whole(self) -> bool:
        return files_in(self.copy) == whole(LOG)


@pytest.mark.slow
def test_run_looks_past_pruned_objects_after_a_time_without_news(
    grown: Grown,
) -> None:
    with Running(grown, SystemClock(), look_seconds=0.05) as running:
        with running.store.held:
            finish_first(running.built)
            running.prune_ahead()
        running.wait_for(running.is_whole)


@pytest.mark.slow
def test_run_lists_at_the_end_once_in_half_the_grace_and_no_sooner(
    grown: Grown,
) -> None:
    with Running(grown, ManualClock()) as running:
        before = running.store.listings
        running.clock.advance(LOOK_SECONDS - 1)
        polls = running.store.absent
        running.wait_for(lambda: running.store.absent > polls + 100)
        assert running.store.listings == before
        running.clock.advance(1)
        running.wait_for(lambda: running.store.listings > before)
        before, polls = running.store.listings, running.store.absent
        running.wait_for(lambda: running.store.absent > polls + 100)
        assert running.store.listings == before


@pytest.mark.slow
def test_run_looks_past_pruned_objects_at_once_after_a_long_lag(
    grown: Grown,
) -> None:
    with Running(grown, ManualClock()) as running:

        def take_long() -> None:
            if running.follower.position == last:
                running.store.behind = lambda: None
                running.clock.advance(LOOK_SECONDS)
                running.prune_ahead()

        with running.store.held:
            finish_first(running.built)
            last = running.built.positions[-1]
            running.store.behind = take_long
        running.wait_for(running.is_whole)


@pytest.mark.slow
def test_a_store_that_fails_for_a_while_is_waited_for(
    grown: Grown,
) -> None:
    builder, built, _, out = grown
    failing, waited, stop = [3], threading.Event(), threading.Event()

    class Failing:
        def __getattr__(self, name: Any) -> Any:
            return getattr(builder.client, name)

        def read_wal_segment(self, *place: Any) -> Any:
            if failing[0]:
                failing[0] -= 1
                raise StoreError("open", "x", "503", retryable=True)
            waited.set()
            return builder.client.read_wal_segment(*place)

    finish_first(built)
    copy = out.parent / "other"
    plan = find_plan(builder.client, Target(), FORMAT)
    restore(builder.client, plan, str(copy), log_format=FORMAT)
    built.ship_segment(LOG[1], final=None)
    with CopyFollower(Failing(), str(copy), plan, FORMAT) as follower:
        thread = threading.Thread(target=follower.run, args=(stop, 0.01))
        thread.start()
        try:
            assert waited.wait(WAIT_SECONDS)
            wait_until(lambda: files_in(copy) == whole(LOG[:2]))
        finally:
            stop.set()
            thread.join(WAIT_SECONDS)
    assert files_in(copy) == whole(LOG[:2])
