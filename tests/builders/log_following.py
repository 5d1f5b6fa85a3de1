"""Follows a log as a daemon does, and joins the bytes of the runs."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from litelog.codec.checksum import crc32c
from litelog.log.follower import Follower
from litelog.log.source_position import SourcePosition

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.log.source_position import CommitRun
    from tests.builders.log_builder import LogBuilder
    from tests.builders.manual_clock import ManualClock


LIMIT = 1 << 20
FORMATS = ("litelog", "lines", "raw", "spacetimedb", "netlog", "influxdb")
ALL_FORMATS = pytest.mark.parametrize("log", FORMATS, indirect=True)
WITHOUT_GARBAGE = pytest.mark.parametrize("log", ["litelog", "lines", "raw"], indirect=True)
"""The formats whose writers leave nothing after a finished log segment."""


def follow(
    log: LogBuilder, clock: ManualClock, place: SourcePosition | None = None, log_format: LogFormat | None = None
) -> Follower:
    """A follower. It is closed when the test ends."""
    made = Follower(log.folder, log_format or log.format, place or SourcePosition(0, ""), clock)
    _open.append(made)
    return made


def close_left_open() -> None:
    """Close the followers of a test: each may have several log segments open."""
    while _open:
        _open.pop().close()


_open: list[Follower] = []


def drain(follower: Follower, limit: int = LIMIT) -> list[CommitRun]:
    """All runs that the follower gives now."""
    runs = []
    while (run := follower.next_run(limit)) is not None:
        runs.append(run)
    return runs


def collect(runs: list[CommitRun], into: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """The bytes of runs, by file. AssertionError if the runs are not contiguous, or a checksum is wrong."""
    found = {} if into is None else into
    for run in runs:
        held = found.get(run.start.file, b"")
        assert run.start.offset == len(held)
        held += bytes(run.data)
        assert run.crc == crc32c(run.data)
        assert run.end.offset == len(held)
        assert run.end.crc_total == crc32c(held)
        found[run.start.file] = held
    for before, after in pairwise(runs):
        assert after.start.index == before.start.index + before.final
    return found


def status(folder: str) -> dict[str, tuple[int, ...]]:
    """Everything that a reader could change in a folder: names, sizes, inodes and times."""
    found: dict[str, tuple[int, ...]] = {}
    for name in [".", *sorted(os.listdir(folder))]:
        facts = os.stat(os.path.join(folder, name))
        found[name] = (facts.st_size, facts.st_ino, facts.st_mtime_ns, facts.st_atime_ns, facts.st_ctime_ns)
    return found
