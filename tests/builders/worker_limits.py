"""What a worker of a test run may take: memory and descriptors. It gives back what a test leaves, and a run in which a
worker takes more fails."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AIM_MEBIBYTES, MAX_MEBIBYTES = 500, 600
"""What a worker should take at most, as three of them, and what the tests start, then fit into a small machine; and
what no worker may take. Allocators differ in what they keep."""

MAX_DESCRIPTORS = 150
"""What no worker may have open when its last test has ended. A test that leaves one open leaves thousands."""

LEFT_BYTES = 16 << 20
"""What a test may leave in memory before it is collected at once."""

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8

_TAKEN = "what this worker took"
_PAGE_BYTES = resource.getpagesize()


def limit_heaps() -> None:
    """Have glibc give back buffers of a MiB and more when they are freed, and threads share few heaps."""
    if hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(M_MMAP_THRESHOLD, 1 << 20)
        library.mallopt(M_ARENA_MAX, 2)
        library.malloc_trim(0)


def resident_bytes() -> int:
    """What this process has in memory; 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return 0


class Leftovers:
    """Collects at once what a test leaves in memory, if it is much: else it waits for millions of small objects."""

    def __init__(self, resident: Callable[[], int] = resident_bytes) -> None:
        self._resident = resident
        self._before = resident()

    def collect_if_many(self) -> bool:
        """Whether a collection was due."""
        now = self._resident()
        is_due = now > self._before + LEFT_BYTES
        if is_due:
            gc.collect()
            limit_heaps()
            now = self._resident()
        self._before = now
        return is_due


def take_stock() -> dict[str, int]:
    """The most that this process has had in memory, in MiB, and what it has open."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (10 if sys.platform == "linux" else 20)
    folder = next(filter(os.path.isdir, ("/proc/self/fd", "/dev/fd")))
    return {"MiB": peak, "descriptors": len(os.listdir(folder))}


def find_excess(taken: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Which worker took too much, and of what."""
    limits = {"MiB": MAX_MEBIBYTES, "descriptors": MAX_DESCRIPTORS}
    return [
        f"{worker} took {found[what]} {what}, and {limit} are allowed"
        for worker, found in sorted(taken.items())
        for what, limit in limits.items()
        if found[what] > limit
    ]


class WorkerLimits:
    """Has each worker say at its end what it took, prints it, and fails the run if that is too much."""

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
            f"peak memory, and open at the end: {said} (at most {AIM_MEBIBYTES} MiB, {MAX_DESCRIPTORS} descriptors)"
        )
        for excess in find_excess(self._taken):
            terminalreporter.write_line(f"FAILED: {excess}", red=True)
