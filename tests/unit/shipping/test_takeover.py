"""A takeover flag authorises one claim. An owner that has used it, or sees a newer owner, is fenced like any other."""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.config import LogConfig, ReplicaConfig
from litelog.errors import FencedError, ForeignClaimError, StoreError
from litelog.objects.claim import encode
from litelog.objects.layout import Fencing, wal_key
from litelog.objects.wal_segment import LASTING_SEGMENTS
from litelog.reading.generations import find_tip, read_claim
from litelog.reading.latest import find_latest
from litelog.replicator.thread_pools import DestinationThreads
from litelog.replicator.wiring import ProcessContext, open_log
from litelog.retention.policy import GRACE_SECONDS
from litelog.shipping.claiming import LostRaceError, SucceededError
from litelog.shipping.state import StateError
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.trial import StoreTrials
from litelog.system.clock import SystemClock
from replica_clients.file import FileStore
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, SilentListener, restored
from tests.builders.independent_reader import objects, read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import AnswerLosingStore, CarelessStore, CountingStore, Fault, FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore


class HookedStore(CountingStore):
    """Calls ``before`` once, before the first put of a key that starts with ``prefix``."""

    def __init__(self, inner: ObjectStore, prefix: str, before: Callable[[], object]) -> None:
        super().__init__(inner)
        self._prefix = prefix
        self._before: Callable[[], object] | None = before

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if self._before is not None and key.startswith(self._prefix):
            before, self._before = self._before, None
            before()
        super().put(key, body, create_only=create_only)


class ActingStore(CountingStore):
    """Calls ``act`` after its request of that number, before it answers."""

    def __init__(self, inner: ObjectStore, number: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._number, self._act = number, act

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        try:
            super().put(key, body, create_only=create_only)
        finally:
            self._act_if_due()

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        try:
            return super().open(key, byte_range)
        finally:
            self._act_if_due()

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        listed = list(super().list(prefix, start_after))
        self._act_if_due()
        return iter(listed)

    def _act_if_due(self) -> None:
        if self.total() == self._number:
            self._act()


class FullDisk:
    """A state folder in which nothing can be saved until ``free``."""

    def __init__(self, state: str) -> None:
        self._blocked = os.path.join(state, ".state.json.tmp")

    def fill(self) -> None:
        os.makedirs(self._blocked)

    def free(self) -> None:
        os.rmdir(self._blocked)


def rewrite(log: LogBuilder) -> None:
    """Rewind the log to its beginning, and write it differently."""
    log.next = 0
    log.overwrite(0, log.header() + b"".join(log.commit(tag=b"R") for _ in range(5)))


def expect_fenced(daemon: Daemon, store: ObjectStore) -> None:
    """Check that the daemon stays fenced at each try, and that the replica does not change."""
    before = objects(store)
    for _ in range(2):
        with pytest.raises(FencedError):
            daemon.sync()
    assert objects(store) == before


def test_a_daemon_that_took_over_is_fenced_in_turn_even_if_its_log_jumps(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path
) -> None:
    Daemon(log, store, state + ".first", seed=1).sync()
    paused = Daemon(log, store, state, takeover=True)
    paused.sync()
    other = Daemon(log, store, state + ".other", seed=2, takeover=True)
    for _ in range(3):
        log.roll(2)
    other.sync()
    kept = log.files()
    for name in list(kept)[:3]:
        log.delete(name)  # what the replica holds may be truncated
    expect_fenced(paused, store)
    assert restored(store, tmp_path / "restored") == kept
    log.append(1)
    other.sync()
    assert list(read_replica(store).values())[-1].files() == kept | log.files()


def test_a_daemon_that_resumed_its_own_generation_with_the_flag_can_be_fenced(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.restart(takeover=True)
    log.append(1)
    daemon.sync()
    Daemon(log, store, state + ".other", seed=1, takeover=True).sync()
    rewrite(log)  # a new generation is due
    expect_fenced(daemon, store)


def test_after_a_start_fails_on_a_full_disk_takeover_ends_only_the_claim_it_met(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    Daemon(log, store, state + ".first", seed=1).sync()
    disk = FullDisk(state)
    disk.fill()
    daemon = Daemon(log, store, state, takeover=True)
    with pytest.raises(StateError, match="cannot save state"):
        daemon.sync()
    Daemon(log, store, state + ".other", seed=2, takeover=True).sync()
    disk.free()
    expect_fenced(daemon, store)


def test_a_daemon_whose_start_failed_on_a_full_disk_takes_over_once_there_is_room(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    first = Daemon(log, store, state + ".first", seed=1)
    first.sync()
    disk = FullDisk(state)
    disk.fill()
    daemon = Daemon(log, store, state, takeover=True)
    with pytest.raises(StateError):
        daemon.sync()
    log.append(1)
    first.sync()  # the owner that is to be ended continues meanwhile
    disk.free()
    daemon.sync()
    log.append(1)
    expect_fenced(first, store)
    daemon.sync()
    assert list(read_replica(store).values())[-1].files() == log.files()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_disk_that_fills_up_after_the_claim_gives_no_second_takeover(
    log: LogBuilder, store: MemoryStore, state: str, restarted: bool
) -> None:
    Daemon(log, store, state + ".first", seed=1).sync()
    disk = FullDisk(state)
    hooked = HookedStore(store, "generations/", disk.fill)
    daemon = Daemon(log, hooked, state, takeover=True)
    with pytest.raises(StateError):
        daemon.sync()
    assert len(read_replica(store)) == 2
    Daemon(log, store, state + ".other", seed=2, takeover=True).sync()
    disk.free()
    if restarted:
        daemon.restart()
    expect_fenced(daemon, store)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("at", range(6))
def test_a_takeover_that_failed_at_any_put_does_not_end_a_later_owner(
    log: LogBuilder, store: MemoryStore, state: str, at: int, fault: Fault
) -> None:
    Daemon(log, store, state + ".first", seed=1).sync()
    faulty = FaultyStore(store, {"put": [Fault.NONE] * at + [fault]})
    daemon = Daemon(log, faulty, state, takeover=True)
    try:
        daemon.sync()
        log.append(1)
        daemon.sync()
    except StoreError:
        pass
    other = Daemon(log, store, state + ".other", seed=2, takeover=True)
    other.sync()
    log.append(1)
    other.sync()
    expect_fenced(daemon, store)
    assert list(read_replica(store).values())[-1].files() == log.files()


def test_a_claim_that_comes_between_the_look_and_the_claim_is_not_ended(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    Daemon(log, store, state + ".first", seed=1).sync()
    other = Daemon(log, store, state + ".other", seed=2, takeover=True)
    daemon = Daemon(log, HookedStore(store, "epochs/", other.sync), state, takeover=True)
    with pytest.raises(LostRaceError):
        daemon.sync()
    expect_fenced(daemon, store)


def test_a_second_start_with_the_flag_takes_over_again_after_a_fence(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    """A person who gives the flag again means it: this is how to fail back to the first daemon."""
    daemon = Daemon(log, store, state)
    daemon.sync()
    other = Daemon(log, store, state + ".other", seed=1, takeover=True)
    other.sync()
    log.append(1)
    expect_fenced(daemon, store)
    daemon.restart()
    with pytest.raises(SucceededError):
        daemon.sync()
    daemon.restart(takeover=True)
    daemon.sync()
    log.append(1)
    expect_fenced(other, store)
    daemon.sync()
    generations = list(read_replica(store).values())
    assert [bool(generation.terminal) for generation in generations] == [True, True, False]
    assert generations[-1].files() == log.files()


def test_a_takeover_of_a_newer_claim_is_refused_with_how_to_repeat_it(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    Daemon(log, store, state + ".first", seed=1).sync()
    disk = FullDisk(state)
    disk.fill()
    daemon = Daemon(log, store, state, takeover=True)
    with pytest.raises(StateError):
        daemon.sync()
    Daemon(log, store, state + ".other", seed=2, takeover=True, host="b.example").sync()
    disk.free()
    with pytest.raises(ForeignClaimError, match=r"b\.example.*came after this start with --takeover.*again"):
        daemon.sync()


def test_an_isolated_takeover_is_spent_like_any_other(log: LogBuilder, store: MemoryStore, state: str) -> None:
    careless = CarelessStore(store)
    Daemon(log, careless, state + ".first", seed=1, fencing=Fencing.ISOLATED).sync()
    daemon = Daemon(log, careless, state, takeover=True, fencing=Fencing.ISOLATED)
    daemon.sync()
    Daemon(log, careless, state + ".other", seed=2, takeover=True, fencing=Fencing.ISOLATED).sync()
    rewrite(log)
    expect_fenced(daemon, store)


@pytest.mark.slow
@pytest.mark.parametrize("holds", [True, False])
def test_a_takeover_does_not_skip_segments_shipped_after_its_look(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path, holds: bool
) -> None:
    """``holds``: whether the log of the daemon that takes over has these segments, too."""
    Daemon(log, store, state + ".first", seed=1).sync()
    copy = log if holds else make_copy(log, tmp_path / "copy")
    newest = Daemon(log, HookedStore(store, "generations/", fail), state + ".newest", seed=2, takeover=True)
    with pytest.raises(StoreError):
        newest.sync()  # it has only claimed

    def go_on() -> None:
        newest.sync()
        log.append(1)
        newest.sync()

    daemon = Daemon(copy, HookedStore(store, "epochs/", go_on), state, takeover=True)
    daemon.sync()
    generations = list(read_replica(store).values())
    shipped = generations[1].claim["generation"]
    assert generations[1].files() == log.files()
    assert generations[-1].claim["predecessor"] == shipped
    assert generations[-1].claim["relation"] == ("continues" if holds else "diverged")
    assert find_latest(ObjectReplicaClient(store)).generation == generations[-1].claim["generation"]
    assert restored(store, tmp_path / "restored") == copy.files()


@pytest.mark.slow
@pytest.mark.parametrize("began", [True, False])
def test_a_log_that_is_shipped_and_truncated_while_a_takeover_looks_is_continued(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path, began: bool
) -> None:
    """``began``: the newest owner had begun before; else it begins between two requests of the takeover."""
    for number in range(4, 15):
        folder, inner = tmp_path / str(number), MemoryStore("test")
        mine = make_copy(log, folder / "log")
        Daemon(mine, inner, str(folder / "first"), seed=1).sync()
        beginning = inner if began else HookedStore(inner, "generations/", fail)
        newest = Daemon(mine, beginning, str(folder / "newest"), seed=2, takeover=True)
        with suppress(StoreError):
            newest.sync()
        go_on = partial(ship_and_truncate, newest, mine)
        daemon = Daemon(mine, ActingStore(inner, number, go_on), str(folder / "state"), takeover=True)
        daemon.sync()
        daemon.sync()
        generations = list(read_replica(inner).values())
        begun = [generation.claim["relation"] for generation in generations if generation.snapshot]
        assert set(begun[1:]) == {"continues"}, number
        assert restored(inner, folder / "restored") == mine.texts


@pytest.mark.slow
def test_a_takeover_for_another_cause_continues_a_log_truncated_meanwhile(log: LogBuilder, tmp_path: Path) -> None:
    """The daemon's state is older than the replica, so its own generation cannot continue. It still continues from the
    data that the newest owner shipped meanwhile, and does not diverge."""
    for number in range(4, 20):
        folder, inner = tmp_path / str(number), MemoryStore("test")
        mine, state = make_copy(log, folder / "log"), str(folder / "state")
        older = Daemon(mine, inner, state)
        older.sync()
        older.close()
        shutil.copytree(state, state + ".old")
        older = Daemon(mine, inner, state)
        rewrite(mine)
        older.sync()
        older.close()
        shutil.rmtree(state)
        shutil.copytree(state + ".old", state)
        newest = Daemon(mine, inner, str(folder / "newest"), seed=2, takeover=True)
        newest.sync()
        go_on = partial(ship_and_truncate, newest, mine)
        daemon = Daemon(mine, ActingStore(inner, number, go_on), state, seed=3, takeover=True)
        daemon.sync()
        daemon.sync()
        begun = [each.claim["relation"] for each in read_replica(inner).values() if each.snapshot]
        assert set(begun[2:]) == {"continues"}, number
        assert restored(inner, folder / "restored") == mine.texts


def ship_and_truncate(daemon: Daemon, log: LogBuilder) -> None:
    """The owner ships, and then the log's older files are deleted. If the owner is fenced, it ships nothing, and no
    file is deleted."""
    with suppress(FencedError):
        for _ in range(3):
            log.roll(2)
            daemon.sync()
        for name in list(log.files())[:-1]:
            log.delete(name)


@pytest.mark.slow
def test_a_log_that_the_same_process_opens_again_gets_no_second_takeover(
    log: LogBuilder, state: str, tmp_path: Path
) -> None:
    """For example after its folder was away for a while, or after the configuration was read again."""
    store = FileStore(str(tmp_path / "replica"))
    Daemon(log, store, state + ".first", seed=1).sync()
    config = LogConfig(path=log.folder, takeover=True, replicas=(ReplicaConfig(url=store.url),))

    def sync(tools: ProcessContext) -> None:
        (opened,) = open_log(config, state, "here", tools)
        assert opened.task.replica is not None
        try:
            opened.task.replica.sync()
        finally:
            opened.task.replica.close()

    with a_process() as tools:
        sync(tools)
        other = Daemon(log, store, state + ".other", seed=2, takeover=True)
        other.sync()
        before = objects(store)
        for _ in range(2):
            with pytest.raises(FencedError):
                sync(tools)
        assert objects(store) == before
    with a_process() as tools:
        sync(tools)
    assert objects(store) != before
    log.append(1)
    expect_fenced(other, store)


@contextmanager
def a_process() -> Iterator[ProcessContext]:
    """The context that the replicas of one process share."""
    threads = DestinationThreads()
    with ThreadPoolExecutor(1) as compressing:
        yield ProcessContext(
            clock=SystemClock(),
            random=Random(0),
            listener=SilentListener(),
            compressing=compressing,
            threads=threads,
            trials=StoreTrials(Random(0)),
            stop_requested=threading.Event(),
            guard=lambda work: work(),
        )
    threads.shutdown(wait=True)


def fail() -> None:
    raise StoreError("put", "generations/", "injected")


def make_copy(log: LogBuilder, folder: Path) -> LogBuilder:
    """A copy of the log, as on another host."""
    shutil.copytree(log.folder, folder)
    copy = make_log(folder)
    copy.name, copy.next, copy.texts = log.name, log.next, dict(log.texts)
    return copy


@pytest.mark.parametrize("rewound", [False, True])
def test_an_owner_carries_on_what_the_predecessor_states_of_transactions(tmp_path: Path, rewound: bool) -> None:
    store, log = MemoryStore("carried"), make_log(tmp_path / "log")
    log.roll()
    log.append(3)
    daemon = Daemon(log, store, str(tmp_path / "first"))
    daemon.sync()
    daemon.close()
    (name,) = ObjectReplicaClient(store).claims()
    first = read_claim(ObjectReplicaClient(store), name)
    stated = (("query", 7), ("other", 0))
    store.put(first.key, [encode(replace(first, transactions=stated))], create_only=False)
    if rewound:
        os.truncate(log.path(), os.path.getsize(log.path()) - len(log.commit()))
    second = Daemon(log, store, str(tmp_path / "second"), takeover=True)
    second.sync()
    second.close()
    latest = find_latest(ObjectReplicaClient(store))
    assert (latest.epoch, latest.transactions) == (first.epoch + 1, stated)


@pytest.mark.parametrize("answers", ["come", "are lost"])
def test_a_takeover_that_stands_still_before_its_terminal_looks_again(tmp_path: Path, answers: str) -> None:
    """Steady puts prove to the owner that the generation is its own. Its slot of an hour ago is empty again, so the
    store takes the late terminal there."""
    clock, store, log = ManualClock(), MemoryStore(), make_log(tmp_path / "log")
    log.roll(1)
    owner = Daemon(log, store, str(tmp_path / "owner"), clock=clock)
    owner.sync()
    slow = AnswerLosingStore(store) if answers == "are lost" else CountingStore(store)
    successor = Daemon(log, slow, str(tmp_path / "successor"), seed=1, takeover=True, clock=clock)
    position = owner.replica.position
    assert position is not None
    slot = wal_key(position)

    def stand_still() -> None:
        for _ in range(4):
            log.append(1)
            owner.sync()
            clock.advance(GRACE_SECONDS / 4)
        wal = sorted(key for key in objects(store) if "/wal/" in key)
        assert slot in wal[:-LASTING_SEGMENTS]
        store.delete(wal[:-LASTING_SEGMENTS])

    slow.before_put("generations/", stand_still)
    successor.sync()
    log.append(1)
    with pytest.raises(FencedError):
        owner.sync()
    end = find_tip(ObjectReplicaClient(store), owner.claims[0])
    assert end.terminal is not None
    assert end.slot == owner.replica.position, "the end is after all that the owner acknowledged"
    assert slot not in objects(store)
    successor.sync()
    assert restored(store, tmp_path / "out") == log.files()
