"""Watcher: one-shot wake-ups when something in a folder changes. They are hints only: callers must poll as well.

It calls the kernel's inotify. Without that, callers poll. The kernel says what the calls and the events mean:
https://man7.org/linux/man-pages/man7/inotify.7.html
"""

from __future__ import annotations

import os
import select
import struct
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOIN_SECONDS = 5.0
"""How long ``close`` waits for the thread, in seconds. The thread can only be delayed by a caller's ``wake``."""

EVENT = struct.Struct("=iIII")
"""Of an event, before its name: the watch, the mask, a cookie, and the size of the name."""

IN_MODIFY = 0x2
_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF = 0x400, 0x800
_IN_Q_OVERFLOW = 0x4000
_IN_ONLYDIR, _IN_ONESHOT = 0x0100_0000, 0x8000_0000
_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC

_CHANGES = IN_MODIFY | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF
_EVENT_BYTES = 64 << 10
"""How many bytes of events are taken at once. The largest one has 272."""


@dataclass(slots=True, eq=False)
class _Arming:
    """One wait for one change in a folder."""

    wake: Callable[[], None]
    folder: str
    watch: int


class Watcher:
    """Any number of folders on one inotify descriptor and one thread. Several threads may call it.

    A folder is watched only between ``arm`` and the first change after it, so a busy writer costs one event and no
    more. Changes made before ``arm`` are not reported: arm, then look, then wait. Writes through mmap cause no event.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[tuple[str, Callable[[], None]], _Arming] = {}
        self._watches: dict[int, list[_Arming]] = {}
        """The armings of each watch. The kernel has one watch for a folder, whatever path names it."""
        self._descriptor = self._stopping = -1
        self._thread: threading.Thread | None = None
        descriptor = _open_inotify()
        if descriptor < 0:
            return
        try:
            self._stopping = os.eventfd(0)
        except OSError:  # no descriptor is left
            os.close(descriptor)
            return
        self._descriptor = descriptor
        self._thread = threading.Thread(target=self._run, args=(descriptor,), name="inotify", daemon=True)
        self._thread.start()

    @property
    def available(self) -> bool:
        """Whether wake-ups work: False without inotify, with no instance left, and after ``close``."""
        return self._descriptor >= 0

    def arm(self, folder: str, wake: Callable[[], None]) -> bool:
        """Have ``wake`` called once, after something in ``folder`` was created, modified, moved or deleted.

        The watcher's thread calls it; it must neither block nor raise. Arming again changes nothing. Returns False if
        there will be no call (no such folder, no watch left, not available): then poll.
        """
        key = (folder, wake)
        with self._lock:
            if self._descriptor < 0:
                return False
            if key in self._armed:
                return True
            watch = _add_watch(self._descriptor, folder, _CHANGES | _IN_ONESHOT)
            if watch < 0:
                return False
            arming = self._armed[key] = _Arming(wake, folder, watch)
            self._watches.setdefault(watch, []).append(arming)
            return True

    def disarm(self, folder: str, wake: Callable[[], None]) -> None:
        """Revoke ``arm``. A call that is under way may still arrive. Without an arming this does nothing."""
        with self._lock:
            arming = self._armed.pop((folder, wake), None)
            if arming is None:
                return
            others = self._watches[arming.watch]
            others.remove(arming)
            if not others:
                del self._watches[arming.watch]
                self.remove_watch(self._descriptor, arming.watch)

    @staticmethod
    def open_inotify() -> int:
        """Open an inotify descriptor for one thread, which never blocks; -1 if none is left."""
        return _open_inotify()

    @staticmethod
    def add_watch(descriptor: int, folder: str) -> int:
        """Watch a folder through such a descriptor until ``remove_watch``. Returns the watch, which is the same as
        before for the same folder; -1 if it cannot be watched."""
        return _add_watch(descriptor, folder, _CHANGES)

    @staticmethod
    def remove_watch(descriptor: int, watch: int) -> None:
        """Stop watching a folder. Does nothing if the folder is gone."""
        library = _load_library()
        if library is not None:
            library.inotify_rm_watch(descriptor, watch)

    def close(self) -> None:
        """Stop the thread and drop all armings, without a call. Idempotent. Do not call it inside ``wake``."""
        with self._lock:
            thread, self._thread, self._descriptor = self._thread, None, -1
            self._armed.clear()
            self._watches.clear()
            if thread is not None:
                os.eventfd_write(self._stopping, 1)
        if thread is not None:
            thread.join(JOIN_SECONDS)

    def _run(self, descriptor: int) -> None:
        """Wake those who wait for what changes, until ``close``."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._stopping, select.POLLIN)
        while all(ready != self._stopping for ready, _ in poll.poll()):
            for arming in self._take(os.read(descriptor, _EVENT_BYTES)):
                arming.wake()
        os.close(descriptor)
        os.close(self._stopping)

    def _take(self, events: bytes) -> list[_Arming]:
        """The armings that end with ``events``. The kernel has removed a watch after its first change.

        It says so in an event of its own, which ends armings, too. A folder may be armed while the kernel removes the
        watch of the change before. Then the new arming has the dying watch, and that event is the only one to come.
        """
        with self._lock:
            ended = []
            for watch, mask in _read_events(events):
                if mask & _IN_Q_OVERFLOW:  # events were lost, and the ends of watches with them
                    for left in self._watches:
                        self.remove_watch(self._descriptor, left)
                    ended += [arming for armings in self._watches.values() for arming in armings]
                    self._watches.clear()
                else:
                    ended += self._watches.pop(watch, ())
            for arming in ended:
                del self._armed[arming.folder, arming.wake]
            return ended


def _read_events(events: bytes) -> Iterator[tuple[int, int]]:
    """The watch and the mask of each event."""
    at = 0
    while at < len(events):
        watch, mask, _, name_bytes = EVENT.unpack_from(events, at)
        yield watch, mask
        at += EVENT.size + name_bytes


def _open_inotify() -> int:
    library = _load_library()
    return -1 if library is None else int(library.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC))


def _add_watch(descriptor: int, folder: str, mask: int) -> int:
    library = _load_library()
    if library is None:
        return -1
    return int(library.inotify_add_watch(descriptor, os.fsencode(folder), mask | _IN_ONLYDIR))


@cache
def _load_library() -> Any | None:
    """The C library; None if it has no inotify."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only what waits for a change pays for it

    library = ctypes.CDLL(None)
    try:
        library.inotify_init1.argtypes = [ctypes.c_int]
        library.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
        library.inotify_rm_watch.argtypes = [ctypes.c_int, ctypes.c_int]
    except AttributeError:
        return None
    return library
