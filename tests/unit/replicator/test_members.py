"""Logs appear and disappear, and the configuration changes, while a replicator runs. Other logs are not disturbed."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.config import Config, FolderConfig, LogConfig, ReplicaConfig
from litelog.errors import ConfigError, FencedError, NotReplicatedError
from litelog.log.replica_registry import log_state_folder
from litelog.replicator import Replicator
from litelog.replicator.task import Phase
from litelog.replicator.thread_pools import SYNCING_THREADS
from litelog.system.inotify import Watcher
from replica_clients.file import FileStore
from replica_clients.memory import MemoryStore
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.replicator_builder import LONG_SECONDS, LowestRandom, Progress, Running
from tests.builders.stores import CountingStore, PausingStore
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.replicator.task import ReplicaTask
    from litelog.stores.object_store import ObjectStore

POLL = 0.05


class Bench:
    """A replicator over a folder of logs, and its replicas below ``replicas``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.progress = Progress()

    def entry(self, pattern: str = "*", url: str = "", **more: object) -> FolderConfig:
        replica = ReplicaConfig(url=url or f"file://{self.folder}/replicas", sync_interval=0.01)
        fields = {"dir": str(self.logs), "pattern": pattern, "poll_interval": POLL, "replicas": (replica,), **more}
        return FolderConfig(**fields)  # type: ignore[arg-type]

    def own(self, name: str, url: str, **more: object) -> LogConfig:
        replica = ReplicaConfig(url=url, sync_interval=0.01)
        return LogConfig(path=str(self.logs / name), poll_interval=POLL, replicas=(replica,), **more)  # type: ignore[arg-type]

    def config(self, *entries: FolderConfig | LogConfig, timeout: float = 20.0) -> Config:
        return Config(logs=entries, shutdown_timeout=timeout)

    def replicator(self, *entries: FolderConfig | LogConfig, timeout: float = 20.0, **more: object) -> Replicator:
        config = self.config(*entries, timeout=timeout)
        arguments: dict[str, object] = {"listener": self.progress, "random": LowestRandom(0), **more}
        return Replicator(config, state_dir=str(self.folder / "state"), host="test", **arguments)  # type: ignore[arg-type]

    def log(self, name: str, format: str = "litelog") -> LogBuilder:  # noqa: A002
        path = self.logs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made = make_log(path, format)
        made.roll(3)
        return made

    def held(self, name: str) -> dict[str, bytes]:
        return list(read_replica(FileStore(str(self.folder / "replicas" / name))).values())[-1].files()

    def wait_for(self, log: LogBuilder, name: str) -> None:
        self.progress.wait_for_end(log, FileStore(str(self.folder / "replicas" / name)).url)


def names_of(replicator: Replicator) -> list[str]:
    return sorted(Path(status.log).name for status in replicator.status())


def task_of(replicator: Replicator, name: str) -> ReplicaTask:
    return next(task for task in replicator._scheduler.tasks if Path(task.log).name == name)


def snapshots_in(url: str) -> list[str]:
    """The keys of a replica's snapshots."""
    return [info.key for info in FileStore(url.removeprefix("file://")).list("") if "/snapshots/" in info.key]


def open_files(folder: Path) -> list[str]:
    """The files below ``folder`` that this process has open, including deleted ones."""
    found = []
    for each in os.scandir("/proc/self/fd"):
        try:
            path = os.readlink(each.path)
        except OSError:
            continue
        if path.startswith(f"{folder}/"):
            found.append(path)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("watched", [True, False])
def test_a_topic_tree_is_replicated_as_it_grows(bench: Bench, watched: bool) -> None:
    watcher = Watcher()
    if not watched:
        watcher.close()
    first = bench.log("kafka/orders")
    poll = LONG_SECONDS if watched else POLL
    with Running(bench.replicator(bench.entry("*/*", poll_interval=poll), watcher=watcher)) as running:
        bench.wait_for(first, "kafka/orders")
        second, third = bench.log("kafka/carts"), bench.log("pulsar/a b")
        bench.wait_for(second, "kafka/carts")
        bench.wait_for(third, "pulsar/a=20b")
        second.append(2)
        bench.wait_for(second, "kafka/carts")
    assert running.error is None
    for log, name in ((first, "kafka/orders"), (second, "kafka/carts"), (third, "pulsar/a=20b")):
        assert bench.held(name) == log.files()


class TellingWatcher(Watcher):
    """Records the folders that it is to watch."""

    def __init__(self) -> None:
        super().__init__()
        self.armed: set[str] = set()

    def arm(self, folder: str, wake: Callable[[], None]) -> bool:
        done = super().arm(folder, wake)
        self.armed.add(folder)
        return done


@pytest.mark.slow
def test_a_folder_that_came_before_its_first_log_segment_is_watched(bench: Bench) -> None:
    watcher = TellingWatcher()
    with Running(bench.replicator(bench.entry("*/*", poll_interval=LONG_SECONDS), watcher=watcher)):
        wait_until(lambda: str(bench.logs) in watcher.armed)
        (bench.logs / "kafka").mkdir()
        wait_until(lambda: str(bench.logs / "kafka") in watcher.armed)
        (bench.logs / "kafka" / "orders").mkdir()
        wait_until(lambda: str(bench.logs / "kafka" / "orders") in watcher.armed)
        bench.wait_for(bench.log("kafka/orders"), "kafka/orders")


@pytest.mark.slow
def test_a_log_that_is_gone_is_closed_with_all_that_it_held(bench: Bench, tmp_path: Path) -> None:
    stays, goes = bench.log("stays"), bench.log("goes")
    with Running(bench.replicator(bench.entry())) as running:
        for log, name in ((stays, "stays"), (goes, "goes")):
            bench.wait_for(log, name)
        assert any("/logs/goes/" in path for path in open_files(tmp_path))
        held = goes.files()
        shutil.rmtree(goes.folder)
        wait_until(lambda: names_of(running.replicator) == ["stays"])
        assert not [path for path in open_files(tmp_path) if "goes" in path]
        assert goes.folder not in {folder for folder, _ in running.replicator._watcher._armed}
        stays.append(1)
        bench.wait_for(stays, "stays")
    assert running.error is None
    assert bench.held("goes") == held
    assert [path.name for path in (tmp_path / "state").glob("goes-*")]


@pytest.mark.slow
def test_a_log_that_comes_back_is_continued(bench: Bench, tmp_path: Path) -> None:
    log = bench.log("log")
    with Running(bench.replicator(bench.entry())) as running:
        bench.wait_for(log, "log")
        os.rename(log.folder, tmp_path / "away")
        wait_until(lambda: names_of(running.replicator) == [])
        (tmp_path / "away").rename(log.folder)
        log.append(2)
        bench.wait_for(log, "log")
    assert running.error is None
    assert bench.held("log") == log.files()
    assert len({claim.generation for claim in bench.progress.claims}) == 1


@pytest.mark.slow
def test_if_the_whole_folder_is_gone_nothing_is_closed(bench: Bench, tmp_path: Path) -> None:
    log = bench.log("log")
    with Running(bench.replicator(bench.entry())) as running:
        bench.wait_for(log, "log")
        task = task_of(running.replicator, "log")
        bench.logs.rename(tmp_path / "unmounted")
        wait_until(lambda: task.phase is Phase.BACKING_OFF)
        (tmp_path / "unmounted").rename(bench.logs)
        log.append(1)
        bench.wait_for(log, "log")
        assert task_of(running.replicator, "log") is task
    assert running.error is None


@pytest.mark.slow
def test_logs_are_not_looked_for_where_that_is_not_wanted(bench: Bench) -> None:
    first = bench.log("first")
    config = bench.entry(watch=False)
    with Running(bench.replicator(config)) as running:
        bench.wait_for(first, "first")
        second = bench.log("second")
        running.replicator.reload(bench.config(config, timeout=10.0))
        bench.wait_for(second, "second")
        bench.log("third")
        first.append(1)
        bench.wait_for(first, "first")
        assert names_of(running.replicator) == ["first", "second"]
    assert running.error is None


@pytest.mark.slow
def test_many_logs_have_no_threads_of_their_own(bench: Bench) -> None:
    logs = [bench.log(f"log-{number:03d}") for number in range(100)]
    with Running(bench.replicator(bench.entry())) as running:
        for number, log in enumerate(logs):
            bench.wait_for(log, f"log-{number:03d}")
        wait_until(running.replicator.is_ready)
        assert threading.active_count() < SYNCING_THREADS + 30 < len(logs)
    assert running.error is None
    for number, log in enumerate(logs):
        assert bench.held(f"log-{number:03d}") == log.files()


def test_once_ships_all_that_is_found(bench: Bench) -> None:
    logs = {name: bench.log(f"a/{name}") for name in ("x", "y")}
    bench.replicator(bench.entry("*/*")).run(once=True)
    assert {name: bench.held(f"a/{name}") for name in logs} == {name: log.files() for name, log in logs.items()}


@pytest.mark.slow
def test_a_found_log_that_cannot_be_opened_is_tried_again_and_holds_up_no_other(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fine = bench.log("fine")
    blocker = Path(log_state_folder(str(tmp_path / "state"), str(bench.logs / "late")))
    with Running(bench.replicator(bench.entry())) as running:
        bench.wait_for(fine, "fine")
        blocker.write_bytes(b"")
        late = bench.log("late")
        wait_until(lambda: "late: cannot be replicated (2 times in a row)" in caplog.text)
        fine.append(1)
        bench.wait_for(fine, "fine")
        blocker.unlink()
        bench.wait_for(late, "late")
    assert running.error is None
    assert bench.held("late") == late.files()


class Refusing:
    """Prevents a log from being opened until ``end``: its state folder cannot be made."""

    def __init__(self, bench: Bench, name: str) -> None:
        self._path = Path(log_state_folder(str(bench.folder / "state"), str(bench.logs / name)))
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_bytes(b"")

    def end(self) -> None:
        self._path.unlink()


@pytest.mark.slow
def test_a_log_that_cannot_be_opened_is_reported_until_it_can_be(bench: Bench) -> None:
    fine, late, refusing = bench.log("fine"), bench.log("late"), Refusing(bench, "late")
    with Running(bench.replicator(bench.entry())) as running:
        replicator = running.replicator
        bench.wait_for(fine, "fine")
        wait_until(lambda: replicator.opened)
        (found,) = replicator.not_replicated()
        assert (found.log, found.replica) == (late.folder, f"file://{bench.folder}/replicas/late")
        assert found.since <= time.monotonic()
        barrier = replicator.barrier(None, None, WAIT_SECONDS)
        assert (barrier.replicas, barrier.reached) == (2, False)
        assert [(each.log, each.phase) for each in barrier.unreached] == [(late.folder, "not replicated")]
        assert not replicator.barrier(late.folder, None, WAIT_SECONDS).reached
        refusing.end()
        bench.wait_for(late, "late")
        wait_until(lambda: replicator.not_replicated() == ())
        assert replicator.barrier(None, None, WAIT_SECONDS).reached
    assert running.error is None


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_reported_until_it_is(bench: Bench, tmp_path: Path) -> None:
    own = bench.log("own")
    entry = bench.entry().model_copy(update={"dir": str(tmp_path / "missing")})
    with Running(bench.replicator(entry, bench.own("own", f"file://{tmp_path}/replicas/own"))) as running:
        bench.wait_for(own, "own")
        (found,) = running.replicator.not_replicated()
        assert found.log == entry.dir
        assert "no such folder" in found.reason
        Path(entry.dir).mkdir()
        wait_until(lambda: running.replicator.not_replicated() == ())
    assert running.error is None


@pytest.mark.parametrize("missing", ["state", "folder"])
def test_once_fails_where_a_log_was_not_shipped(bench: Bench, tmp_path: Path, missing: str) -> None:
    fine = bench.log("fine")
    entries = [bench.entry()]
    if missing == "state":
        bench.log("late")
        Refusing(bench, "late")
    else:
        entries.append(
            bench.entry(url=f"file://{tmp_path}/others").model_copy(update={"dir": str(tmp_path / "missing")})
        )
    with pytest.raises(NotReplicatedError, match="is not replicated"):
        bench.replicator(*entries).run(once=True)
    assert bench.held("fine") == fine.files()


class CallingStore(CountingStore):
    """Calls once when it is opened."""

    def __init__(self, inner: ObjectStore, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call
        super().__init__(inner)

    @property  # type: ignore[override]
    def url(self) -> str:
        """Read when the store is opened."""
        call, self._call = self._call, None
        if call is not None:
            call()
        return self.inner.url

    @url.setter
    def url(self, _: str) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
def test_a_configuration_that_comes_while_logs_are_opened_is_next(
    bench: Bench, stores: dict[str, ObjectStore], before: bool
) -> None:
    logs = {name: bench.log(name) for name in ("a", "b", "c")}
    entry = bench.own("a", "testing://a")
    replicator = bench.replicator(entry, bench.entry("[bc]"))
    barriers = []

    def reload() -> None:
        assert replicator.reload(bench.config(entry, bench.entry("b")))
        barriers.append(replicator.barrier(None, None, 0.0))

    stores["testing://a"] = CallingStore(MemoryStore("a"), (lambda: None) if before else reload)
    if before:
        reload()
    with Running(replicator) as running:
        bench.wait_for(logs["b"], "b")
        wait_until(lambda: names_of(replicator) == ["a", "b"])
        assert replicator.barrier(None, None, WAIT_SECONDS).reached
        assert {status.phase for status in replicator.status()} <= {"idle", "spacing", "syncing"}
    assert running.error is None
    assert [[each.phase for each in barrier.unreached] for barrier in barriers] == [["opening"]]


@pytest.mark.slow
def test_unchanged_entries_are_not_disturbed(bench: Bench, stores: dict[str, ObjectStore]) -> None:
    counting = CountingStore(MemoryStore("a"))
    stores["testing://a"] = counting
    kept, gone, new = (bench.log(name) for name in ("kept", "gone", "new"))
    entry = bench.own("kept", "testing://a")
    elsewhere = f"file://{bench.folder}/replicas"
    with Running(bench.replicator(entry, bench.own("gone", f"{elsewhere}/gone"))) as running:
        bench.progress.wait_for_end(kept, counting.url)
        bench.wait_for(gone, "gone")
        wait_until(lambda: task_of(running.replicator, "kept").phase is Phase.IDLE)
        task, files, asked = (
            task_of(running.replicator, "kept"),
            open_files(Path(kept.folder)),
            counting.requests.total(),
        )
        gone.append(1)
        running.replicator.reload(bench.config(entry, bench.own("new", f"{elsewhere}/new")))
        bench.wait_for(new, "new")
        wait_until(lambda: names_of(running.replicator) == ["kept", "new"])
        assert task_of(running.replicator, "kept") is task
        assert open_files(Path(kept.folder)) == files
        assert counting.requests.total() == asked
        assert not open_files(Path(gone.folder))
    assert running.error is None
    assert bench.held("gone") == gone.files()  # it was finished


@pytest.mark.slow
def test_a_removed_log_is_synced_a_last_time_and_no_longer_watched(bench: Bench) -> None:
    """Its interval is not over, so only a last sync ships the records after the first WAL segment."""
    stays, goes = bench.log("stays"), bench.log("goes")
    url = f"file://{bench.folder}/replicas/goes"
    stay = bench.own("stays", f"file://{bench.folder}/replicas/stays")
    go = LogConfig(path=goes.folder, replicas=(ReplicaConfig(url=url, sync_interval=LONG_SECONDS),))
    with Running(bench.replicator(stay, go)) as running:
        for log, name in ((stays, "stays"), (goes, "goes")):
            bench.wait_for(log, name)
        goes.append(2)
        running.replicator.reload(bench.config(stay))
        wait_until(lambda: names_of(running.replicator) == ["stays"])
        assert bench.held("goes") == goes.files()
        assert not open_files(Path(goes.folder))
        assert goes.folder not in {folder for folder, _ in running.replicator._watcher._armed}
    assert running.error is None


@pytest.mark.slow
def test_a_removed_log_gets_a_last_snapshot(bench: Bench) -> None:
    goes, url = bench.log("goes"), f"file://{bench.folder}/replicas/goes"
    stay = bench.own("stays", f"file://{bench.folder}/replicas/stays")
    bench.log("stays")
    replica = ReplicaConfig(url=url, snapshot_interval=LONG_SECONDS, snapshot_segments=1000)
    with Running(bench.replicator(stay, LogConfig(path=goes.folder, replicas=(replica,)))) as running:
        bench.wait_for(goes, "goes")
        before = snapshots_in(url)
        goes.roll(2)
        bench.wait_for(goes, "goes")
        assert snapshots_in(url) == before
        running.replicator.reload(bench.config(stay))
        wait_until(lambda: names_of(running.replicator) == ["stays"])
        assert len(snapshots_in(url)) == len(before) + 1
    assert running.error is None


@pytest.mark.slow
def test_a_changed_entry_is_opened_again_after_its_sync(bench: Bench, stores: dict[str, ObjectStore]) -> None:
    store = PausingStore(MemoryStore("a"), "put")
    stores["testing://a"] = store
    log = bench.log("log")
    with Running(bench.replicator(bench.own("log", "testing://a"))) as running:
        assert store.reached.wait(WAIT_SECONDS)
        before = task_of(running.replicator, "log")
        running.replicator.reload(bench.config(bench.own("log", "testing://a", truncate={"max_age": 5.0})))
        assert before.phase is Phase.SYNCING
        store.release()
        wait_until(lambda: [task for task in running.replicator._scheduler.tasks if task is not before] != [])
        log.append(2)
        bench.progress.wait_for_end(log, store.url)
        assert before not in running.replicator._scheduler.tasks
    assert running.error is None
    assert list(read_replica(store).values())[-1].files() == log.files()


@pytest.mark.slow
def test_a_daemon_may_change_all_that_it_does(bench: Bench, tmp_path: Path) -> None:
    one, two = bench.log("one"), bench.log("two")
    with Running(bench.replicator(bench.own("one", f"file://{tmp_path}/replicas/one"))) as running:
        bench.wait_for(one, "one")
        running.replicator.reload(bench.config(bench.own("two", f"file://{tmp_path}/replicas/two")))
        bench.wait_for(two, "two")
        wait_until(lambda: names_of(running.replicator) == ["two"])
        running.replicator.reload(bench.config(bench.entry()))
        wait_until(lambda: names_of(running.replicator) == ["one", "two"])
        one.append(1)
        bench.wait_for(one, "one")
    assert running.error is None
    assert bench.held("one") == one.files()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "nowhere://x"}, "nowhere"),
        ({"format": "nonsense"}, "nonsense"),
        ({"url": "LOGS/log/replica"}, "in the folder of its own log"),
        ({"url": "LOGS/another"}, "another is the folder of a log of litelog: give the replica its own folder"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_whole(bench: Bench, change: dict[str, str], message: str) -> None:
    log = bench.log("log")
    bench.log("another").append(1)
    entry = bench.own("log", f"file://{bench.folder}/replicas/log")
    with Running(bench.replicator(entry)) as running:
        bench.wait_for(log, "log")
        task, before = task_of(running.replicator, "log"), running.replicator.config
        url = change.pop("url", f"file://{bench.folder}/other").replace("LOGS", str(bench.logs))
        with pytest.raises(ConfigError, match=message):
            running.replicator.reload(bench.config(bench.own("log", url, **change)))
        log.append(1)
        bench.wait_for(log, "log")
        assert (task_of(running.replicator, "log"), running.replicator.config) == (task, before)
    assert running.error is None


@pytest.mark.slow
def test_one_log_that_is_fenced_leaves_the_others_alone(bench: Bench, tmp_path: Path) -> None:
    mine, theirs = bench.log("mine"), bench.log("theirs")
    Replicator(
        bench.config(bench.own("theirs", f"file://{tmp_path}/replicas/theirs")),
        state_dir=str(tmp_path / "another"),
        host="other",
    ).run(once=True)
    with Running(bench.replicator(bench.entry())) as running:
        wait_until(lambda: "fenced" in running.phases())
        mine.append(1)
        bench.wait_for(mine, "mine")
    assert isinstance(running.error, FencedError)
    assert bench.held("mine") == mine.files()
    assert bench.held("theirs") == theirs.files()


class LastingStore(PausingStore):
    """Its requests wait even after a close, as it is opened more than once."""

    def close(self) -> None: ...


@pytest.mark.slow
def test_a_barrier_waits_for_logs_that_are_opened_again(bench: Bench, stores: dict[str, ObjectStore]) -> None:
    store = LastingStore(MemoryStore("a"), "put")
    stores["testing://a"] = store
    log = bench.log("log")
    with Running(bench.replicator(bench.own("log", "testing://a"))) as running:
        replicator = running.replicator
        assert store.reached.wait(WAIT_SECONDS)
        changed = bench.own("log", "testing://a").model_copy(
            update={"replicas": (ReplicaConfig(url="testing://a", sync_interval=0.02),)}
        )
        assert replicator.reload(bench.config(changed))
        wait_until(lambda: task_of(replicator, "log").leaving)
        for replica in (None, store.url):
            found = replicator.barrier(None, replica, 0.1)
            assert [each.phase for each in found.unreached] == ["opening"]
        store.release()
        assert replicator.barrier(log.folder, store.url, WAIT_SECONDS).reached
        assert list(read_replica(store).values())[-1].files() == log.files()
    assert running.error is None


@pytest.mark.slow
def test_a_barrier_is_reached_when_the_existing_data_is_durable(bench: Bench) -> None:
    log = bench.log("log")
    with Running(bench.replicator(bench.entry(poll_interval=LONG_SECONDS))) as running:
        bench.wait_for(log, "log")
        for _ in range(5):
            log.append(1)
            assert running.replicator.barrier(None, None, WAIT_SECONDS).reached
            assert bench.held("log") == log.files()
        with pytest.raises(ConfigError, match="is not replicated here"):
            running.replicator.barrier("/no/such/log", None, 1.0)
    assert running.error is None


@pytest.mark.slow
@pytest.mark.parametrize("settled", [True, False])
def test_a_barrier_is_reached_inside_the_sync_interval_where_nothing_is_left(bench: Bench, settled: bool) -> None:
    log = bench.log("log")
    if not settled:  # as within a tick of the clock after each change: another one might not show
        os.utime(log.path(), (time.time(), time.time() + 3600))
    url = f"file://{bench.folder}/replicas/log"
    rarely = ReplicaConfig(url=url, sync_interval=2 * LONG_SECONDS)
    entry = bench.own("log", url).model_copy(update={"replicas": (rarely,)})
    replicator = bench.replicator(entry)
    with Running(replicator) as running:
        bench.wait_for(log, "log")
        wait_until(lambda: task_of(replicator, "log").phase is Phase.THROTTLED)
        objects = sorted(Path(bench.folder / "replicas").rglob("*.lz4"))
        for _ in range(3):
            assert replicator.barrier(None, None, WAIT_SECONDS).reached
        log.append(1)
        found = replicator.barrier(None, None, 0.5)
        assert [each.phase for each in found.unreached] == ["spacing"]
        assert sorted(Path(bench.folder / "replicas").rglob("*.lz4")) == objects
    assert running.error is None
    assert bench.held("log") == log.files()


@pytest.mark.slow
def test_a_barrier_says_which_replicas_were_not_reached(bench: Bench, stores: dict[str, ObjectStore]) -> None:
    slow = PausingStore(MemoryStore("a"), "put")
    stores["testing://a"] = slow
    log = bench.log("log")
    fast = f"file://{bench.folder}/replicas/log"
    replicas = (ReplicaConfig(url="testing://a"), ReplicaConfig(url=fast))
    with Running(bench.replicator(bench.own("log", fast).model_copy(update={"replicas": replicas}))) as running:
        assert slow.reached.wait(WAIT_SECONDS)
        assert running.replicator.barrier(log.folder, fast, WAIT_SECONDS).reached
        found = running.replicator.barrier(None, None, 0.2)
        assert (found.replicas, [each.replica for each in found.unreached]) == (2, [slow.url])
        assert found.unreached[0].phase == "syncing"
        slow.release()
        assert running.replicator.barrier(log.folder, None, WAIT_SECONDS).reached
    assert running.error is None
