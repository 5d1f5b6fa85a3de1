"""Log segments that go up sealed first, with real threads: logs take turns, they do not delay other logs, and a daemon
notices a stop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from litelog.errors import FinalSyncError
from litelog.objects.layout import parse_sealed
from litelog.replicator.thread_pools import SEALING_THREADS
from replica_clients.memory import MemoryStore
from tests.builders.child import runs_in_child
from tests.builders.daemon_builder import held
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.replicator_builder import Progress, Running
from tests.builders.stores import CountingStore
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from litelog.replicator import Replicator
    from litelog.stores.object_store import ObjectStore

PACE_SECONDS = 0.1
"""How long a slow store takes for a piece."""


class Gate(CountingStore):
    """Lets a given number of sealed segments pass, and holds the next one."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.waiting = 0
        self.passing = 0
        self.changed = threading.Condition()

    def let(self, count: int) -> None:
        with self.changed:
            self.passing += count
            self.changed.notify_all()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, WAIT_SECONDS)

    def put(self, key: str, body: Iterable[bytes], *, create_only: bool = True) -> None:  # type: ignore[override]
        if parse_sealed(key) is not None:
            with self.changed:
                self.waiting += 1
                self.changed.notify_all()
                assert self.changed.wait_for(lambda: self.passing > 0, WAIT_SECONDS)
                self.passing -= 1
                self.waiting -= 1
        super().put(key, body, create_only=create_only)  # type: ignore[arg-type]


class Slow(CountingStore):
    """Is slow with each piece of a sealed segment, except the first one."""

    def put(self, key: str, body: Iterable[bytes], *, create_only: bool = True) -> None:  # type: ignore[override]
        parsed = parse_sealed(key)
        super().put(key, self.slowly(body) if parsed and parsed[1] else body, create_only=create_only)  # type: ignore[arg-type]

    def slowly(self, body: Iterable[bytes]) -> Iterable[bytes]:
        for piece in body:
            threading.Event().wait(PACE_SECONDS)
            yield piece


def make_long(folder: Path, segments: int) -> LogBuilder:
    log = make_log(folder)
    for _ in range(segments):
        log.roll(2)
    return log


@pytest.mark.slow
def test_logs_that_go_up_sealed_hold_up_no_other_log_of_their_destination(
    make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore], tmp_path: Path
) -> None:
    """More logs go up sealed than a destination has threads, and its store accepts nothing."""
    gates = [Gate(MemoryStore(f"long{number}")) for number in range(6)]
    logs = [make_long(tmp_path / f"long{number}", 4) for number in range(6)]
    pairs = [(log, [f"testing://a/{number}"]) for number, log in enumerate(logs)]
    stores.update({f"testing://a/{number}": gate for number, gate in enumerate(gates)})
    small = make_log(tmp_path / "small")
    small.roll(1)
    stores["testing://a/small"] = MemoryStore("small")
    with Running(make(*pairs, (small, ["testing://a/small"]))) as running:
        progress.wait(lambda: any(event.log == small.folder for event in progress.shipped_events))
        for _ in range(3):
            small.append(1)
            progress.wait_for_end(small, stores["testing://a/small"].url)
        assert not any(event.log != small.folder for event in progress.shipped_events)
        for gate in gates:
            gate.let(100)
        for log, gate in zip(logs, gates, strict=True):
            progress.wait_for_end(log, gate.url)
    assert running.error is None
    for log, gate in zip(logs, gates, strict=True):
        assert held(gate) == log.files()


@pytest.mark.slow
def test_a_log_with_little_to_seal_need_not_wait_for_one_with_much(
    make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore], tmp_path: Path
) -> None:
    gate = Gate(MemoryStore("long"))
    long, short = make_long(tmp_path / "long", 40), make_long(tmp_path / "short", 3)
    stores.update({"testing://a/long": gate, "testing://a/short": MemoryStore("short")})
    let = 0
    with Running(make((long, ["testing://a/long"]), (short, ["testing://a/short"]))) as running:
        gate.wait_for(lambda: gate.waiting == SEALING_THREADS)  # all threads that seal there
        while not shipped(progress, short):
            gate.let(1)
            let += 1
            gate.wait_for(lambda: gate.passing == 0)
            progress.wait(lambda let=let: shipped(progress, short) or sealed(progress, long) >= let)  # type: ignore[misc]
            assert let <= 30, "the short one waits for all of the long one"
        assert sealed(progress, long) < 36
        gate.let(100)
        progress.wait_for_end(long, gate.url)
    assert running.error is None
    assert held(gate) == long.files()


def shipped(progress: Progress, log: LogBuilder) -> bool:
    return any(event.log == log.folder for event in progress.shipped_events)


def sealed(progress: Progress, log: LogBuilder) -> int:
    return sum(event.log == log.folder for event in progress.sealed_events)


@pytest.mark.slow
@runs_in_child
def test_a_stop_interrupts_sealing_and_the_next_start_adopts_sealed_segments(
    make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore], tmp_path: Path
) -> None:
    log = make_log(tmp_path / "log", "raw")
    for size in (9 << 20, 9 << 20, 9 << 20, 10):
        log.roll(1, size=size)
    store = MemoryStore("a")
    stores["testing://a"] = Slow(store)
    with Running(make((log, ["testing://a"]), timeout=0.3)) as running:
        progress.wait(lambda: len(progress.sealed_events) == 1)
        running.stop()
        assert isinstance(running.error, FinalSyncError)
        assert not running.replicator.abandoned
    assert [parse_sealed(info.key)[1] for info in store.list("generations/") if parse_sealed(info.key)] == [0]  # type: ignore[index]
    counting = stores["testing://a"] = CountingStore(store)
    with Running(make((log, ["testing://a"]))) as running:
        progress.wait_for_end(log, "memory://a")
    assert running.error is None
    assert len(read_replica(store)) == 1
    put = [parsed[1] for key in counting.put_keys if (parsed := parse_sealed(key)) is not None]
    assert put == [1, 2]
    assert held(store) == log.files()


@pytest.mark.slow
def test_a_daemon_that_was_down_seals_the_log_segments_finished_meanwhile(
    make: Callable[..., Replicator], progress: Progress, stores: dict[str, ObjectStore], tmp_path: Path
) -> None:
    log = make_long(tmp_path / "log", 2)
    store = MemoryStore("a")
    stores["testing://a"] = store
    make((log, ["testing://a"])).run(once=True)
    log.append(1)
    for _ in range(20):
        log.roll(3)
    make((log, ["testing://a"])).run(once=True)
    (generation,) = read_replica(store).values()
    finals = [header["index"] for header, _, _ in generation.segments if "sealed" in header]
    assert finals == list(range(2, 21))
    assert generation.files() == log.files()
