"""Limits the memory and the open descriptors of the workers of a test run.

A worker gives back the memory that a test leaves. A run fails if a worker exceeds a limit.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.child import in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_MEBIBYTES = 500
"""The most memory that a worker may take. Three workers and the processes that tests start then fit into a small
machine. A test that needs bulk runs in a child (``tests/builders/child.py``)."""

MAX_DESCRIPTORS = 150
"""The most descriptors that a worker may have open after its last test. A leak in a test leaves thousands."""

LEFT_BYTES = 16 << 20
"""The memory that a test may leave before it is collected at once."""

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8

_TAKEN = "what this worker took"
_PAGE_BYTES = resource.getpagesize()


def limit_heaps() -> None:
    """Make glibc return freed buffers of a MiB and more to the system, and make threads share two heaps. Arrow's own
    allocator returns what it keeps, too."""
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    if hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(M_MMAP_THRESHOLD, 1 << 20)
        library.mallopt(M_ARENA_MAX, 2)
        library.malloc_trim(0)


def build_character_tables() -> None:
    """Have a child draw a text, as the first text in a clone makes Hypothesis build its tables of Unicode.

    That takes 200 MiB. Hypothesis keeps the tables in its folder, where workers find them.
    """
    in_child(settings(max_examples=1, database=None)(given(st.text())(lambda text: None)))


def resident_bytes() -> int:
    """The memory of this process; 0 if it is not known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return 0


class Leftovers:
    """Collects the memory that a test leaves at once, if it is much.

    Otherwise the collector waits until there are millions of small objects.
    """

    def __init__(self, resident: Callable[[], int] = resident_bytes) -> None:
        self._resident = resident
        self._before = resident()

    def collect_if_many(self) -> bool:
        """Collect if the test left much memory; return whether it did."""
        now = self._resident()
        is_due = now > self._before + LEFT_BYTES
        if is_due:
            gc.collect()
            limit_heaps()
            now = self._resident()
        self._before = now
        return is_due


def take_stock() -> dict[str, int]:
    """The peak memory of this process, in MiB, and the number of its open descriptors."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (10 if sys.platform == "linux" else 20)
    folder = next(filter(os.path.isdir, ("/proc/self/fd", "/dev/fd")))
    return {"MiB": peak, "descriptors": len(os.listdir(folder))}


def find_excess(taken: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each worker and each limit that it exceeds."""
    limits = {"MiB": MAX_MEBIBYTES, "descriptors": MAX_DESCRIPTORS}
    return [
        f"{worker} took {found[what]} {what}, and {limit} are allowed"
        for worker, found in sorted(taken.items())
        for what, limit in limits.items()
        if found[what] > limit
    ]


class WorkerLimits:
    """Has each worker report at its end what it took, prints it, and fails the run if a limit is exceeded."""

    def __init__(self) -> None:
        self._taken: dict[str, dict[str, int]] = {}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_TAKEN] = take_stock()
            return
        self._taken = self._taken or {"pytest": take_stock()}
        if find_excess(self._taken) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if _TAKEN in getattr(node, "workeroutput", {}):
            self._taken[node.gateway.id] = node.workeroutput[_TAKEN]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        taken = sorted(self._taken.items())
        said = ", ".join(f"{worker} {found['MiB']} MiB, {found['descriptors']} descriptors" for worker, found in taken)
        terminalreporter.write_line(
            f"peak memory, and open at the end: {said} (at most {MAX_MEBIBYTES} MiB, {MAX_DESCRIPTORS} descriptors)"
        )
        for excess in find_excess(self._taken):
            terminalreporter.write_line(f"FAILED: {excess}", red=True)
