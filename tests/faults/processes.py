"""Starts processes that tests kill, and compares the logs that they left."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from litelog.formats import Expectation
from litelog.formats.registry import open_format
from litelog.log.reader import LogReader
from tests.builders.stdb_log import logical_bytes
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.warm import Warm

START_SECONDS = WAIT_SECONDS


COMMAND = "-m litelog_cli"
APPEND_RECORDS = Path(__file__).with_name("append_records.py").read_text()
APPEND_FOREIGN = Path(__file__).with_name("append_foreign.py").read_text()

FOREIGN = ("kafka", "netlog", "influxdb", "redis-aof", "spacetimedb")
"""The formats of other programs whose logs are written, killed and cut as litelog's own are."""


class Spoken:
    """A process and the lines that it has printed, up to the last whole line before it died."""

    def __init__(self, warm: Warm, program: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = warm.spawn(program, *arguments)
        self._news = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, said: Callable[[Spoken], bool]) -> None:
        """Wait until ``said`` returns true; it is called after each new line."""
        with self._news:
            self._news.wait_for(lambda: said(self) or self._over, START_SECONDS)
            if said(self):
                return
        self.kill()
        raise AssertionError(f"said {self.lines[-3:]}, and: {self.errors}")

    def kill(self) -> None:
        self.process.kill()
        self._reader.join()
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()
        self.process.wait()
        with suppress(BrokenPipeError), self.process:
            pass

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                if line.endswith("\n"):
                    with self._news:
                        self.lines.append(line)
                        self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()


def anything(process: Spoken) -> bool:
    """Whether a process has printed a line."""
    return bool(process.lines)


def shipped(daemon: Spoken) -> int:
    """The sequence after the last record that a daemon reported as acknowledged; 0 if it reported none."""
    events = [json.loads(line) for line in list(daemon.lines)]
    return max((event["next"] or 0 for event in events if event["event"] == "shipped"), default=0)


def litelog(warm: Warm, *arguments: str, program: str = COMMAND) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    with warm.spawn(program, *arguments) as process:
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode is not None
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def append_to(warm: Warm, log_format: str, log: Path, *arguments: str) -> Spoken:
    """Start a writer of a log. ``arguments``: as ``append_records.py`` takes them after the log."""
    if log_format == "litelog":
        return Spoken(warm, APPEND_RECORDS, str(log), *arguments)
    return Spoken(warm, APPEND_FOREIGN, log_format, str(log), *arguments)


def replicate_words(log_format: str) -> list[str]:
    """The words of a command that replicates a log which ``append_to`` writes."""
    return ["replicate", "--format", log_format, *(["--watermark", "none"] if log_format == "kafka" else [])]


def segments(folder: Path, log_format: str = "litelog") -> dict[str, bytes]:
    """The log segments of a log, oldest first: those of SpacetimeDB uncompressed, and without what crashes left."""
    order = open_format(log_format).segment_order
    orders = {path: order(path.name) for path in folder.iterdir()}
    found = sorted((found, path) for path, found in orders.items() if found is not None)
    files = {path.name: path.read_bytes() for _, path in found}
    return {name: whole_commits(name, data) for name, data in files.items()} if log_format == "spacetimedb" else files


def whole_commits(name: str, data: bytes) -> bytes:
    """The whole commits of a log segment of SpacetimeDB, uncompressed."""
    logical = logical_bytes(data)
    return logical[: open_format("spacetimedb").scan(name, memoryview(logical), 0, Expectation()).end]


def assert_prefix(restored: dict[str, bytes], log: dict[str, bytes]) -> None:
    """Assert that a restored log is a prefix: all log segments are whole, the last one may be cut."""
    names = list(log)
    assert list(restored) == names[: len(restored)]
    for name in list(restored)[:-1]:
        assert restored[name] == log[name]
    last = list(restored)[-1]
    assert log[last].startswith(restored[last])


def count_records(folder: Path, log_format: str = "litelog") -> int:
    """The sequence after the last record of a log. AssertionError if a record's sequence or number is wrong."""
    expected = 1 if log_format == "influxdb" else 0
    with LogReader(str(folder), log_format=open_format(log_format)) as reader:
        for columns in reader.batches():
            for record in columns.records():
                assert record.sequence == expected
                said = record.key if log_format == "redis-aof" else record.value
                assert said is not None
                assert said.startswith(b"%d:" % expected)
                expected += 1
    return expected
