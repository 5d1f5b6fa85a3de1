"""Lag: how many bytes a log's folder holds behind what a replica has acknowledged, and for how long.

The folder is judged by what the file system says of it, apart from the threads that ship: where these hang, lag grows.
"""

from __future__ import annotations

import math
import os
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from litelog.errors import LitelogError
from litelog.log.source import SegmentNames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.formats import LogFormat
    from litelog.log.source_position import Place
    from litelog.system.clock import Clock

LOOK_SECONDS = 1.0
"""How often a log is looked at that changes, or whose replicas are behind."""

IDLE_LOOK_SECONDS = 30.0
"""How often any other is: for a thousand of them, a twentieth of a percent of a processor. Once a thread has a replica,
as when its sync hangs, its log is no idle one."""

SAMPLE_SECONDS = 10.0
SAMPLES = 360
HISTORY_SECONDS = SAMPLE_SECONDS * SAMPLES
"""How much of its past is kept: an hour, with fewer samples while the log is idle."""

MAX_MARKS = 128
"""How many ends of a log are remembered, at most, with when each was seen."""

_GROWING = 3
"""How many log segments, from the newest one back, may still grow: a writer may come back to one before its last."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a replica is."""

    bytes: int
    """Of the log, whole commits or not. Where a writer allocates its files before it writes, they count in whole from
    when it writes to when that is shipped."""
    seconds: float
    """How long ago the oldest of these bytes was seen first. Both are 0 where all that can be shipped is."""


NONE = Lag(0, 0.0)


@dataclass(frozen=True, slots=True)
class SourceView:
    """What a log's folder held at one look."""

    orders: Sequence[tuple[object, ...]] = ()
    """What its log segments are sorted by, oldest first."""
    sizes: Sequence[int] = ()
    """Bytes of each."""
    version: int = 0
    """Another one whenever anything changed."""
    seen: float = 0.0
    """When, monotonic: no earlier than what it shows was there."""

    @property
    def end(self) -> tuple[Any, ...]:
        """Where the log ends; it compares with other ends, and with places."""
        last = len(self.orders) - 1
        while last > 0 and not self.sizes[last]:
            last -= 1
        return (self.orders[last], self.sizes[last]) if last >= 0 else ()

    def bytes_behind(self, place: tuple[Any, ...]) -> int:
        """How many bytes lie behind a place; all of them where that is ()."""
        if not place:
            return sum(self.sizes)
        order, offset = place
        behind = sum(self.sizes[bisect_right(self.orders, order) :])
        at = bisect_left(self.orders, order)
        here = self.sizes[at] if at < len(self.orders) and self.orders[at] == order else 0
        return int(behind + max(0, here - offset))


class SourceEnd:
    """A log's folder, looked at from outside. ``look`` is called by one thread at a time, ``view`` by any."""

    def __init__(self, folder: str, log_format: LogFormat, clock: Clock) -> None:
        self.folder = folder
        self.format = log_format
        self.view = SourceView()
        self.error: str | None = None
        """Why the last look failed."""
        self._names = SegmentNames(folder, log_format, clock, reports=False)
        self._listed: list[str] = []
        self._sizes: dict[str, int] = {}
        self._signature: tuple[object, ...] = ()
        self._clock = clock
        self._looked_at = -math.inf
        self.changing = False
        """Whether the last look found anything changed, or failed."""

    def look_if_due(self, now: float, *, busy: bool) -> None:
        """Look, unless that was done a moment ago. ``busy``: a replica is being synced, or has something left."""
        interval = LOOK_SECONDS if busy or self.changing else IDLE_LOOK_SECONDS
        if now >= self._looked_at + interval - LOOK_SECONDS / 2:
            self._looked_at = now
            self.changing = self.look()

    def look(self) -> bool:
        """Ask the file system: the folder, and the log segments that may have grown. Whether anything changed, or may
        have: it is soon looked again then, and no error is told for longer than it is there."""
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
        self.view = SourceView(orders, sizes, self.view.version + 1, self._clock.monotonic())
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
    """The lag of the last hour: a sample each SAMPLE_SECONDS, or whenever the log was looked at."""

    def __init__(self) -> None:
        self._times = array("d")
        self._seconds = array("f")
        self._bytes = array("q")
        self._last = -math.inf
        self._next = 0
        """Where the next sample goes, once there are SAMPLES."""
        self._lock = threading.Lock()

    def add_if_due(self, now: float, lag: Lag) -> None:
        """Take a sample, unless there was one a moment ago."""
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
        """(when, in monotonic seconds; seconds of lag; bytes of lag), the oldest first."""
        with self._lock:
            samples = list(zip(self._times, self._seconds, self._bytes, strict=True))
            ordered = samples if len(samples) < SAMPLES else samples[self._next :] + samples[: self._next]
            return [sample for sample in ordered if sample[0] > self._last - HISTORY_SECONDS]


class _Mark(NamedTuple):
    """Where a log ended, and the first and the last moment that this, or an end before it, was seen."""

    end: tuple[Any, ...]
    first: float
    last: float


class LagMeter:
    """The lag of one replica. From any thread."""

    def __init__(self, source: SourceEnd, place: Callable[[], Place | None]) -> None:
        """``place``: where the log is read on, as far as it is acknowledged; None before the first sync."""
        self.source = source
        self.history = LagHistory()
        self._place = place
        self._marks: deque[_Mark] = deque()
        self._spacing = 0.0
        """Seconds that one mark may stand for."""
        self._version = 0
        self.due = -math.inf
        """When it is to be measured next, monotonic, unless it is busy: of a thousand idle logs, nearly all are passed
        over nearly always."""
        self._lock = threading.Lock()

    def measure_if_due(self, now: float, caught_up: float, *, busy: bool) -> None:
        """Look at the source and take a sample, unless that was done a moment ago."""
        if now < self.due and not busy:
            return
        self.source.look_if_due(now, busy=busy)
        lag = self.read(now, caught_up)
        self.history.add_if_due(now, lag)
        idle = not (busy or lag.bytes or self.source.changing)
        self.due = now + (IDLE_LOOK_SECONDS if idle else LOOK_SECONDS) - LOOK_SECONDS / 2

    def read(self, now: float, caught_up: float) -> Lag:
        """The lag as far as the source was looked at. ``caught_up``: when a look began that found nothing to ship:
        what was seen until then is acknowledged, or is no whole commit yet."""
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
            return Lag(view.bytes_behind(place), max(0.0, now - self._marks[0].first))

    def _mark(self, end: tuple[Any, ...], seen: float) -> None:
        """Remember an end of the log; where there are too many, neighbours become one, with the age of the older."""
        marks = self._marks
        if len(marks) >= MAX_MARKS:
            self._spacing = max(2 * self._spacing, 2 * (seen - marks[0].first) / MAX_MARKS)
            whole, self._marks = marks, deque()
            for each in whole:
                self._add(each)
        self._add(_Mark(end, seen, seen))

    def _add(self, mark: _Mark) -> None:
        last = self._marks[-1] if self._marks else None
        if last is not None and mark.last - last.first < self._spacing:
            self._marks[-1] = _Mark(mark.end, last.first, mark.last)
        else:
            self._marks.append(mark)

    def _find_place(self) -> tuple[Any, ...]:
        place = self._place()
        return () if place is None else find_place(place, self.source.format)


def find_place(place: Place, log_format: LogFormat) -> tuple[Any, ...]:
    """A place as ``SourceView.end`` spells it."""
    name, offset = (place.file, float(place.offset)) if place.file else (place.behind, math.inf)
    order = log_format.segment_order(name) if name else None
    return () if order is None else (order, offset)
