"""The resources that a worker of a test run may use."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.builders.daemon_builder import Daemon, close_left_open
from tests.builders.worker_limits import (
    LEFT_BYTES,
    MAX_DESCRIPTORS,
    MAX_MEBIBYTES,
    Leftovers,
    find_excess,
    take_stock,
)

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.builders.log_builder import LogBuilder


def test_a_worker_that_took_too_much_is_named() -> None:
    well = {"MiB": MAX_MEBIBYTES, "descriptors": MAX_DESCRIPTORS}
    assert find_excess({"gw0": well, "gw1": well}) == []
    large, many = {**well, "MiB": MAX_MEBIBYTES + 1}, {**well, "descriptors": MAX_DESCRIPTORS + 1}
    assert find_excess({"gw1": large, "gw0": many, "gw2": well}) == [
        f"gw0 took {MAX_DESCRIPTORS + 1} descriptors, and {MAX_DESCRIPTORS} are allowed",
        f"gw1 took {MAX_MEBIBYTES + 1} MiB, and {MAX_MEBIBYTES} are allowed",
    ]


def test_garbage_of_a_test_is_collected_if_it_is_large() -> None:
    sizes = iter([100, 100 + LEFT_BYTES, 101 + 2 * LEFT_BYTES, 120, 120 + LEFT_BYTES])
    leftovers = Leftovers(lambda: next(sizes))
    assert [leftovers.collect_if_many() for _ in range(3)] == [False, True, False]


def test_the_daemons_of_a_test_are_closed_after_it(log: LogBuilder, store: ObjectStore, state: str) -> None:
    before = take_stock()["descriptors"]
    daemons = [Daemon(log, store, f"{state}-{number}") for number in range(5)]
    daemons[0].sync()
    del daemons[1:]
    assert take_stock()["descriptors"] > before
    close_left_open()
    assert take_stock()["descriptors"] == before


FIRST_TEXT = """
from hypothesis import given, strategies as st
from tests.builders.worker_limits import build_character_tables

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10

before = peak()
build_character_tables()
given(st.text())(lambda text: None)()
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux states the peak of a process there")
def test_the_first_text_in_a_clone_takes_no_memory_of_a_worker(tmp_path: Path) -> None:
    environment = {**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_TEXT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50
