"""EarlySync: makes a log segment durable in a thread of its own, while another thread reads what was written.

The writer of a log syncs what it has just written. A sync that begins meanwhile ends at about the same time. One that
begins after the bytes were read, checked and encoded has to wait for the disk once more.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.native.syncs import await_and_sync

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.log.source import OpenSegment

_DESCRIPTOR = struct.Struct("=i")


def await_sync(pipe: int) -> int:
    """Wait for a descriptor in a pipe, and sync its file. Returns 0, the error's number, or -1 at the end."""
    found = await_and_sync(pipe)
    if found is not None:
        return found
    asked = os.read(pipe, _DESCRIPTOR.size)
    if len(asked) < _DESCRIPTOR.size or _DESCRIPTOR.unpack(asked)[0] < 0:
        return -1
    try:
        os.fdatasync(*_DESCRIPTOR.unpack(asked))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


class EarlySync:
    """One thread, that of the follower, calls the methods. Its own thread starts with the first sync."""

    def __init__(self, wake: Callable[[], None], await_sync: Callable[[int], int] = await_sync) -> None:
        """``wake``: called after a sync failed, so that the follower's thread calls a method, which raises.
        ``await_sync`` is for tests."""
        self._wake = wake
        self._await_sync = await_sync
        self._source: OpenSegment | None = None
        self._copy: OpenSegment | None = None
        """Has a descriptor of its own: the follower may close the other one meanwhile."""
        self._path = ""
        self._size = 0
        self._pipe: tuple[int, int] | None = None
        """While the thread runs, which reads from the first end, and closes it."""
        self._busy = threading.Lock()
        """Held from the begin of a sync until what waits for it was done."""
        self._lock = threading.Lock()
        """Guards the two fields below."""
        self._is_running = False
        self._then: Callable[[], None] | None = None
        self._error: Exception | None = None
        """Why a sync failed. For the thread that holds ``_busy``."""

    def begin(self, segment: OpenSegment | None, path: str, offset: int) -> None:
        """Begin to sync a log segment, if it has bytes after ``offset``. Waits for the sync before it. Does not begin
        while the file ends with preallocated zeros: what is written there later has no part in the sync. Nor if the
        process can have no further descriptor or thread: the follower then syncs it as it reads.

        Raises the error of the sync before it; SourceSyncError if a sync of the log failed before; OSError if the file
        cannot be examined."""
        self.finish()
        self._size = 0
        copy = self._copy if segment is self._source else self._move_to(segment, path)
        if copy is None:
            return
        size = copy.size()
        if size <= offset or copy.ends_with_zeros(size):
            return
        descriptor, pipe = copy.prepare_sync(), self._pipe or self._start()
        if pipe is None:
            return
        self._busy.acquire()
        self._size, self._is_running = size, True
        os.write(pipe[1], _DESCRIPTOR.pack(descriptor))

    def covered(self, segment: OpenSegment, offset: int) -> int | None:
        """How many bytes of a log segment are durable once the sync has ended that was begun last; None if it is of
        another one, or they are not more than ``offset``."""
        return self._size if segment is self._source and self._size > offset else None

    def then(self, call: Callable[[], None]) -> None:
        """Call ``call`` once the sync under way has ended well: in this thread if it has ended already, or else in the
        other one. Calls come in their order. Raises the error of the sync."""
        while True:
            with self._lock:
                if self._is_running and self._then is None:
                    self._then = call
                    return
                is_free = not self._is_running
            self.finish()
            if is_free:
                call()
                return

    def finish(self) -> None:
        """Wait until the sync under way has ended, and what waited for it is done. Raises the error of the sync."""
        with self._busy:
            error, self._error = self._error, None
        if error is not None:
            self._size = 0
            raise error

    def close(self) -> None:
        """Wait for the sync under way, and release the log segment. The error of that sync is of no interest any more.
        Another one can be begun."""
        with self._busy:
            self._error = None
        self._close_copy()

    def end(self) -> None:
        """Close it, and end the thread. Idempotent."""
        self.close()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe[1])

    def _move_to(self, segment: OpenSegment | None, path: str) -> OpenSegment | None:
        """Take another log segment. Returns it with a descriptor of its own; None if there is none."""
        self._close_copy()
        if segment is not None and not segment.is_logical:
            with suppress(OSError):  # the process can have no further descriptor
                self._copy = segment.duplicate()
                self._source, self._path = segment, path
        return self._copy

    def _close_copy(self) -> None:
        self._source, self._size = None, 0
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()

    def _start(self) -> tuple[int, int] | None:
        """Start the thread. Returns the pipe through which it gets descriptors; None if the process can have no further
        descriptor or thread."""
        try:
            pipe = os.pipe()
        except OSError:
            return None
        thread = threading.Thread(target=self._run, args=(pipe[0],), name="early sync", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            for descriptor in pipe:
                os.close(descriptor)
            return None
        self._pipe = pipe
        return pipe

    def _run(self, pipe: int) -> None:
        try:
            while (number := self._await_sync(pipe)) >= 0:
                self._end_sync(number)
        finally:
            os.close(pipe)

    def _end_sync(self, number: int) -> None:
        """A sync has ended: with an error, unless ``number`` is 0."""
        with self._lock:
            self._is_running = False
            then, self._then = self._then, None
        try:
            if number and self._copy is not None:
                raise self._copy.fail_sync(self._path, OSError(number, os.strerror(number)))
            if then is not None:
                then()
        except Exception as error:  # noqa: BLE001 - the follower's thread raises it
            self._error = error
        failed = self._error is not None
        self._busy.release()
        if failed:
            self._wake()
