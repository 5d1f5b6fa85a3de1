"""Memory that a process does not use is returned: when it is idle and has grown, and never what it still needs."""

from __future__ import annotations

import hashlib
import mmap
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from litelog.system import resident
from litelog.system.resident import (
    GROWTH_BYTES,
    INTERVAL_SECONDS,
    Resident,
    UnusedMemory,
    find_unchanged,
    resident_bytes,
    return_unused_memory,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FREED = """
import threading
from litelog.system.memory import keep_freed_memory
from litelog.system.resident import resident_bytes, return_unused_memory
keep_freed_memory()
def work():
    buffers = [b"x" * (4 << 20) for _ in range(12)]
    buffers.clear()
for _ in range(3):
    thread = threading.Thread(target=work); thread.start(); thread.join()
import decimal, json, ssl, sqlite3
held = resident_bytes().total
return_unused_memory()
left = resident_bytes().total
assert json.loads(json.dumps([1, "a"])) == [1, "a"] and str(decimal.Decimal(1) / 3).startswith("0.333")
assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,) and ssl.create_default_context()
print(held - left)
"""


@pytest.mark.process
def test_buffers_that_threads_freed_are_returned_and_code_still_runs() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40 << 20


def test_pages_that_the_process_changed_stay(tmp_path: Path) -> None:
    """A private mapping of a file holds a change that the file does not, and is read-only afterwards."""
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * mmap.PAGESIZE))
    with path.open("r+b") as file:
        changed = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        shared = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    changed[mmap.PAGESIZE :] = os.urandom(3 * mmap.PAGESIZE)
    import ctypes

    place = ctypes.addressof(ctypes.c_char.from_buffer(changed))
    digest = hashlib.sha256(changed).digest()
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(place), 4 * mmap.PAGESIZE, mmap.PROT_READ) == 0
    return_unused_memory()
    assert hashlib.sha256(changed).digest() == digest
    assert bytes(shared) == bytes(4 * mmap.PAGESIZE)


MAPPING = """\
7f00000{n}000-7f00000{n}800 {rights} 00001000 fe:00 {inode} {name}
Size:                  8 kB
Anonymous:             {anonymous} kB
AnonHugePages:         0 kB
Swap:                  {swap} kB
SwapPss:               0 kB
VmFlags: rd ex mr mw me
"""


@pytest.mark.parametrize(
    ("changed", "returned"),
    [
        ({}, True),
        ({"rights": "r--p"}, True),
        ({"rights": "rw-p"}, False),
        ({"rights": "r-xs"}, False),
        ({"anonymous": 4}, False),
        ({"swap": 4}, False),
        ({"inode": 0, "name": "[vdso]"}, False),
        ({"inode": 0, "name": ""}, False),
    ],
)
def test_only_mappings_of_files_without_pages_of_its_own_are_returned(
    changed: dict[str, object], returned: bool
) -> None:
    """Pages that the process changed would be swapped out."""
    usual: dict[str, object] = {"rights": "r-xp", "inode": 5, "name": "/lib/a.so", "anonymous": 0, "swap": 0}
    smaps = MAPPING.format(n=1, **{**usual, **changed}) + MAPPING.format(n=2, **usual)
    both = [(0x7F000001000, 0x7F000001800), (0x7F000002000, 0x7F000002800)]
    assert [*find_unchanged(smaps)] == (both if returned else both[1:])


class Process:
    """What ``UnusedMemory`` asks of a process."""

    def __init__(self) -> None:
        self.own, self.of_files, self.used = 30 << 20, 20 << 20, 0.0
        self.given = list[bool]()

    @property
    def resident(self) -> Resident:
        return Resident(self.own + self.of_files, self.of_files)

    def give(self, has_more_code: bool) -> None:
        self.given.append(has_more_code)
        self.own = 30 << 20
        if has_more_code:
            self.of_files = 10 << 20


def test_memory_is_returned_once_the_process_is_idle_and_has_grown() -> None:
    process = Process()
    memory = UnusedMemory(process.give, lambda: process.resident, lambda: process.used)
    now = 100.0
    memory.look(now)
    assert process.given == [], "it may be busy"
    process.of_files += 2 * GROWTH_BYTES
    memory.look(now := now + INTERVAL_SECONDS)
    assert process.given == [True]
    for _ in range(3):  # idle, and no larger
        memory.look(now := now + INTERVAL_SECONDS)
    assert process.given == [True]
    process.own += 2 * GROWTH_BYTES
    for share in (1, 0.1, 0.1):  # it works
        process.used += share * INTERVAL_SECONDS
        memory.look(now := now + INTERVAL_SECONDS)
    assert process.given == [True]
    process.used += 0.0005 * INTERVAL_SECONDS
    memory.look(now + INTERVAL_SECONDS / 2)  # too early
    assert process.given == [True]
    memory.look(now + INTERVAL_SECONDS)
    assert process.given == [True, False], "its code did not grow"
    process.of_files += 2 * GROWTH_BYTES
    memory.look(now + 2 * INTERVAL_SECONDS)
    assert process.given == [True, False, True]


def test_a_process_with_little_to_do_returns_buffers_and_when_idle_its_code() -> None:
    """Such as a daemon that ships a small commit now and then, after it has shipped many bytes."""
    process = Process()
    memory = UnusedMemory(process.give, lambda: process.resident, lambda: process.used)
    now = 100.0
    memory.look(now)
    process.own += 20 * GROWTH_BYTES
    process.of_files += 2 * GROWTH_BYTES
    for _ in range(3):
        process.used += 0.005 * INTERVAL_SECONDS
        memory.look(now := now + INTERVAL_SECONDS)
    assert process.given == [False]
    for _ in range(3):
        memory.look(now := now + INTERVAL_SECONDS)
    assert process.given == [False, True]


def test_without_proc_nothing_is_returned_and_nothing_fails() -> None:
    process = Process()

    def missing() -> Resident:
        raise FileNotFoundError(2, "No such file or directory", "/proc/self/statm")

    memory = UnusedMemory(process.give, missing, lambda: process.used)
    for look in range(3):
        memory.look(look * INTERVAL_SECONDS)
    assert process.given == []


def test_resident_bytes_follow_what_is_touched() -> None:
    before = resident_bytes().total
    buffer = mmap.mmap(-1, 32 << 20)
    buffer.write(b"x" * (32 << 20))
    assert resident_bytes().total - before > 30 << 20


def test_a_library_that_another_thread_loads_keeps_its_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader maps the whole file, read-only. Then it puts writable parts over that, and changes them."""
    import ctypes

    library, page = ctypes.CDLL(None), mmap.PAGESIZE
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    path, fixed, found = tmp_path / "library", 0x10, list[tuple[int, int]]()
    path.write_bytes(bytes(4 * page))
    with path.open("rb") as file:
        start = library.mmap(None, 4 * page, mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno(), 0)
        writable = mmap.PROT_READ | mmap.PROT_WRITE

        def look(smaps: str) -> Iterable[tuple[int, int]]:
            found.extend(find_unchanged(smaps))
            part = library.mmap(start + page, page, writable, mmap.MAP_PRIVATE | fixed, file.fileno(), page)
            ctypes.memmove(part, b"changed", 7)
            return found

        monkeypatch.setattr(resident, "find_unchanged", look)
        return_unused_memory()
        kept = ctypes.string_at(start + page, 7)
        library.munmap(start, 4 * page)
    assert (start, start + 4 * page) in found
    assert kept == b"changed"
