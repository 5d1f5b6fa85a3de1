"""The log segments that a restore writes: which descriptor is open for how long, and when each is synced."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from litelog.system.files import allocate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class SegmentFiles:
    """One descriptor for each log segment, from the first of its pieces to the last. Shared by threads."""

    def __init__(
        self,
        create: Callable[[str], int],
        reopen: Callable[[str], int],
        sizes: Mapping[int, int],
        indexes: Iterable[int],
    ) -> None:
        """``sizes``: in bytes, that a log segment will have, by its index. ``indexes``: that of each piece that will be
        ``done``; ``expect`` names more."""
        self._create = create
        self._reopen = reopen
        self._sizes = sizes
        self._lock = threading.Lock()
        self._left = Counter(indexes)
        self._open: dict[int, int] = {}
        self._created: set[int] = set()

    def expect(self, index: int, pieces: int) -> None:
        """So many more pieces of ``index`` will be ``done``."""
        with self._lock:
            self._left[index] += pieces

    def open(self, index: int, name: str) -> int:
        """The descriptor of a log segment that still has a piece to come, created at its first one."""
        with self._lock:
            if index not in self._open:
                self._open[index] = self._make(index, name)
            return self._open[index]

    @contextmanager
    def opened_apart(self, index: int, name: str) -> Iterator[int]:
        """A descriptor of its own for a log segment that may have no piece to come, synced at the end."""
        with self._lock:
            file = self._make(index, name)
        try:
            yield file
            os.fsync(file)
        finally:
            os.close(file)

    def done(self, index: int) -> None:
        """One piece of ``index`` is written; with the last one, sync and close the log segment."""
        with self._lock:
            self._left[index] -= 1
            file = self._open.pop(index, None) if self._left[index] == 0 else None
        if file is not None:
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def close(self) -> None:
        """Close what is open, unsynced: nothing is, but after a failure."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])

    def _make(self, index: int, name: str) -> int:
        if index in self._created:
            return self._reopen(name)
        file = self._create(name)
        self._created.add(index)
        try:
            size = self._sizes.get(index, 0)
            if os.fstat(file).st_size > size:  # an earlier restore left more
                os.ftruncate(file, size)
            allocate(file, size)
        except OSError:
            os.close(file)
            raise
        return file
