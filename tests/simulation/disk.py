"""Simulated disks: real files, in a folder for each disk, under the operating system's own calls.

During a simulation, the functions of ``os`` that write are wrapped. Each is a seam, where the process that calls it may
be killed. Files and folders get the virtual time. A disk remembers the synced bytes, so that ``lose_power`` brings it
to a state that a power cut may leave: bytes that were not synced are gone, there in part, or zeros.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from dataclasses import dataclass, field
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any

from tests.simulation.threads import EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.scheduler import Scheduler

BY_DESCRIPTOR = ("fsync", "fdatasync", "pwritev", "ftruncate", "write", "writev")
BY_PATH = ("rename", "replace", "link", "unlink", "remove", "mkdir", "rmdir")
_REAL: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in (*BY_DESCRIPTOR, *BY_PATH, "open")}


@dataclass(slots=True)
class Disk:
    """One disk: its durable content, and its faults."""

    root: str
    may_lose_power: bool = True
    """Whether the disk remembers its durable content."""
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    """By folder, the durable names, and their files."""
    contents: dict[int, bytes] = field(default_factory=dict)
    """By file, the durable bytes."""
    full: bool = False
    dropped: defaultdict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By file, the ranges of bytes whose write-back failed. They can be read until the power is lost, but no sync
    writes them."""
    errors: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """By file, how often its write-back failed."""
    reported: dict[int, int] = field(default_factory=dict)
    """By descriptor, the number of failures that it has reported, or that happened before it was opened."""
    known: dict[int, int] = field(default_factory=dict)
    """By file, the number of failures that some descriptor has reported. A later descriptor reports only the others."""

    def keep_written(self, inode: int, body: bytes) -> bytes:
        """The content on the disk itself of a file that holds ``body``: zeros in place of the dropped bytes."""
        for start, end in self.dropped.get(inode, ()):
            body = body[:start] + bytes(end - start) + body[end:]
        return body


class Disks:
    """All disks under one folder."""

    def __init__(self, root: str, scheduler: Scheduler) -> None:
        self._root = root
        self._scheduler = scheduler
        self.by_name: dict[str, Disk] = {}
        self.on_open: Callable[[int], None] = lambda _descriptor: None
        """Called with each descriptor that is opened on a disk."""
        self.on_unlink: Callable[[str], None] = lambda _path: None
        """Called with the path of each file that is about to be removed."""

    def make(self, name: str, *, may_lose_power: bool = True) -> Disk:
        """A new, empty disk."""
        path = os.path.join(self._root, name)
        _REAL["mkdir"](path)
        disk = self.by_name[name] = Disk(path, may_lose_power)
        return disk

    def install(self) -> None:
        """Route all calls of this process through this object."""
        for name in BY_DESCRIPTOR:
            setattr(os, name, self._wrap_descriptor(name))
        for name in BY_PATH:
            setattr(os, name, self._wrap_path(name))
        os.open = self._open

    @staticmethod
    def uninstall() -> None:
        """Route the calls to the operating system again."""
        for name, call in _REAL.items():
            setattr(os, name, call)

    @staticmethod
    def make_durable(disk: Disk, folder: str) -> None:
        """Make the content of a folder outlast a power cut."""
        disk.names[folder] = _files(folder)
        for name, inode in disk.names[folder].items():
            with open(os.path.join(folder, name), "rb") as file:
                disk.contents[inode] = file.read()

    @staticmethod
    def drop_pages(disk: Disk, path: str) -> None:
        """Fail to write back the bytes of a file that are not durable. As on Linux, each open descriptor reports the
        failure once, and a later sync succeeds."""
        status = os.stat(path)
        disk.dropped[status.st_ino].append((len(disk.contents.get(status.st_ino, b"")), status.st_size))
        disk.errors[status.st_ino] += 1

    def lose_power(self, disk: Disk, random: Random) -> None:
        """Bring the disk to a state that a power cut may leave. No process has anything open there."""
        for folder, _, _ in list(os.walk(disk.root)):
            durable = disk.names.get(folder, {})
            found = _files(folder)
            for name in sorted({*durable, *found}):
                self._settle(disk, os.path.join(folder, name), found.get(name), durable.get(name), random)
            disk.names[folder] = _files(folder)
        disk.full = False
        for kept in (disk.dropped, disk.errors, disk.reported, disk.known):
            kept.clear()

    def _settle(self, disk: Disk, path: str, found: int | None, durable: int | None, random: Random) -> None:
        kept = found if found == durable or random.random() < 0.5 else durable
        if kept is None:
            _REAL["unlink"](path)
            return
        before = disk.contents.get(kept, b"")
        if kept == found:
            with open(path, "rb") as file:
                held = file.read()
            now = disk.keep_written(kept, held)
            if held == before:
                return
            body = _tear(before, now, random)
            with open(path, "r+b") as file:
                file.write(body)
                file.truncate()
        else:
            body = before
            if found is not None:
                _REAL["unlink"](path)
            with open(path, "wb") as file:
                file.write(body)
            kept = os.stat(path).st_ino
        disk.contents[kept] = body
        self._touch(path)

    def _find(self, path: str) -> Disk | None:
        if not path.startswith(self._root):
            return None
        return self.by_name.get(path[len(self._root) + 1 :].split("/", 1)[0])

    def _wrap_descriptor(self, name: str) -> Callable[..., Any]:
        call = _REAL[name]

        def wrapped(descriptor: int, *arguments: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            disk = self._find(path)
            if disk is None:
                return call(descriptor, *arguments)
            self._scheduler.seam()
            if name in {"fsync", "fdatasync"}:
                self._sync(disk, descriptor, path)
                return None
            if disk.full and name != "ftruncate":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            result = call(descriptor, *arguments)
            self._touch(descriptor)
            return result

        return wrapped

    def _wrap_path(self, name: str) -> Callable[..., Any]:
        call = _REAL[name]

        def wrapped(path: str, *arguments: Any, **keywords: Any) -> Any:
            where = path if isinstance(path, str) else ""
            disk = self._find(where)
            if disk is None:
                return call(path, *arguments, **keywords)
            self._scheduler.seam()
            if disk.full and name in {"mkdir", "link"}:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if name in {"unlink", "remove"}:
                self.on_unlink(where)
            result = call(path, *arguments, **keywords)
            self._touch(os.path.dirname(where))
            if arguments and isinstance(arguments[0], str) and name in {"rename", "replace", "link"}:
                self._touch(os.path.dirname(arguments[0]))
            return result

        return wrapped

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        disk = self._find(path) if isinstance(path, str) else None
        if disk is None:
            return int(_REAL["open"](path, flags, mode, dir_fd=dir_fd))
        self._scheduler.seam()
        there = not flags & os.O_CREAT or os.path.lexists(path)
        if disk.full and not there:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        descriptor: int = _REAL["open"](path, flags, mode)
        if disk.errors:
            disk.reported[descriptor] = disk.known.get(os.fstat(descriptor).st_ino, 0)
        self.on_open(descriptor)
        if not there:
            self._touch(path)
            self._touch(os.path.dirname(path))
        return descriptor

    def _sync(self, disk: Disk, descriptor: int, path: str) -> None:
        if disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not disk.may_lose_power:
            return
        status = os.fstat(descriptor)
        failures = disk.errors.get(status.st_ino, 0)
        if failures > disk.reported.get(descriptor, 0):
            disk.reported[descriptor] = disk.known[status.st_ino] = failures
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if S_ISDIR(status.st_mode):
            disk.names[path] = _files(path)
        else:
            with open(f"/proc/self/fd/{descriptor}", "rb") as file:
                disk.contents[status.st_ino] = disk.keep_written(status.st_ino, file.read())

    def _touch(self, file: str | int) -> None:
        now = round((EPOCH + self._scheduler.now) * 1e9)
        os.utime(file, ns=(now, now))


def _files(folder: str) -> dict[str, int]:
    """The files in a folder. Folders count as durable as soon as they are made."""
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries if entry.is_file(follow_symlinks=False)}


def _tear(before: bytes, now: bytes, random: Random) -> bytes:
    """The content that a power cut may leave if ``before`` was synced and ``now`` was written."""
    if not now.startswith(before):
        return random.choice((before, now))
    rest = now[len(before) :]
    cut = random.choice((0, 0, len(rest), random.randrange(len(rest) + 1)))
    return before + (bytes(cut) if random.random() < 0.25 else rest[:cut])
