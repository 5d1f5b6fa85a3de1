"""Processes that are killed, and how what they left is compared."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from litelog.log.reader import LogReader

if TYPE_CHECKING:
    from pathlib import Path

START_SECONDS = 60


class Spoken:
    """A process and the lines it has said, read to the last whole one before it died."""

    def __init__(self, *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._first = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for_first(self) -> None:
        if not self._first.wait(START_SECONDS) or not self.lines:
            self.kill()
            raise AssertionError(f"said nothing: {self.errors}")

    def kill(self) -> None:
        self.process.kill()
        self._reader.join()
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read().decode()
        self.process.stderr.close()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    self.lines.append(line.decode())
                    self._first.set()
        self._first.set()


def litelog(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "litelog_cli", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def segments(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def assert_prefix(restored: dict[str, bytes], log: dict[str, bytes]) -> None:
    """All log segments but the last are whole, and the last is the beginning of one."""
    names = list(log)
    assert list(restored) == names[: len(restored)]
    for name in list(restored)[:-1]:
        assert restored[name] == log[name]
    last = list(restored)[-1]
    assert log[last].startswith(restored[last])


def count_records(folder: Path) -> int:
    """The records of a log, each checked to be the one of its number."""
    expected = 0
    with LogReader(str(folder)) as reader:
        for columns in reader.batches():
            for record in columns.records():
                assert record.sequence == expected
                assert record.value.startswith(b"%d:" % expected)
                expected += 1
    return expected
