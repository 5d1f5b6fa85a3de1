"""When each replica is synced, with real threads and stores. A failure of one pair affects no other pair."""

from __future__ import annotations

import math
import shutil
import threading
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.errors import (
    CorruptCommitError,
    CorruptionError,
    FencedError,
    FinalSyncError,
    ReplicaLockedError,
    SourceMissingError,
    SourceSyncError,
    StoreError,
)
from litelog.replicator.replicator import _next_turn
from litelog.replicator.task import FINISHED, Phase, ReplicaTask, terminal_phase
from litelog.replicator.wiring import state_folder_of
from litelog.shipping.backoff import FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, next_delay
from litelog.shipping.state import StateFolder
from litelog.system.clock import SystemClock
from litelog.system.inotify import Watcher
from replica_clients.file import FileStore
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import held
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.replicator_builder import LONG_SECONDS, Progress, Running
from tests.builders.stores import CountingStore, Fault, FaultyStore, PausingStore
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

    from litelog.replicator import Replicator
    from litelog.shipping.events import WalSegmentShipped
    from litelog.stores.object_store import ObjectStore


@pytest.mark.parametrize(
    ("due", "wakes"),
    [(10.4, 10.4), (11.3, 11.3), (11.31, 11.0), (math.inf, 11.0)],
    ids=["soon", "turn", "late", "never"],
)
def test_the_main_loop_wakes_once_a_turn_and_only_for_what_is_due(due: float, wakes: float) -> None:
    assert _next_turn(10.3, due) == pytest.approx(wakes)


@pytest.mark.slow
@pytest.mark.parametrize("watched", [True, False])
def test_every_replica_gets_all_of_a_log_as_it_grows(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, tmp_path: Path, watched: bool
) -> None:
    urls = [f"file://{tmp_path}/one", f"file://{tmp_path}/two"]
    watcher = Watcher()
    if not watched:
        watcher.close()
    with Running(make((log, urls), poll=LONG_SECONDS if watched else 0.01, watcher=watcher)) as running:
        for _ in range(4):
            for url in urls:
                progress.wait_for_end(log, url)
            log.append(2)
            for url in urls:
                progress.wait_for_end(log, url)
            log.roll(1)
    assert running.error is None
    for name in ("one", "two"):
        assert held(FileStore(str(tmp_path / name))) == log.files()
    assert not running.replicator.abandoned


@pytest.mark.slow
def test_lines_and_raw_files_are_replicated_too(
    make: Callable[..., Replicator], progress: Progress, tmp_path: Path
) -> None:
    logs = [make_log(tmp_path / name, name) for name in ("lines", "raw")]
    for log in logs:
        log.roll(3)
        log.roll(2)
    urls = [f"file://{tmp_path}/to-{log.format.name}" for log in logs]
    with Running(make(*((log, [url]) for log, url in zip(logs, urls, strict=True)))) as running:
        for log, url in zip(logs, urls, strict=True):
            progress.wait_for_end(log, url)
    assert running.error is None
    for log in logs:
        assert held(FileStore(f"{tmp_path}/to-{log.format.name}")) == log.files()


@pytest.mark.slow
def test_a_log_without_an_id_has_one_in_all_of_its_replicas(make: Callable[..., Replicator], tmp_path: Path) -> None:
    """Replicas that begin together, and a replica that is added later, have the same id. After a loss of the state, it
    is the id that a replica states."""
    first, second = (make_log(tmp_path / name, "lines") for name in ("first", "second"))
    for log in (first, second):
        log.roll(3)
    urls = [f"file://{tmp_path}/{name}" for name in "abcd"]
    make((first, urls[:2])).run(once=True)
    make((first, urls[:3]), random=Random(1)).run(once=True)
    ids = [claim_log(url) for url in urls[:3]]
    assert len(set(ids)) == 1

    shutil.rmtree(tmp_path / "state")
    make((first, urls[2:3]), random=Random(2), takeover=True).run(once=True)
    make((first, urls[2:4]), random=Random(3)).run(once=True)
    assert claim_log(urls[3]) == ids[0]

    make((second, [f"file://{tmp_path}/other"]), random=Random(4)).run(once=True)
    assert claim_log(f"file://{tmp_path}/other") not in ids, "another log has another id"


def claim_log(url: str) -> str:
    """The log's id that a replica's newest claim states."""
    return str(list(read_replica(FileStore(url.removeprefix("file://"))).values())[-1].claim["log"])


@pytest.mark.slow
def test_the_first_bytes_ship_at_once_and_the_next_after_the_interval(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore]
) -> None:
    stores["testing://a"] = MemoryStore("a")
    with Running(make((log, ["testing://a"]), interval=LONG_SECONDS)) as running:
        progress.wait_for_end(log, "memory://a")
        for _ in range(20):
            log.append(1)
    assert running.error is None
    assert held(stores["testing://a"]) == log.files()
    assert len(progress.shipped_events) == 2


@pytest.mark.slow
def test_a_size_limit_ships_before_the_interval_is_over(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore]
) -> None:
    stores["testing://a"] = MemoryStore("a")
    with Running(make((log, ["testing://a"]), interval=LONG_SECONDS)) as running:
        progress.wait_for_end(log, "memory://a")
        log.append(10, size=1000)
        progress.wait_for_end(log, "memory://a")
    assert running.error is None


def test_once_ships_the_existing_data_and_ends(
    log: LogBuilder, make: Callable[..., Replicator], tmp_path: Path
) -> None:
    for _ in range(3):
        log.roll(20, size=1000)
    make((log, [f"file://{tmp_path}/one"])).run(once=True)
    assert held(FileStore(str(tmp_path / "one"))) == log.files()


@pytest.mark.slow
def test_one_failing_replica_holds_back_nothing(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore]
) -> None:
    failing = FaultyStore(MemoryStore("bad"), rates={"list": ([Fault.BEFORE], 1.0), "open": ([Fault.BEFORE], 1.0)})
    stores.update({"testing://good": MemoryStore("good"), "testing://bad": failing})
    with Running(make((log, ["testing://bad", "testing://good"]), timeout=0.5)) as running:
        for _ in range(5):
            progress.wait_for_end(log, "memory://good")
            log.append(1)
        bad, good = running.replicator.status()
        assert good.error is None
        assert bad.position is None
        failing.enabled = False  # it comes back
        progress.wait_for_end(log, "memory://bad")
    assert running.error is None
    assert held(failing.inner) == held(stores["testing://good"]) == log.files()


def test_a_frozen_log_stops_no_other(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, tmp_path: Path
) -> None:
    bad = make_log(tmp_path / "bad")
    bad.roll(3)
    bad.overwrite(64 + 45, b"\xff")
    urls = [f"file://{tmp_path}/to-bad", f"file://{tmp_path}/to-good"]
    with Running(make((bad, urls[:1]), (log, urls[1:]))) as running:
        for _ in range(3):
            progress.wait_for_end(log, urls[1])
            log.append(1)
    assert isinstance(running.error, CorruptCommitError)
    assert running.error.path == bad.path()
    assert running.phases() == ["frozen", "done"]
    assert held(FileStore(str(tmp_path / "to-good"))) == log.files()


def test_a_pair_that_is_locked_is_out_and_others_continue(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, tmp_path: Path
) -> None:
    urls = [f"file://{tmp_path}/one", f"file://{tmp_path}/two"]
    replicator = make((log, urls))
    folder = state_folder_of(str(tmp_path / "state"), log.folder, urls[0], urls[0])
    with StateFolder(folder, "another daemon"), Running(replicator) as running:
        progress.wait_for_end(log, urls[1])
        log.append(1)
    assert isinstance(running.error, ReplicaLockedError)
    assert held(FileStore(str(tmp_path / "two"))) == log.files()
    assert list(FileStore(str(tmp_path / "one")).list("")) == []


@pytest.mark.slow
def test_when_all_are_fenced_the_run_ends_by_itself(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore], tmp_path: Path
) -> None:
    from tests.builders.daemon_builder import Daemon

    inner = MemoryStore("a")
    stores["testing://a"] = inner
    with Running(make((log, ["testing://a"]))) as running:
        progress.wait_for_end(log, "memory://a")
        Daemon(log, inner, str(tmp_path / "rival"), seed=9, takeover=True).sync()
        told = len(progress.shipped_events)
        log.append(1)
        running.join()
    assert isinstance(running.error, FencedError)
    assert len(progress.shipped_events) == told


@pytest.mark.slow
def test_a_log_that_is_not_there_yet_is_waited_for(
    make: Callable[..., Replicator], progress: Progress, tmp_path: Path
) -> None:
    log = LogBuilder(str(tmp_path / "later"), make_log(tmp_path / "elsewhere").format)
    url = f"file://{tmp_path}/one"
    with Running(make((log, [url]))) as running:
        missed = (any(status.failures for status in running.replicator.status()) for _ in range(1_000_000))
        assert any(missed)
        (tmp_path / "later").mkdir()
        log.roll(2)
        progress.wait_for_end(log, url)
    assert running.error is None


def test_stop_before_anything_started_still_ships_all(
    log: LogBuilder, make: Callable[..., Replicator], tmp_path: Path
) -> None:
    replicator = make((log, [f"file://{tmp_path}/one"]))
    replicator.stop()
    replicator.stop()
    replicator.run()
    assert held(FileStore(str(tmp_path / "one"))) == log.files()


class Held(SystemClock):
    """After ``stopped``, holds all pool threads until the run's own thread has begun the final sync."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.final = threading.Event()
        self.replicator: Replicator | None = None

    def monotonic(self) -> float:
        if self.stopped.is_set() and self.replicator is not None:
            if self.replicator._run_state.final:
                self.final.set()
            if threading.current_thread().name.startswith("sync"):
                assert self.final.wait(WAIT_SECONDS)
        return super().monotonic()


@pytest.mark.slow
def test_a_sync_that_stop_cut_short_is_not_the_final_one(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, tmp_path: Path
) -> None:
    for _ in range(5):
        log.roll(10, size=1000)
    clock = Held()
    replicator = make((log, [f"file://{tmp_path}/one"]), clock=clock)
    clock.replicator = replicator

    def stop(_: WalSegmentShipped) -> None:
        clock.stopped.set()
        replicator.stop()

    progress.on_shipped = stop
    replicator.run()
    assert held(FileStore(str(tmp_path / "one"))) == log.files()
    assert [status.phase for status in replicator.status()] == ["done"]


def test_a_final_sync_that_the_deadline_cuts_short_is_not_done(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, tmp_path: Path
) -> None:
    for _ in range(5):
        log.roll(10, size=1000)
    replicator = make((log, [f"file://{tmp_path}/one"]), timeout=0.0)
    progress.on_shipped = lambda _: replicator.stop()
    with pytest.raises(FinalSyncError):
        replicator.run()
    assert [status.phase for status in replicator.status()] != ["done"]


class Late(SystemClock):
    """In the threads that sync, the final sync's deadline has passed as soon as it is set."""

    def __init__(self) -> None:
        self.replicator: Replicator | None = None

    def monotonic(self) -> float:
        syncing = threading.current_thread().name.startswith("sync")
        late = syncing and self.replicator is not None and self.replicator._run_state.final
        return super().monotonic() + (LONG_SECONDS if late else 0.0)


def test_a_final_sync_that_had_no_time_to_begin_is_not_done(
    log: LogBuilder, make: Callable[..., Replicator], tmp_path: Path
) -> None:
    clock = Late()
    replicator = clock.replicator = make((log, [f"file://{tmp_path}/one"]), clock=clock)
    replicator.stop()
    with pytest.raises(FinalSyncError, match="not done in time"):
        replicator.run()


@pytest.mark.slow
@pytest.mark.parametrize("once", [False, True])
def test_a_store_that_hangs_ends_in_bounded_time(
    log: LogBuilder, make: Callable[..., Replicator], stores: dict[str, ObjectStore], once: bool
) -> None:
    hanging = PausingStore(MemoryStore("a"), "put")
    stores["testing://a"] = hanging
    running = Running(make((log, ["testing://a"]), timeout=0.2), once=once)
    with running:
        assert hanging.reached.wait(WAIT_SECONDS)
        running.stop()
        assert isinstance(running.error, FinalSyncError)
        assert running.replicator.abandoned
        hanging.release()


@pytest.mark.slow
def test_a_store_that_fails_to_the_end_is_reported(
    log: LogBuilder, make: Callable[..., Replicator], stores: dict[str, ObjectStore]
) -> None:
    stores["testing://a"] = FaultyStore(MemoryStore("a"), rates={"put": ([Fault.BEFORE], 1.0)})
    with pytest.raises(StoreError):
        make((log, ["testing://a"])).run(once=True)
    replicator = make((log, ["testing://a"]), timeout=0.2)
    replicator.stop()
    with pytest.raises(FinalSyncError, match="injected"):
        replicator.run()


class UnsealingStore(CountingStore):
    """Accepts all objects except sealed segments."""

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if "/segments/" in key:
            self._count("sealed")
            raise StoreError("put", key, "injected")
        super().put(key, body, create_only=create_only)


@pytest.mark.slow
def test_a_first_contact_that_fails_backs_off_and_is_reported(
    log: LogBuilder, make: Callable[..., Replicator], stores: dict[str, ObjectStore], caplog: pytest.LogCaptureFixture
) -> None:
    log.roll(2)
    store = UnsealingStore(MemoryStore("a"))
    stores["testing://a"] = store
    with pytest.raises(StoreError, match="injected"):
        make((log, ["testing://a"])).run(once=True)
    assert "continues after" not in caplog.text
    with Running(make((log, ["testing://a"]), timeout=0.2, random=Random(1))) as running:
        asked = store.requests["sealed"]
        while running.replicator.status()[:1] == [] or (status := running.replicator.status()[0]).failures < 3:
            assert store.requests["sealed"] < asked + 100
        assert status.failing_seconds > 0
    assert isinstance(running.error, FinalSyncError)


@pytest.mark.slow
def test_a_final_sync_comes_to_an_end_though_the_writer_does_not(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore]
) -> None:
    stores["testing://a"] = MemoryStore("a")
    progress.on_shipped = lambda _: log.append(1) and None
    with Running(make((log, ["testing://a"]))) as running:
        progress.wait(lambda: len(progress.shipped_events) > 3)
    assert running.error is None


@pytest.mark.slow
def test_idle_means_no_request(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore]
) -> None:
    store = CountingStore(MemoryStore("a"))
    stores["testing://a"] = store
    other = make_log(log.folder + ".other")
    other.roll(1)
    stores["testing://b"] = MemoryStore("b")
    with Running(make((log, ["testing://a"]), (other, ["testing://b"]), poll=0.005)) as running:
        progress.wait_for_end(log, "memory://a")
        before = store.total()
        for _ in range(20):  # while the other one is polled and ships, this one is only polled
            progress.wait_for_end(other, "memory://b")
            other.append(1)
    assert running.error is None
    assert store.total() == before


class OldLocks:
    """The locks of a store whose objects were all put in 1970."""

    retain = 3600.0

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        return ((info.key, 0) for info in self._store.list(prefix))

    def extend(self, key: str) -> None:
        self._store.open(key).close()


class LockingStore(MemoryStore):
    """A store that locks its objects."""

    @property
    def locks(self) -> OldLocks:
        return OldLocks(self)


def test_requests_that_extend_locks_are_counted_with_the_other_requests(
    log: LogBuilder, make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore]
) -> None:
    store = stores["testing://locking"] = LockingStore("locking")
    with Running(make((log, ["testing://locking"]))) as running:
        progress.wait_for_end(log, "memory://locking")
        (task,) = running.replicator._scheduler.tasks
    assert running.error is None
    assert task.lock_extension is not None
    assert task.counters is not None
    requests = task.counters.requests
    before = dict(requests.requests)
    result = task.lock_extension.run(threading.Event())
    assert result is not None
    assert result.error is None
    assert requests.requests["lock", "ok"] == result.extended == len(list(store.list(""))) > 0
    assert requests.durations["lock"].observed == result.extended
    assert requests.requests["list", "ok"] > before["list", "ok"], "the listing of the round is a request, too"


@given(seed=st.integers(), failures=st.integers(1, 200))
def test_delays_are_jittered_rise_and_are_capped(seed: int, failures: int) -> None:
    random, delay = Random(seed), FIRST_DELAY_SECONDS
    for _ in range(failures):
        before, delay = delay, next_delay(delay, random)
        assert FIRST_DELAY_SECONDS <= delay <= min(MAX_DELAY_SECONDS, 3 * before)


def test_delays_of_two_replicas_differ() -> None:
    one, two = Random(1), Random(2)
    assert next_delay(10.0, one) != next_delay(10.0, two)


def test_failures_that_pass_are_tried_again_and_others_are_for_good() -> None:
    assert terminal_phase(StoreError("put", "key", "down")) is None
    assert terminal_phase(SourceMissingError("/log", "gone")) is None
    assert terminal_phase(FencedError("")) is Phase.FENCED
    assert terminal_phase(CorruptionError("")) is Phase.FROZEN
    assert terminal_phase(SourceSyncError("", "")) is Phase.FROZEN
    assert {Phase.FENCED, Phase.FROZEN} <= FINISHED


@pytest.mark.slow
def test_a_success_forgets_the_failures_before() -> None:
    task = ReplicaTask("/log", "memory://a", None, 1.0, 1.0, 4096)
    for _ in range(20):
        task.fail(StoreError("put", "key", "down"), 100.0, Random(0))
    assert (task.phase, task.failures) == (Phase.BACKING_OFF, 20)
    assert 100.0 + FIRST_DELAY_SECONDS <= task.due <= 100.0 + MAX_DELAY_SECONDS
    task.succeed()
    assert (task.error, task.failures, task.back_off.delay) == (None, 0, FIRST_DELAY_SECONDS)
