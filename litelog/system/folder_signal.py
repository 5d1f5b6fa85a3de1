"""FolderSignal: one thread's wait for a change in one folder, without another thread between the two.

A ``Watcher`` serves any number of folders, and its thread wakes those who wait. That hand-over takes longer than the
reading of a small append, so a thread that serves readers at the end of a log has its own descriptor.
"""

from __future__ import annotations

import os
import select
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.system.inotify import Watcher

MOST_DESCRIPTORS = 32
"""How many signals of a process have an inotify descriptor. A user often has 128 of them for all programs."""

_EVENT_BYTES = 4 << 10
"""How many bytes of events are taken at once. The kernel merges equal ones."""

_EVENT = struct.Struct("=iIII")
"""Of an event, before its name: the watch, the mask, a cookie, and the size of the name."""

_IN_MODIFY = 2


_descriptors = threading.BoundedSemaphore(MOST_DESCRIPTORS)


class FolderSignal:
    """One thread calls the methods; any thread calls ``wake``. Wake-ups are hints only. Writes through mmap cause none.

    A ``Watcher`` reports the changes if the process has MOST_DESCRIPTORS, or the system gives none.
    """

    def __init__(self, folder: str, watcher: Watcher) -> None:
        self._folder = folder
        self._watcher = watcher
        self._lock = threading.Lock()
        self._woken, self._waking = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waking, False)
        self._inotify = _open_inotify(watcher)
        self._watch = -1
        self._is_write = False
        """Whether a write alone has ended the last wait: the folder is the one that was armed."""
        self._poll = select.poll()
        for descriptor in (self._woken, self._inotify):
            if descriptor >= 0:
                self._poll.register(descriptor, select.POLLIN)

    def arm(self) -> bool:
        """Let ``wait`` return for what changes in the folder from now on. Call it before the folder is looked at.

        Arming again finds the folder that has the path now, unless a write has just ended the wait. Returns False if
        changes are not reported: then poll."""
        if self._inotify < 0:
            return self._watcher.arm(self._folder, self.wake)
        if self._is_write and self._watch >= 0:
            return True
        watch = self._watcher.add_watch(self._inotify, self._folder)
        if watch != self._watch:
            self._remove_watch()
            self._watch = watch
        return watch >= 0

    def disarm(self) -> None:
        """Let ``wait`` return only for ``wake``, until ``arm`` is called."""
        if self._inotify < 0:
            self._watcher.disarm(self._folder, self.wake)
        self._remove_watch()
        self._take(self._inotify)

    def wait(self, seconds: float) -> None:
        """Wait for a change or ``wake``, up to ``seconds``. What comes after the return is kept for the next call."""
        ready = self._poll.poll(seconds * 1000)
        events = b""
        for descriptor, _ in ready:
            events = self._take(descriptor)
        self._is_write = len(ready) == 1 and ready[0][0] == self._inotify and _is_write(events)

    def wake(self) -> None:
        """Let the wait that is under way, or the next one, return at once. Does nothing after ``close``."""
        with self._lock, suppress(BlockingIOError):  # a full pipe wakes as well
            if self._waking >= 0:
                os.write(self._waking, b"\0")

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        if self._inotify < 0:
            self._watcher.disarm(self._folder, self.wake)
        with self._lock:
            if self._inotify >= 0:
                _descriptors.release()
            for descriptor in (self._woken, self._waking, self._inotify):
                if descriptor >= 0:
                    os.close(descriptor)
            self._woken = self._waking = self._inotify = -1

    def _remove_watch(self) -> None:
        watch, self._watch = self._watch, -1
        if watch >= 0:
            self._watcher.remove_watch(self._inotify, watch)

    @staticmethod
    def _take(descriptor: int) -> bytes:
        try:
            return os.read(descriptor, _EVENT_BYTES) if descriptor >= 0 else b""
        except BlockingIOError:
            return b""


def _is_write(events: bytes) -> bool:
    """Whether they are one event, of a write to a file in the folder."""
    if len(events) < _EVENT.size:
        return False
    _, mask, _, name_bytes = _EVENT.unpack_from(events)
    return bool(mask == _IN_MODIFY and len(events) == _EVENT.size + name_bytes)


def _open_inotify(watcher: Watcher) -> int:
    """An inotify descriptor; -1 without one."""
    if not watcher.available or not _descriptors.acquire(blocking=False):
        return -1
    descriptor = watcher.open_inotify()
    if descriptor < 0:
        _descriptors.release()
    return descriptor
