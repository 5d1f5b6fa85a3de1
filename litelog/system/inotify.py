"""Watcher: one-shot wake-ups when something in a folder changes. They are hints only: callers must poll as well.

It uses the inotify reader below watchdog's Observer. The Observer itself takes a thread for each folder, reports every
change, and took 40 times as much processor time for each wake-up. Without that reader callers poll.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

JOIN_SECONDS = 5.0
"""How long ``close`` waits for the thread, in seconds. The thread can only be delayed by a caller's ``wake``."""


@dataclass(slots=True, eq=False)
class _Arming:
    """One wait for one change. inotify calls it from its own thread.

    ``on_watch_deleted`` wakes, too. A folder may be armed while the kernel removes the watch of the change before. Then
    the new arming uses the dying watch, and its removal is the only event that will come.
    """

    folder: str
    wake: Callable[[], None]
    fire: Callable[[_Arming], None]
    drop: Callable[[_Arming], None]
    watch: int = -1

    def on_event(self, event: object) -> None:  # noqa: ARG002
        self.fire(self)

    def on_watch_deleted(self, wd: int) -> None:  # noqa: ARG002
        self.fire(self)

    def on_queue_overflow(self) -> None:
        self.fire(self)
        self.drop(self)


class Watcher:
    """Any number of folders on one inotify descriptor and one thread. Several threads may call it.

    A folder is watched only between ``arm`` and the first change after it, so a busy writer costs one event and no
    more. Changes made before ``arm`` are not reported: arm, then look, then wait. Writes through mmap cause no event.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[tuple[str, Callable[[], None]], _Arming] = {}
        self._inotify, self._mask = _open_inotify()

    @property
    def available(self) -> bool:
        """Whether wake-ups work: False without inotify, with no instance left, and after ``close``."""
        return self._inotify is not None

    def arm(self, folder: str, wake: Callable[[], None]) -> bool:
        """Have ``wake`` called once, after something in ``folder`` was created, modified, moved or deleted.

        The watcher's thread calls it; it must neither block nor raise. Arming again changes nothing. Returns False if
        there will be no call (no such folder, no watch left, not available): then poll.
        """
        key = (folder, wake)
        with self._lock:
            if self._inotify is None:
                return False
            if key in self._armed:
                return True
            arming = _Arming(folder, wake, self._fire, self._drop)
            try:
                watch = self._inotify.add_callback(os.fsencode(folder), self._mask, arming, id(arming))
            except OSError:
                return False
            arming.watch = int(watch)
            if arming.watch < 0:  # a folder that may not be read is registered, but not watched
                self._remove(arming)
                return False
            self._armed[key] = arming
            return True

    def disarm(self, folder: str, wake: Callable[[], None]) -> None:
        """Revoke ``arm``. A call that is under way may still arrive. Without an arming this does nothing."""
        with self._lock:
            arming = self._armed.pop((folder, wake), None)
            if arming is not None:
                self._remove(arming)

    @staticmethod
    def open_inotify() -> int:
        """Open an inotify descriptor for one thread, which never blocks; -1 if none is left."""
        from watchdog.observers.inotify_c import inotify_init  # noqa: PLC0415

        descriptor = inotify_init()
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
            os.set_blocking(descriptor, False)
        return descriptor

    def add_watch(self, descriptor: int, folder: str) -> int:
        """Watch a folder through such a descriptor until ``remove_watch``. Returns the watch, which is the same as
        before for the same folder; -1 if it cannot be watched."""
        from watchdog.observers.inotify_c import InotifyConstants, inotify_add_watch  # noqa: PLC0415

        return int(inotify_add_watch(descriptor, os.fsencode(folder), self._mask & ~InotifyConstants.IN_ONESHOT))

    @staticmethod
    def remove_watch(descriptor: int, watch: int) -> None:
        """Stop watching a folder. Does nothing if the folder is gone."""
        from watchdog.observers.inotify_c import inotify_rm_watch  # noqa: PLC0415

        inotify_rm_watch(descriptor, watch)  # type: ignore[arg-type]

    def close(self) -> None:
        """Stop the thread and drop all armings, without a call. Idempotent. Do not call it inside ``wake``."""
        with self._lock:
            inotify, self._inotify = self._inotify, None
            self._armed.clear()
        if inotify is not None:
            inotify.stop()
            inotify.join(JOIN_SECONDS)

    def _fire(self, arming: _Arming) -> None:
        with self._lock:
            key = (arming.folder, arming.wake)
            if self._armed.get(key) is not arming:
                return
            del self._armed[key]
        arming.wake()

    def _drop(self, arming: _Arming) -> None:
        """Drop a watch whose end the kernel may not have reported."""
        with self._lock:
            self._remove(arming)

    def _remove(self, arming: _Arming) -> None:
        if self._inotify is not None:
            self._inotify.remove_callbacks([(arming.watch, id(arming))])


def _open_inotify() -> tuple[Any, int]:
    """A running inotify reader and the mask to watch a folder with; (None, 0) if there is none."""
    try:
        from watchdog.observers.inotify_c import InotifyConstants, InotifyFD  # noqa: PLC0415
        from watchdog.utils import UnsupportedLibcError  # noqa: PLC0415
    except Exception:  # noqa: BLE001 - importing it raises whatever the platform lacks
        return None, 0
    constants = InotifyConstants
    try:
        inotify = InotifyFD()
    except (OSError, UnsupportedLibcError):
        return None, 0
    inotify.start()
    mask = constants.IN_MODIFY | constants.IN_CREATE | constants.IN_MOVE | constants.IN_DELETE
    mask |= constants.IN_DELETE_SELF | constants.IN_MOVE_SELF
    return inotify, mask | constants.IN_ONLYDIR | constants.IN_ONESHOT
