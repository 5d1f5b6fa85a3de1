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
from typing import TYPE_CHECKING, Any, NamedTuple

from litelog.system.memory import collect_cycles, collect_recent_cycles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GROWTH_BYTES = 4 << 20
"""Resident bytes that must have come since the last return, before the next one is worth its time."""

INTERVAL_SECONDS = 5.0
"""Between two looks."""

BUSY_SHARE = 0.05
"""Of one core: a process that used more since the last look would take freed buffers again at once."""

IDLE_SHARE = 0.0025
"""Of one core: a process that used more since the last look would take its pages of code again at once. An idle daemon
uses 0.0004, and one that ships 100 small commits a second about 0.005."""

_MADV_PAGEOUT = 21
_UNCHANGED = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ [1-9]\d* +/.*\n"
    r"(?:[A-Z].*\n)*?Anonymous: +0 kB\n(?:[A-Z].*\n)*?Swap: +0 kB$",
    re.MULTILINE,
)
"""A private mapping of a file that the process cannot write to, without pages of its own: start and end. The fields of
a mapping begin with a capital, and a mapping with a number."""

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def return_unused_memory() -> None:
    """Return all freed buffers and pages of code to the system, after much was loaded. Takes 10 ms, and 10 ms for each
    20,000 objects that ``collect_new_objects_often`` did not exempt."""
    collect_cycles()
    return_freed_buffers()
    page_out_code()


def return_what_grew(*, has_more_code: bool) -> None:
    """Return recently freed buffers, and pages of code if there are more of them. Takes some milliseconds."""
    collect_recent_cycles()
    return_freed_buffers()
    if has_more_code:
        page_out_code()


def return_freed_buffers() -> None:
    """Return what was freed to the system. Does nothing with another C library than glibc."""
    library = _load_library()
    if library is not None:
        library.malloc_trim(0)


def page_out_code() -> None:
    """Take pages of code out of memory. The kernel reads them again at their next use. Does nothing with another C
    library than glibc.

    Of the mappings of files, only those without a changed page are taken. The kernel keeps what another process has
    mapped. If a mapping changes at this moment, nothing is lost: MADV_PAGEOUT does what the kernel does by itself when
    memory is short, where MADV_DONTNEED would discard changes.
    """
    library = _load_library()
    if library is None:
        return
    import ctypes  # noqa: PLC0415 - only the verbs that need it pay for it

    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with suppress(OSError), open("/proc/self/smaps") as file:
        for start, end in [*find_unchanged(file.read())]:
            library.madvise(start, end - start, _MADV_PAGEOUT)


def _load_library() -> Any | None:
    """The C library; None if it is not glibc."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only the verbs that need it pay for it

    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") else None


def find_unchanged(smaps: str) -> Iterator[tuple[int, int]]:
    """Start and end of each read-only mapping of a file in which the process has no private pages, neither in memory
    nor swapped out: it could return private pages only by swapping them. ``smaps``: the text of ``/proc/PID/smaps``."""
    for found in _UNCHANGED.finditer(smaps):
        yield int(found[1], 16), int(found[2], 16)


class Resident(NamedTuple):
    """What is resident of a process, in bytes."""

    total: int
    of_files: int
    """The part that mapped files hold, such as code."""


def resident_bytes() -> Resident:
    """The resident memory of this process."""
    with open("/proc/self/statm") as file:
        total, of_files = file.read().split()[1:3]
    return Resident(int(total) * _PAGE_BYTES, int(of_files) * _PAGE_BYTES)


def used_seconds() -> float:
    """The processor seconds that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class UnusedMemory:
    """Returns memory of a process that has grown: freed buffers unless it is busy, and code when it is idle. For one
    thread."""

    def __init__(
        self,
        give: Callable[[bool], None] = lambda has_more_code: return_what_grew(has_more_code=has_more_code),
        resident: Callable[[], Resident] = resident_bytes,
        used: Callable[[], float] = used_seconds,
    ) -> None:
        """``give`` (whether there is more code), ``resident`` and ``used`` (processor seconds of the process) are for
        tests."""
        self._give = give
        self._resident = resident
        self._used_seconds = used
        self._looked = -math.inf
        self._used = 0.0
        self._least = Resident(0, 0)

    def look(self, now: float) -> None:
        """Return memory if it is time for that. ``now``: monotonic seconds. Call it as often as is convenient. Without
        ``/proc`` it is unknown what the process holds, and nothing is returned."""
        elapsed = now - self._looked
        if elapsed < INTERVAL_SECONDS:
            return
        used = self._used_seconds()
        share = (used - self._used) / elapsed if elapsed < math.inf else 1.0  # the first look knows no share
        self._looked, self._used = now, used
        with suppress(OSError):
            held, least = self._resident(), self._least
            if elapsed == math.inf:  # the code that the start needed was returned by the caller
                self._least = least = Resident(0, held.of_files)
            has_more_code = share < IDLE_SHARE and held.of_files > least.of_files + GROWTH_BYTES
            if has_more_code or (share < BUSY_SHARE and held.total > least.total + GROWTH_BYTES):
                self._give(has_more_code)
                left = self._resident()
                self._least = Resident(left.total, left.of_files if has_more_code else least.of_files)
