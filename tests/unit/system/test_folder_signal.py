"""A FolderSignal ends its thread's wait for each change and each ``wake``, and loses none that came before the wait."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from litelog.system.folder_signal import MOST_DESCRIPTORS, FolderSignal
from litelog.system.inotify import Watcher
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENOUGH_SECONDS = 10 * WAIT_SECONDS
"""A wait that lasts as long has failed."""


class NoInotify(Watcher):
    """A watcher whose system gives no further inotify descriptor."""

    @staticmethod
    def open_inotify() -> int:
        return -1


@pytest.fixture(params=[Watcher, NoInotify], ids=["own descriptor", "through the watcher"])
def watcher(request: pytest.FixtureRequest) -> Iterator[Watcher]:
    made: Watcher = request.param()
    if not made.available:
        pytest.skip("no inotify here")
    yield made
    made.close()


class Waiter:
    """A thread that waits for one folder again and again, as the live buffer does, and counts how often it looked."""

    def __init__(self, folder: Path, watcher: Watcher) -> None:
        self.signal = FolderSignal(str(folder), watcher)
        self.looks = 0
        self.armed: list[bool] = []
        self.ends = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.ends:
            self.armed.append(self.signal.arm())
            self.looks += 1
            self.signal.wait(ENOUGH_SECONDS)

    def end(self) -> None:
        self.ends = True
        self.signal.wake()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        self.signal.close()


@pytest.fixture
def waiter(tmp_path: Path, watcher: Watcher) -> Iterator[Waiter]:
    waiter = Waiter(tmp_path, watcher)
    wait_until(lambda: waiter.looks == 1)
    yield waiter
    waiter.end()


def test_every_kind_of_change_is_looked_at(waiter: Waiter, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for change in (
        lambda: log.write_bytes(b""),
        lambda: log.write_bytes(b"x"),
        lambda: os.truncate(log, 0),
        lambda: log.rename(tmp_path / "b.log"),
        (tmp_path / "b.log").unlink,
    ):
        before = waiter.looks
        change()
        wait_until(lambda before=before: waiter.looks > before)
    assert all(waiter.armed)


def test_change_between_arming_and_waiting_is_not_lost(tmp_path: Path, watcher: Watcher) -> None:
    signal = FolderSignal(str(tmp_path), watcher)
    assert signal.arm()
    (tmp_path / "a.log").write_bytes(b"x")
    signal.wait(ENOUGH_SECONDS)
    signal.wake()
    signal.wait(ENOUGH_SECONDS)
    signal.close()


def test_folder_that_replaces_another_one_is_watched(waiter: Waiter, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    watcher = waiter.signal._watcher
    other = Waiter(folder, watcher)
    wait_until(lambda: other.looks == 1)
    folder.rename(tmp_path / "old")
    folder.mkdir()
    before = other.looks
    other.signal.wake()  # the folder may have had no name when it was armed again
    wait_until(lambda: other.looks > before and other.armed[-1])
    before = other.looks
    (folder / "a.log").write_bytes(b"x")
    wait_until(lambda: other.looks > before)
    other.end()


def test_after_disarm_only_wake_ends_the_wait(tmp_path: Path, watcher: Watcher) -> None:
    signal = FolderSignal(str(tmp_path), watcher)
    assert signal.arm()
    (tmp_path / "a.log").write_bytes(b"x")
    if signal._inotify >= 0:  # a call of the watcher may be under way, and is a hint like all others
        signal.disarm()
        (tmp_path / "b.log").write_bytes(b"x")
        assert signal._poll.poll(0) == []
    signal.wake()
    assert signal._poll.poll(0) != []
    signal.close()


def test_folder_that_is_not_there_is_not_watched(tmp_path: Path, watcher: Watcher) -> None:
    signal = FolderSignal(str(tmp_path / "none"), watcher)
    assert not signal.arm()
    signal.close()


def test_wake_after_close_does_nothing(tmp_path: Path, watcher: Watcher) -> None:
    signal = FolderSignal(str(tmp_path), watcher)
    signal.close()
    signal.wake()
    signal.close()
    assert signal._waking == -1


def test_signals_leave_inotify_descriptors_to_other_programs(tmp_path: Path) -> None:
    """Those of many served logs would be all that their user may have."""
    watcher = Watcher()
    if not watcher.available:
        pytest.skip("no inotify here")
    for _ in range(2):  # what is closed can be had again
        signals = [FolderSignal(str(tmp_path), watcher) for _ in range(MOST_DESCRIPTORS + 2)]
        assert [signal._inotify >= 0 for signal in signals] == [True] * MOST_DESCRIPTORS + [False] * 2
        assert all(signal.arm() for signal in signals)
        (tmp_path / "a.log").write_bytes(b"x")
        for signal in signals:
            assert signal._poll.poll(1000 * WAIT_SECONDS), "no change was reported"
            signal.close()
            signal.close()
    watcher.close()
