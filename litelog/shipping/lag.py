"""Lag: how many bytes of a log a replica has not acknowledged yet, and for how long.

Lag is measured from the file system, apart from the threads that ship: if they hang, lag grows.
"""

from __future__ import annotations

import math
import os
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from litelog.dataclass import dataclass
from litelog.errors import LitelogError
from litelog.log.source import SegmentFolder
from litelog.shipping.record_lag import MOST_BYTES, PendingRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.formats import LogFormat
    from litelog.log.source_position import SourcePosition
    from litelog.objects.position import Generation
    from litelog.system.clock import Clock

LOOK_SECONDS = 1.0
"""How often, in seconds, a log is examined if it changes or its replicas lag."""

IDLE_LOOK_SECONDS = 30.0
"""How often, in seconds, any other log is examined: for a thousand logs, that takes a twentieth of a percent of a
processor. A log is not idle while a thread works on any of its replicas, for example in a sync that hangs."""

SAMPLE_SECONDS = 10.0
SAMPLES = 360
HISTORY_SECONDS = SAMPLE_SECONDS * SAMPLES
"""How many seconds of the past are kept: an hour, with fewer samples while the log is idle."""

MAX_MARKS = 128
"""How many ends of a log are remembered at most, each with the time when it was seen."""

_GROWING = 3
"""How many log segments, from the newest one back, may still grow: a writer may return to an earlier one."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a replica lags."""

    bytes: int
    """Bytes of the log, in whole commits or not. If a writer allocates its files before it writes, a file counts as a
    whole from the first write until that write is shipped."""
    seconds: float
    """How long ago the oldest of these bytes was first seen. Both are 0 if all that can be shipped is shipped."""


NONE = Lag(0, 0.0)


@dataclass(frozen=True, slots=True)
class SourceView:
    """The contents of a log's folder at one time."""

    orders: Sequence[tuple[object, ...]] = ()
    """The sort keys of its log segments, oldest first."""
    sizes: Sequence[int] = ()
    """The size of each in bytes."""
    version: int = 0
    """A number that differs after each change."""
    seen: float = 0.0
    """When, in monotonic seconds; never earlier than the contents."""

    @property
    def end(self) -> tuple[Any, ...]:
        """The end of the log. Ends and positions can be compared."""
        last = len(self.orders) - 1
        while last > 0 and not self.sizes[last]:
            last -= 1
        return (self.orders[last], self.sizes[last]) if last >= 0 else ()

    def bytes_after(self, place: tuple[Any, ...]) -> int:
        """Return how many bytes follow a position; all bytes if it is ()."""
        if not place:
            return sum(self.sizes)
        order, offset = place
        later = sum(self.sizes[bisect_right(self.orders, order) :])
        at = bisect_left(self.orders, order)
        here = self.sizes[at] if at < len(self.orders) and self.orders[at] == order else 0
        return int(later + max(0, here - offset))


class SourceEnd:
    """Watches a log's folder from outside. One thread at a time calls ``look``; any thread reads ``view``."""

    def __init__(self, folder: str, log_format: LogFormat, clock: Clock) -> None:
        self.folder = folder
        self.format = log_format
        self.view = SourceView()
        self.error: str | None = None
        """Why the last look failed."""
        self._names = SegmentFolder(folder, log_format, clock, reports=False)
        self._listed: list[str] = []
        self._sizes: dict[str, int] = {}
        self._signature: tuple[object, ...] = ()
        self.clock = clock
        self._looked_at = -math.inf
        self.changing = False
        """Whether the last look found a change, or failed."""

    def look_if_due(self, now: float, *, busy: bool) -> None:
        """Look, unless the last look was a moment ago. ``busy``: a replica is being synced, or lags."""
        interval = LOOK_SECONDS if busy or self.changing else IDLE_LOOK_SECONDS
        if now >= self._looked_at + interval - LOOK_SECONDS / 2:
            self._looked_at = now
            self.changing = self.look()

    def look(self) -> bool:
        """Read the state of the folder, and of the log segments that may have grown.

        Returns whether anything changed, or may have. True after an error, too: then the folder is read again soon, and
        a stale error is cleared."""
        try:
            names = self._names.all()
            signature = self._read_sizes(names)
        except (LitelogError, OSError) as error:
            self.error = str(error)
            return True
        self.error = None
        if names == self._listed and signature == self._signature:
            return False
        self._listed, self._signature = names, signature
        orders = [order for name in names if (order := self.format.segment_order(name)) is not None]
        sizes = [self._sizes[name] for name in names]
        self.view = SourceView(orders, sizes, self.view.version + 1, self.clock.monotonic())
        return True

    def _read_sizes(self, names: list[str]) -> tuple[object, ...]:
        if names != self._listed:
            self._sizes = {name: self._sizes[name] for name in names if name in self._sizes}
        growing = set(names[-_GROWING:])
        signature = []
        for name in growing.union(name for name in names if name not in self._sizes):
            size = modified = 0
            with suppress(FileNotFoundError):
                status = os.stat(os.path.join(self.folder, name))
                size, modified = status.st_size, status.st_mtime_ns
            self._sizes[name] = size
            if name in growing:
                signature.append((name, size, modified))
        return tuple(sorted(signature))


class LagHistory:
    """The lag of the last hour: a sample each SAMPLE_SECONDS, or whenever the log was examined."""

    def __init__(self) -> None:
        self._times = array("d")
        self._seconds = array("f")
        self._bytes = array("q")
        self._last = -math.inf
        self._next = 0
        """The position of the next sample, once there are SAMPLES."""
        self._lock = threading.Lock()

    def add_if_due(self, now: float, lag: Lag) -> None:
        """Take a sample, unless the last one was a moment ago."""
        with self._lock:
            if now < self._last + SAMPLE_SECONDS - LOOK_SECONDS / 2:
                return
            self._last = now
            if len(self._times) == SAMPLES:
                self._times[self._next], self._seconds[self._next], self._bytes[self._next] = (
                    now,
                    lag.seconds,
                    lag.bytes,
                )
            else:
                self._times.append(now)
                self._seconds.append(lag.seconds)
                self._bytes.append(lag.bytes)
            self._next = (self._next + 1) % SAMPLES

    def read(self) -> list[tuple[float, float, int]]:
        """Return (time in monotonic seconds, seconds of lag, bytes of lag) of each sample, the oldest first."""
        with self._lock:
            samples = list(zip(self._times, self._seconds, self._bytes, strict=True))
            ordered = samples if len(samples) < SAMPLES else samples[self._next :] + samples[: self._next]
            return [sample for sample in ordered if sample[0] > self._last - HISTORY_SECONDS]


class _Mark(NamedTuple):
    """An end of a log, and the first and the last time that it, or an end before it, was seen."""

    end: tuple[Any, ...]
    first: float
    last: float


class LagMeter:
    """The lag of one replica. Any thread may use it."""

    def __init__(self, source: SourceEnd, shipped: Callable[[], tuple[Generation, SourcePosition] | None]) -> None:
        """``shipped`` returns the generation, and the position up to which the log is acknowledged there; None before
        the first sync."""
        self.source = source
        self.history = LagHistory()
        self.records: int | None = 0
        """How many sequences the replica lacked at the last look; None if that is not known."""
        self._pending: tuple[Generation, PendingRecords] | None = None
        self._whole: tuple[int, tuple[Any, ...]] | None = None
        """The version of a view, and where the last whole commit in it ends."""
        self._shipped = shipped
        self._marks: deque[_Mark] = deque()
        self._spacing = 0.0
        """How many seconds one mark may stand for."""
        self._version = 0
        self.due = -math.inf
        """When to measure next, in monotonic seconds, unless the replica is busy. Of a thousand idle logs, nearly all
        are skipped nearly always."""
        self._lock = threading.Lock()

    def measure_if_due(self, now: float, caught_up: float, *, busy: bool, most_bytes: int = MOST_BYTES) -> int:
        """Look at the source and take a sample, unless the last one was a moment ago.

        Returns:
            How many bytes it read to count records, about ``most_bytes`` at most.
        """
        if now < self.due and not busy:
            return 0
        self.source.look_if_due(now, busy=busy)
        lag, read = self.read(now, caught_up), 0
        if lag.bytes:
            read = self._count(most_bytes)
            lag = self.read(now, caught_up)
        self.history.add_if_due(now, lag)
        idle = not (busy or lag.bytes or self.source.changing)
        self.due = now + (IDLE_LOOK_SECONDS if idle else LOOK_SECONDS) - LOOK_SECONDS / 2
        return read

    def _count(self, most_bytes: int) -> int:
        """Count the records that the replica lacks, and return how many bytes that read."""
        shipped, source = self._shipped(), self.source
        version = source.view.version
        if shipped is None:
            self.records = None
            return 0
        generation, place = shipped
        if self._pending is None or self._pending[0] != generation:  # a log that begins again counts otherwise
            self._pending = generation, PendingRecords(source.folder, source.format, source.clock)
        _, pending = self._pending
        self.records = pending.count(place, min(most_bytes, MOST_BYTES))
        file, offset = pending.end or ("", 0)
        order = source.format.segment_order(file) if file else None
        self._whole = None if order is None else (version, (order, offset))
        return pending.read_bytes

    def read(self, now: float, caught_up: float) -> Lag:
        """Return the lag at the last look at the source. ``caught_up``: when a look began that found nothing to ship.
        All bytes seen before that are acknowledged, or are not a whole commit yet."""
        with self._lock:
            view = self.source.view
            if view.version != self._version:
                self._version = view.version
                self._mark(view.end, view.seen)
            place = self._find_place()
            while self._marks and (self._marks[0].last <= caught_up or self._marks[0].end <= place):
                self._marks.popleft()
            if not self._marks:
                self._spacing = 0.0
                return NONE
            whole = self._whole
            tail = view.bytes_after(whole[1]) if whole is not None and whole[0] == view.version else 0
            return Lag(max(0, view.bytes_after(place) - tail), max(0.0, now - self._marks[0].first))

    def _mark(self, end: tuple[Any, ...], seen: float) -> None:
        """Remember an end of the log. If there are too many, merge neighbours, with the age of the older one."""
        marks = self._marks
        if len(marks) >= MAX_MARKS:
            self._spacing = max(2 * self._spacing, 2 * (seen - marks[0].first) / MAX_MARKS)
            self._marks = deque()
            for mark in marks:
                self._add(mark)
        self._add(_Mark(end, seen, seen))

    def _add(self, mark: _Mark) -> None:
        last = self._marks[-1] if self._marks else None
        if last is not None and mark.last - last.first < self._spacing:
            self._marks[-1] = _Mark(mark.end, last.first, mark.last)
        else:
            self._marks.append(mark)

    def _find_place(self) -> tuple[Any, ...]:
        shipped = self._shipped()
        return () if shipped is None else find_place(shipped[1], self.source.format)


def find_place(place: SourcePosition, log_format: LogFormat) -> tuple[Any, ...]:
    """Return a position in the form of ``SourceView.end``."""
    name, offset = (place.file, float(place.offset)) if place.file else (place.finished, math.inf)
    order = log_format.segment_order(name) if name else None
    return () if order is None else (order, offset)
