"""Returns memory to the system that a process holds and does not use: freed buffers, and code that ran once.

Half of what a daemon holds after its start are pages that only its start needed. The system takes such pages back when
memory is short; until then they count for the process.
"""

from __future__ import annotations

import math
import os
import re
import resource
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from litelog.system.memory import collect_cycles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

GROWTH_BYTES = 4 << 20
"""Resident bytes that must have come since the last return, before the next one is worth its time."""

INTERVAL_SECONDS = 5.0
"""Between two looks."""

IDLE_SHARE = 0.05
"""Of one core: a process that used more since the last look is busy, and would take its pages again at once."""

_MADV_PAGEOUT = 21
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ [1-9]\d* +/")
"""A private mapping of a file that the process cannot write to: start and end."""

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def return_unused_memory() -> None:
    """Return freed buffers and pages of code to the system. Takes 10 to 50 ms. Does nothing with another C library.

    Of the mappings of files, only those without a changed page are returned. The kernel reads them again at their next
    use, and keeps what another process has mapped. If a mapping changes at this moment, nothing is lost: MADV_PAGEOUT
    does what the kernel does by itself when memory is short, where MADV_DONTNEED would discard changes.
    """
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 - only the verbs that need it pay for it

    library: Any = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return
    collect_cycles()
    library.malloc_trim(0)
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with suppress(OSError), open("/proc/self/smaps") as file:
        for start, end in [*find_unchanged(file)]:
            library.madvise(start, end - start, _MADV_PAGEOUT)


def find_unchanged(smaps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Start and end of each read-only mapping of a file in which the process has no private pages, neither in memory
    nor swapped out: it could return private pages only by swapping them. ``smaps``: the lines of
    ``/proc/PID/smaps``."""
    place, own = None, True
    for line in smaps:
        if "-" in line.partition(" ")[0]:
            found = _MAPPING.match(line)
            place, own = (int(found[1], 16), int(found[2], 16)) if found else None, False
        elif line.startswith("Anonymous:"):
            own = line.split()[1] != "0"
        elif line.startswith("Swap:") and place is not None:
            if not own and line.split()[1] == "0":
                yield place
            place = None


def resident_bytes() -> int:
    """The resident memory of this process, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def used_seconds() -> float:
    """The processor seconds that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class UnusedMemory:
    """Returns memory whenever a process is idle that has grown. Used by one thread."""

    def __init__(
        self,
        give: Callable[[], None] = return_unused_memory,
        resident: Callable[[], int] = resident_bytes,
        used: Callable[[], float] = used_seconds,
    ) -> None:
        """``give``, ``resident`` and ``used`` (processor seconds of the process) are for tests."""
        self._give = give
        self._resident = resident
        self._used_seconds = used
        self._looked = -math.inf
        self._used = 0.0
        self._least = 0

    def look(self, now: float) -> None:
        """Return memory if it is time for that. ``now``: monotonic seconds. Call it as often as is convenient. Without
        ``/proc`` it is unknown what the process holds, and nothing is returned."""
        elapsed = now - self._looked
        if elapsed < INTERVAL_SECONDS:
            return
        used = self._used_seconds()
        is_idle = used - self._used < IDLE_SHARE * elapsed < math.inf  # the first look knows no share
        self._looked, self._used = now, used
        with suppress(OSError):
            if is_idle and self._resident() > self._least + GROWTH_BYTES:
                self._give()
                self._least = self._resident()
