"""Watcher: one-shot wake-ups when something in a folder changes. They are hints only: callers must poll as well.

It calls the kernel's inotify through ctypes. The Observer of the package watchdog takes a thread for each folder, and
40 times as much processor time for each wake-up.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.system.files import find_c_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOIN_SECONDS = 5.0
"""How long ``close`` waits for the thread, in seconds: it only ever waits inside a caller's ``wake``."""

_CHANGES = 0x2 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""IN_MODIFY, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF."""
_ONLY_FOLDERS = 0x01000000
_ONCE = 0x80000000
_EVENT = struct.Struct("=iIII")
"""struct inotify_event: the watch, the mask, a cookie, and the length of the name that follows."""
_READ_BYTES = 64 << 10

_Waiter = tuple[str, "Callable[[], None]"]


class Watcher:
    """Any number of folders on one inotify descriptor and one thread. Several threads may call it.

    A folder is watched only between ``arm`` and the first change after it, so a busy writer costs one event and no
    more. Changes made before ``arm`` are not reported: arm, then look, then wait. Writes through mmap cause no event.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[_Waiter, int] = {}
        self._waiters: dict[int, dict[_Waiter, None]] = {}
        """By watch: a folder has one, which all that wait for it share."""
        self._inotify = _Inotify.open()
        if self._inotify is not None:
            self._thread = threading.Thread(target=self._run, args=(self._inotify,), name="inotify", daemon=True)
            self._thread.start()

    @property
    def available(self) -> bool:
        """Whether wake-ups work: False without inotify, with no instance left, and after ``close``."""
        return self._inotify is not None

    def arm(self, folder: str, wake: Callable[[], None]) -> bool:
        """Have ``wake`` called once, after something in ``folder`` was created, modified, moved or deleted.

        The watcher's thread calls it; it must neither block nor raise. Arming again changes nothing. Returns False if
        there will be no call (no such folder, no watch left, not available): then poll.
        """
        waiter = (folder, wake)
        with self._lock:
            if self._inotify is None:
                return False
            if waiter in self._watches:
                return True
            watch = self._inotify.add(folder)
            if watch < 0:
                return False
            self._watches[waiter] = watch
            self._waiters.setdefault(watch, {})[waiter] = None
            return True

    def disarm(self, folder: str, wake: Callable[[], None]) -> None:
        """Revoke ``arm``. A call that is under way may still arrive. Without an arming this does nothing."""
        with self._lock:
            watch = self._watches.pop((folder, wake), None)
            if watch is None:
                return
            del self._waiters[watch][folder, wake]
            if not self._waiters[watch]:
                del self._waiters[watch]
                if self._inotify is not None:
                    self._inotify.remove(watch)

    def close(self) -> None:
        """Stop the thread and drop all armings, without a call. Idempotent. Do not call it inside ``wake``."""
        with self._lock:
            inotify, self._inotify = self._inotify, None
            self._watches.clear()
            self._waiters.clear()
        if inotify is not None:
            inotify.stop()
            self._thread.join(JOIN_SECONDS)

    def _run(self, inotify: _Inotify) -> None:
        for watch in inotify.events():
            for _, wake in self._take(watch):
                wake()

    def _take(self, watch: int) -> list[_Waiter]:
        """Remove the waiters for a watch that had an event; all of them for -1: events were dropped.

        The kernel's last word on a watch, that it is gone, wakes as well. A folder may be armed while the kernel
        removes the watch of the change before. The new waiter then shares the dying watch, and gets no other event.
        """
        with self._lock:
            if watch >= 0:
                taken = [*self._waiters.pop(watch, ())]
            else:
                taken = [*self._watches]
                for lost in self._waiters:
                    if self._inotify is not None:
                        self._inotify.remove(lost)
                self._waiters.clear()
            for waiter in taken:
                del self._watches[waiter]
            return taken


class _Inotify:
    """An inotify instance, and a pipe that ends the reading of its events."""

    @staticmethod
    def open() -> _Inotify | None:
        """A new instance; None if the system has no inotify, or no instance left."""
        create = find_c_function("inotify_init1", ctypes.c_int)
        file = -1 if create is None else create(os.O_CLOEXEC | os.O_NONBLOCK)
        return None if file < 0 else _Inotify(file)

    def __init__(self, file: int) -> None:
        self._file = file
        self._stopped, self._stop = os.pipe()
        add = find_c_function("inotify_add_watch", ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        remove = find_c_function("inotify_rm_watch", ctypes.c_int, ctypes.c_int)
        assert add is not None
        assert remove is not None
        self._add, self._remove = add, remove

    def add(self, folder: str) -> int:
        """Watch a folder until its next change. Returns the watch; a negative number if that is not possible."""
        return self._add(self._file, os.fsencode(folder), _CHANGES | _ONLY_FOLDERS | _ONCE)

    def remove(self, watch: int) -> None:
        """Remove a watch, if it still exists."""
        self._remove(self._file, watch)

    def events(self) -> Iterator[int]:
        """Yield the watch of each event, or -1 if events were dropped, until ``stop``."""
        poller = select.poll()
        for file in (self._file, self._stopped):
            poller.register(file, select.POLLIN)
        try:
            while self._stopped not in dict(poller.poll()):
                with suppress(BlockingIOError):
                    yield from _watches_of(os.read(self._file, _READ_BYTES))
        finally:
            os.close(self._file)
            os.close(self._stopped)

    def stop(self) -> None:
        """End ``events``, and close the instance. Call it once."""
        os.close(self._stop)


def _watches_of(events: bytes) -> Iterator[int]:
    """Yield the watch of each event: -1 in the event that says that others were dropped."""
    at = 0
    while at < len(events):
        watch, _, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size + length
        yield watch
