"""How a process uses its memory: glibc's allocator, Python's collector of cycles, and what errors keep alive.

Each function is for one kind of process, and says what it gains. The command and Spark's workers call those that suit
them when they start. The rest of the library only frees what it created itself.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from traceback import clear_frames
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND_THRESHOLD = 200_000
"""Objects created between two collections of cycles in a command. With Python's 700, a quarter of the start would be
spent in collections; the imports of ``replicate`` alone create more than 100,000."""

DAEMON_THRESHOLD = 2_000
"""Objects created between two collections of cycles, once the daemon runs."""

ARENAS = 1
"""The number of arenas that threads allocate from. Python's small objects come from elsewhere, so threads seldom meet
in one. Each further one would keep megabytes that the others cannot use, and that ``malloc_trim`` does not return."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Tell glibc to keep freed buffers of up to 32 MiB: page faults for new ones cost more than LZ4 itself.

    Also limits the number of arenas, which is eight per core by default. For a process that compresses or decompresses
    much. Does nothing with another C library.
    """
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 - only the verbs that need it pay for it

    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        library.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
        library.mallopt(_M_ARENA_MAX, ARENAS)


def collect_seldom() -> None:
    """Collect cycles seldom, for a command: it ends before they matter, and its imports create many objects."""
    gc.set_threshold(COMMAND_THRESHOLD)


def collect_new_objects_often() -> None:
    """Collect cycles often, but only among objects that are created from now on, for a daemon that has started.

    Failed requests leave many cycles, and uncollected ones look like a memory leak.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # nearly empty: the size of the last one delays the next full collection
    gc.set_threshold(DAEMON_THRESHOLD)


def exempt_existing_objects() -> None:
    """Leave what exists now, such as loaded modules, out of all later collections. PySpark collects after each task,
    and Python collects once more when a process ends. After the imports of ``replicate``, a collection would take 35 ms
    and free next to nothing."""
    gc.freeze()


def collect_cycles() -> None:
    """Free objects that refer to themselves, after much was closed or loaded. Takes time for each object that exists:
    clients of stores keep megabytes each until then."""
    gc.collect()


def collect_recent_cycles() -> None:
    """Free objects that refer to themselves, among those that were created since about ten collections. Takes no time
    for what exists longer."""
    gc.collect(1)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no cycles for a while, for work that creates a great many objects and no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def clear_error_frames(error: BaseException) -> None:
    """Free the local variables of the calls that raised ``error``, before it is kept. The error refers to them, and
    they often refer to the error: bodies of many megabytes would stay until the cycle collector runs."""
    current: BaseException | None = error
    while current is not None:
        clear_frames(current.__traceback__)
        current = current.__cause__ or current.__context__
