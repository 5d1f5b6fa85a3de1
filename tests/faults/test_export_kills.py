"""kill -9 of a process that exports to a latest-by-key table, while it writes files, merges them and commits."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from tests.builders.installed import needs
from tests.builders.keyed_replica import KeyedReplica, export_latest, latest, rows_of, versions_of
from tests.sampling import SEED, times
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs("deltalake")

SEGMENTS = 4
FILES = 2 * SEGMENTS
"""Fewer than a run of SEGMENTS log segments adds to a table: its own, and those of Delta."""


def count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def has_reached(process: subprocess.Popen[bytes], target: Path, wanted: int) -> bool:
    return process.poll() is not None or count_files(target) >= wanted


def test_each_version_of_a_latest_by_key_table_is_a_state_of_the_log(tmp_path: Path) -> None:
    replica, target, random = KeyedReplica(tmp_path / "replica"), tmp_path / "table", Random(f"{SEED} export")
    command = [sys.executable, "-m", "tests.builders.keyed_replica", replica.url, str(target)]
    for _ in range(times(2, at_night=20)):
        replica.add(SEGMENTS)
        wanted = count_files(target) + random.randrange(1, FILES)
        process = subprocess.Popen(command)
        wait_until(partial(has_reached, process, target, wanted))
        process.kill()
        process.wait()
        export_latest(replica.url, str(target))
        assert rows_of(target) == latest(replica.next)
    states = [latest(records) for records in range(replica.next + 1)]
    assert all(rows in states for rows in versions_of(target))
    assert export_latest(replica.url, str(target)) == 0
