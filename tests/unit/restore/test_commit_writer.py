"""The files of a restore are opened by many threads, of which none waits for another one's disk space."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from litelog.restore.commit_writer import SegmentFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def create(tmp_path: Path) -> Iterator[partial[int]]:
    folder = os.open(tmp_path, os.O_RDONLY)
    yield partial(os.open, flags=os.O_RDWR | os.O_CREAT, dir_fd=folder)
    os.close(folder)


def test_a_thread_opens_a_log_segment_while_another_reserves_room(create: partial[int]) -> None:
    outcomes: list[object] = []

    def open_meanwhile(file: int, size: int) -> None:
        opened: list[int] = []
        other = threading.Thread(target=lambda: opened.append(files.open(1, "1.log")), daemon=True)
        other.start()
        other.join(timeout=30)
        outcomes.append((opened == [file], size))

    files = SegmentFiles(create, create, {1: 5000}, [1, 1], open_meanwhile)
    first = files.open(1, "1.log")
    assert outcomes == [(True, 5000)]  # room is reserved once
    files.done(1)
    os.fstat(first)
    files.done(1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first)


def test_a_file_without_room_is_closed_with_the_others(create: partial[int]) -> None:
    reserved: list[int] = []

    def refuse(file: int, _: int) -> None:
        reserved.append(file)
        raise OSError(28, "No space left on device")

    files = SegmentFiles(create, create, {1: 5000, 2: 5000}, [1, 2], refuse)
    with pytest.raises(OSError, match="No space left"):
        files.open(1, "1.log")
    with pytest.raises(OSError, match="No space left"), files.opened_apart(2, "2.log"):
        raise AssertionError("it has room")
    files.close()
    for file in reserved:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
    assert len(reserved) == 2
