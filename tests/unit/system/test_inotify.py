"""A Watcher wakes once for a change after arming, and loses no change."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.system.inotify import Watcher
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    if not watcher.available:
        pytest.skip("no inotify here")
    yield watcher
    watcher.close()


def test_every_kind_of_change_wakes(watcher: Watcher, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    changes = {
        "create": lambda: log.write_bytes(b""),
        "append": lambda: log.write_bytes(b"x"),
        "truncate": lambda: os.truncate(log, 0),
        "rename": lambda: log.rename(tmp_path / "b.log"),
        "delete": (tmp_path / "b.log").unlink,
        "folder gone": tmp_path.rmdir,
    }
    for name, change in changes.items():
        woken = threading.Event()
        assert watcher.arm(str(tmp_path), woken.set), name
        change()
        assert woken.wait(WAIT_SECONDS), name


def test_wakes_once_for_each_arming(watcher: Watcher, tmp_path: Path) -> None:
    calls: list[int] = []
    woken = threading.Semaphore(0)

    def wake() -> None:
        calls.append(1)
        woken.release()

    for expected in (1, 2):
        assert watcher.arm(str(tmp_path), wake)
        assert watcher.arm(str(tmp_path), wake)
        for number in range(20):
            (tmp_path / f"{number}.log").write_bytes(b"x")
        assert woken.acquire(timeout=WAIT_SECONDS)
        _settle(watcher, tmp_path.parent)
        assert len(calls) == expected


def test_a_change_before_arming_is_not_reported(watcher: Watcher, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    woken = threading.Event()
    (folder / "a.log").write_bytes(b"x")
    assert watcher.arm(str(folder), woken.set)
    _settle(watcher, tmp_path)
    assert not woken.is_set()
    (folder / "a.log").write_bytes(b"xy")
    assert woken.wait(WAIT_SECONDS)


def test_several_waiters_on_one_folder_all_wake(watcher: Watcher, tmp_path: Path) -> None:
    events = [threading.Event() for _ in range(10)]
    for event in events:
        assert watcher.arm(str(tmp_path), event.set)
    (tmp_path / "a").write_bytes(b"")
    assert all(event.wait(WAIT_SECONDS) for event in events)


@pytest.mark.slow
def test_many_folders_wake_their_own_waiters(watcher: Watcher, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(300)]
    events = [threading.Event() for _ in folders]
    for folder, event in zip(folders, events, strict=True):
        folder.mkdir()
        assert watcher.arm(str(folder), event.set)
    for folder in folders[::2]:
        (folder / "a").write_bytes(b"")
    assert all(event.wait(WAIT_SECONDS) for event in events[::2])
    _settle(watcher, tmp_path)
    assert not any(event.is_set() for event in events[1::2])


def test_a_missing_folder_is_refused_and_others_continue(watcher: Watcher, tmp_path: Path) -> None:
    assert not watcher.arm(str(tmp_path / "nowhere"), lambda: None)
    (tmp_path / "file").write_bytes(b"")
    assert not watcher.arm(str(tmp_path / "file"), lambda: None)
    woken = threading.Event()
    assert watcher.arm(str(tmp_path), woken.set)
    (tmp_path / "a").write_bytes(b"")
    assert woken.wait(WAIT_SECONDS)


def test_a_disarmed_waiter_stays_asleep_and_others_wake(watcher: Watcher, tmp_path: Path) -> None:
    gone, kept = threading.Event(), threading.Event()
    assert watcher.arm(str(tmp_path), gone.set)
    assert watcher.arm(str(tmp_path), kept.set)
    watcher.disarm(str(tmp_path), gone.set)
    watcher.disarm(str(tmp_path), gone.set)
    (tmp_path / "a").write_bytes(b"")
    assert kept.wait(WAIT_SECONDS)
    assert not gone.is_set()


def test_two_paths_of_one_folder_are_two_waits(watcher: Watcher, tmp_path: Path) -> None:
    """The kernel has one watch for both."""
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    one, other = threading.Event(), threading.Event()
    assert watcher.arm(str(folder), one.set)
    assert watcher.arm(str(link), other.set)
    watcher.disarm(str(folder), one.set)
    (folder / "a").write_bytes(b"")
    assert other.wait(WAIT_SECONDS)
    assert not one.is_set()


@pytest.mark.slow
def test_a_queue_overflow_wakes_everybody_and_watching_continues(watcher: Watcher, tmp_path: Path) -> None:
    held, go_on, waiting, other = tmp_path / "held", threading.Event(), threading.Event(), threading.Event()
    entered = threading.Event()
    for name in ("held", "waiting", "other"):
        (tmp_path / name).mkdir()

    def hold() -> None:
        entered.set()
        go_on.wait(WAIT_SECONDS)

    assert watcher.arm(str(held), hold)
    assert watcher.arm(str(tmp_path / "waiting"), waiting.set)
    (held / "a").write_bytes(b"")
    assert entered.wait(WAIT_SECONDS)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"{limit} events fit into the queue here")
    for _ in range(limit + 100):  # each leaves an event that the held thread does not read
        assert watcher.arm(str(tmp_path / "other"), other.set)
        watcher.disarm(str(tmp_path / "other"), other.set)
    (tmp_path / "waiting" / "a").write_bytes(b"")  # finds the queue full
    go_on.set()
    assert waiting.wait(WAIT_SECONDS)
    assert watcher.arm(str(tmp_path / "other"), other.set)
    (tmp_path / "other" / "a").write_bytes(b"")
    assert other.wait(WAIT_SECONDS)


@pytest.mark.slow
def test_no_wake_up_is_lost_between_a_writer_and_a_reader(watcher: Watcher, tmp_path: Path) -> None:
    total = 3000
    log = tmp_path / "a.log"
    log.write_bytes(b"")
    woken = threading.Semaphore(0)
    turn = threading.Semaphore(0)

    def write() -> None:
        with log.open("ab", buffering=0) as stream:
            for number in range(total):
                stream.write(b"x")
                if number % 3 == 0:
                    turn.acquire(timeout=WAIT_SECONDS)

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while seen < total:
        armed = watcher.arm(str(tmp_path), woken.release)
        size = log.stat().st_size
        if size > seen:
            seen = size
            turn.release()
            continue
        assert armed
        turn.release()
        assert woken.acquire(timeout=WAIT_SECONDS), f"asleep at {seen} of {log.stat().st_size}"
    writer.join()
    assert seen == total


@pytest.mark.slow
def test_without_inotify_every_arm_says_poll() -> None:
    program = """
import sys, types
sys.modules["watchdog.observers.inotify_c"] = None
from litelog.system.inotify import Watcher
watcher = Watcher()
assert not watcher.available and not watcher.arm("/", print)
watcher.disarm("/", print)
watcher.close()
print("polls")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "polls\n"


def test_closing_closes_its_descriptors() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    watchers = [Watcher() for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) > len(before)
    for watcher in watchers:
        watcher.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_closing_forgets_all_and_arms_no_more(tmp_path: Path) -> None:
    watcher = Watcher()
    woken = threading.Event()
    watcher.arm(str(tmp_path), woken.set)
    watcher.close()
    watcher.close()
    (tmp_path / "a").write_bytes(b"")
    assert not watcher.available
    assert not watcher.arm(str(tmp_path), woken.set)
    assert not woken.is_set()


def _settle(watcher: Watcher, folder: Path) -> None:
    """Return when the events that were queued before have been handled. The queue is ordered."""
    done = threading.Event()
    place = folder / f"settle-{threading.get_ident()}-{len(list(folder.iterdir()))}"
    place.mkdir()
    assert watcher.arm(str(place), done.set)
    (place / "a").write_bytes(b"")
    assert done.wait(WAIT_SECONDS)
