"""SegmentIterator: the WAL segments of one generation as they appear.

A producer appends each WAL segment after it was acknowledged and before it puts the next one. So a listing that begins
after an append shows everything that was appended, and the iterator gets later WAL segments while the listing runs. The
two together miss nothing, even if a folder is read while names are added to it. The iterator lists when it is opened,
when a new index begins while the reader lags, and after a rewind to before the remembered ones. It does not list to
keep up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass
from litelog.errors import ClosedError, GenerationMismatchError, PrunedError, SegmentOrderError
from litelog.objects.position import Generation, Position
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from types import TracebackType

PAGE = 1000
"""How many WAL segments one listing takes, and an iterator holds: as many as S3 lists per request."""

MAX_REMEMBERED = 64
"""How many returned WAL segments the iterator remembers, so that a rewind to one needs no listing: more than one upload
takes together."""

LISTINGS_BEFORE_PRUNED = 2
"""How many listings have to lack a WAL segment before it counts as gone: a folder may be read while names are added."""

ListSegments = Callable[[Generation, Position | None], Iterable[WalSegmentInfo]]
"""``ReplicaClient.wal_segments``: a generation's WAL segments in order, from a position on, page by page."""


class Signal(Protocol):
    """An iterator sets its signal when there is news. Many iterators may share one, for example a ``threading.Event``.

    A reader clears it, takes WAL segments until nothing is left, then waits: news in between sets it again.
    """

    def set(self) -> None:
        """Set it. Must neither block nor fail."""


class _Start(Enum):
    """Which WAL segment is the first unlisted one."""

    BEGINNING = "the generation's first"
    AT = "the one at a position, which existed once"
    AFTER = "the one after a position, at which one existed once"
    SLOT = "the one at a position or, if that slot was never used, the first of the next index"


@dataclass(frozen=True, slots=True)
class _Unlisted:
    """The lower end of WAL segments that exist or may exist, and that only a listing can name."""

    start: _Start
    position: Position

    def follows(self, found: Position) -> bool:
        """Whether ``found`` may be the first of them."""
        if self.start is _Start.BEGINNING:
            return found.offset == 0
        if self.start is _Start.AFTER:
            return _follows(self.position, found)
        next_index = self.start is _Start.SLOT and self.position.offset > 0
        return found == self.position or (next_index and _follows(self.position, found) and found.offset == 0)

    @property
    def expected(self) -> Position:
        """The position of the first WAL segment, if known."""
        if self.start is _Start.AFTER:
            return Position(self.position.generation, self.position.index + 1, 0)
        return self.position

    def is_below(self, last: Position | None) -> bool:
        """Whether a WAL segment is known to exist there."""
        if last is None:
            return False
        return self.position < last if self.start is _Start.AFTER else self.position <= last


def _follows(before: Position, after: Position) -> bool:
    """Whether no index lies between, and ``after`` begins its index or lies further on in the same."""
    if after.index == before.index:
        return after.offset > before.offset
    return after.index == before.index + 1 and after.offset == 0


class SegmentIterator:
    """Iterates over the WAL segments of ``generation``: in order, none twice, none left out. Thread-safe.

    This is public API, for programs that run a ``Replicator`` or ``Replica`` themselves. litelog does not use it.

    Order of opening: make the iterator, let the producer append to it, ``open`` it (``SegmentFeed.subscribe`` does all
    three), and only then read the base position and ``skip_to`` it. The listing of ``open`` shows the WAL segments that
    were acknowledged before the producer knew the iterator; all later ones are appended. None falls between the two.

    Memory: ``page`` infos, as many more while a listing runs, MAX_REMEMBERED returned ones, and a range of indexes.

    The producer's thread calls ``append``, ``fail`` and ``finish``; the consumer's threads call the other methods. The
    private methods from ``_check_generation`` to ``_here`` need ``_lock``, and those after them ``_reading``.
    """

    def __init__(
        self,
        generation: Generation,
        list_segments: ListSegments,
        start: Position | None = None,
        notified: Signal | None = None,
        page: int = PAGE,
    ) -> None:
        """Make an iterator. It lists nothing before ``open``.

        Args:
            generation: The generation to iterate over.
            list_segments: Lists WAL segments, as ``ReplicaClient.wal_segments`` does.
            start: The slot to begin at: where a WAL segment starts, or where the next one will. None for the
                generation's first one.
            notified: Is set when there is news; by default a new ``threading.Event``.
            page: How many infos one listing takes, and the iterator holds ready.

        Raises:
            GenerationMismatchError: ``start`` is of another generation.
        """
        if start is not None and start.generation != generation:
            raise GenerationMismatchError(generation, start.generation)
        self.generation = generation
        self.notified: Signal = threading.Event() if notified is None else notified
        self._list_segments = list_segments
        self._page = page
        self._reading = threading.Lock()  # one reader at a time; taken before _lock, held while a listing runs
        self._lock = threading.Lock()  # guards all fields below; never held during a call out
        self._changed = threading.Condition(self._lock)
        self._ready: deque[WalSegmentInfo] = deque()
        self._given: deque[WalSegmentInfo] = deque(maxlen=MAX_REMEMBERED)
        self._arrived: list[WalSegmentInfo] | None = None  # appended since the current listing began
        self._floor = start
        self._unlisted: _Unlisted | None = _Unlisted(
            _Start.BEGINNING if start is None else _Start.SLOT, start or Position(generation, 0, 0)
        )
        self._last: Position | None = None  # of the newest WAL segment that was appended or listed
        self._is_end_known = False  # whether nothing followed _last when it was listed
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None  # the error's original traceback: each raise would lengthen it
        self._finished = self._closed = False

    def append(self, info: WalSegmentInfo) -> None:
        """Add ``info``, which is durable and acknowledged. Never blocks. Does nothing for the last one again.

        If ``open`` found a backlog longer than a page, the last one is known only after the first append.

        Raises:
            GenerationMismatchError: ``info`` is of another generation.
            SegmentOrderError: ``info`` lies before the last one or beyond the next index. Nothing has changed.
            ClosedError: ``fail``, ``finish`` or ``close`` was called.
        """
        position = info.position
        with self._lock:
            if self._closed or self._finished or self._error is not None:
                raise ClosedError(f"iterator over {self.generation} takes no more") from self._error
            self._check_order(position)
            if position == self._last:
                return
            self._last, self._is_end_known = position, True
            if self._floor is not None and position < self._floor:
                return
            self._keep(info)
            self._changed.notify_all()
        self.notified.set()

    def fail(self, error: BaseException) -> None:
        """Make each later call of the consumer raise ``error``, after all WAL segments before. The first error wins."""
        with self._lock:
            if self._error is None and not self._finished:
                self._error, self._trace = error, error.__traceback__
            self._changed.notify_all()
        self.notified.set()

    def finish(self) -> None:
        """Append nothing more: the consumer takes what is left, then gets ClosedError (a ``for`` loop just ends)."""
        with self._lock:
            self._finished = True
            self._changed.notify_all()
        self.notified.set()

    def open(self) -> SegmentIterator:
        """List what exists (one page), and notify if there is anything.

        Raises:
            PrunedError: The start is missing, and later WAL segments exist.
            StoreError: The listing failed.
        """
        with self._reading:
            self._fill()
            with self._lock:
                backlog = bool(self._ready or self._unlisted)
        if backlog:
            self.notified.set()
        return self

    def peek(self) -> WalSegmentInfo | None:
        """Return the next one without taking it; None if there is nothing new. Raises as ``next``."""
        with self._reading:
            return self._take(advance=False)

    def next(self) -> WalSegmentInfo | None:
        """Take the next one. Does not wait, except for a listing if one is due.

        Returns:
            The WAL segment; None if there is nothing new.

        Raises:
            PrunedError: Retention removed the next one (``skip_to`` skips it).
            ClosedError: After ``finish``, once all were returned; at once after ``close``.
            Exception: The error that ``fail`` got, once all before it were returned; or the error of a listing, which
                loses nothing.
        """
        with self._reading:
            return self._take(advance=True)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until ``next`` has a result or an error, and return True; False after ``timeout`` seconds."""
        with self._lock:
            return self._changed.wait_for(self._has_news, timeout)

    def __iter__(self) -> SegmentIterator:
        return self

    def __next__(self) -> WalSegmentInfo:
        """Wait for the next one. Ends after ``finish`` and ``close``; otherwise raises as ``next``."""
        while True:
            self.wait()
            try:
                info = self.next()
            except ClosedError:
                if self._closed or (self._finished and self._error is None):
                    raise StopIteration from None
                raise
            if info is not None:
                return info

    def rewind(self, position: Position) -> None:
        """Return the WAL segment at ``position``, and all after it, again, for instance because its upload failed.

        Raises ValueError if ``position`` lies after the next one: that would leave some out.
        """
        self._check_generation(position)
        with self._reading, self._lock:
            here = self._here()
            if here is None or position > here:
                raise ValueError(f"cannot rewind to {position} from {here}")
            while self._given and self._given[-1].position >= position:
                self._ready.appendleft(self._given.pop())
            if not self._ready or self._ready[0].position != position:
                self._ready.clear()
                self._given.clear()
                self._unlisted = _Unlisted(_Start.AT, position)
            self._floor = min(self._floor or position, position)
            self._changed.notify_all()
        self.notified.set()

    def skip_to(self, position: Position) -> None:
        """Skip everything below the slot ``position``, for instance because it is part of the base. Never goes back."""
        self._check_generation(position)
        with self._reading, self._lock:
            self._floor = max(self._floor or position, position)
            if (here := self._here()) is not None and here < position:
                self._given.clear()  # so that a rewind to before the skipped ones lists them again
            while self._ready and self._ready[0].position < position:
                self._ready.popleft()
            if self._ready or self._unlisted is None:
                return
            if self._is_end_known and (self._last is None or self._last < position):
                self._unlisted = None
            elif self._unlisted.position < position:
                self._unlisted = _Unlisted(_Start.SLOT, position)

    def close(self) -> None:
        """End at once, and wake all waiting threads. Idempotent."""
        with self._lock:
            self._closed = True
            self._ready.clear()
            self._given.clear()
            self._changed.notify_all()
        self.notified.set()

    def __enter__(self) -> SegmentIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    @property
    def pending_indexes(self) -> range:
        """The indexes of which WAL segments are still to be listed."""
        with self._lock:
            if self._unlisted is None or self._last is None:
                return range(0)
            return range(self._unlisted.position.index, self._last.index + 1)

    def _check_generation(self, position: Position) -> None:
        if position.generation != self.generation:
            raise GenerationMismatchError(self.generation, position.generation)

    def _check_order(self, position: Position) -> None:
        self._check_generation(position)
        last = self._last
        if last is None:
            first = self._floor or Position(self.generation, position.index, 0)
            slot = _Unlisted(_Start.SLOT, first)
            if self._is_end_known and position > first and not slot.follows(position):
                raise SegmentOrderError("skips the first one", str(first), str(position))
        elif position.index < last.index:
            raise SegmentOrderError("below the last index", str(last), str(position))
        elif position.index == last.index and position.offset < last.offset:
            raise SegmentOrderError("before the last offset", str(last), str(position))
        elif self._is_end_known and position != last and not _follows(last, position):
            expected = Position(self.generation, last.index + 1, 0)
            raise SegmentOrderError("skips the next index", str(expected), str(position))

    def _keep(self, info: WalSegmentInfo) -> None:
        """Hold ``info``, or remember from where a listing will find it."""
        if self._arrived is not None:
            if len(self._arrived) < self._page:
                self._arrived.append(info)
        elif self._unlisted is None:
            newest = self._ready[-1].position if self._ready else None
            if newest is None or (newest.index == info.position.index and len(self._ready) < self._page):
                self._ready.append(info)
            elif newest.index == info.position.index:
                self._unlisted = _Unlisted(_Start.AFTER, newest)
            else:
                self._unlisted = _Unlisted(_Start.AT, info.position)

    def _has_news(self) -> bool:
        return bool(self._ready or self._unlisted or self._error or self._finished or self._closed)

    def _here(self) -> Position | None:
        """The position of the next WAL segment, or the expected position; the position of the last one if none
        follows."""
        if self._ready:
            return self._ready[0].position
        return self._unlisted.position if self._unlisted else self._last

    def _take(self, *, advance: bool) -> WalSegmentInfo | None:
        self._fill()
        with self._lock:
            if self._closed:
                raise ClosedError(f"iterator over {self.generation} is closed")
            if self._ready:
                info = self._ready[0]
                if advance:
                    self._given.append(self._ready.popleft())
                return info
            if self._error is not None:
                raise self._error.with_traceback(self._trace)
            if self._finished:
                raise ClosedError(f"iterator over {self.generation} is finished")
            return None

    def _fill(self) -> None:
        """List until an info is ready, or all are listed."""
        missed = 0
        while (unlisted := self._begin_listing()) is not None:
            try:
                since = None if unlisted.start is _Start.BEGINNING else unlisted.position
                page = list(islice(self._list_segments(self.generation, since), self._page + 2))
            except BaseException:
                with self._lock:
                    self._arrived = None  # the arrivals stay unlisted
                raise
            missing = self._end_listing(unlisted, page)
            missed = 0 if missing is None else missed + 1
            if missed == LISTINGS_BEFORE_PRUNED:
                raise PrunedError(str(missing))

    def _begin_listing(self) -> _Unlisted | None:
        with self._lock:
            if self._ready or self._closed or self._unlisted is None:
                return None
            self._arrived = []
            return self._unlisted

    def _end_listing(self, unlisted: _Unlisted, page: list[WalSegmentInfo]) -> Position | None:
        """Take over the listed and the newly arrived infos. Return a position that must exist and was not listed, if
        any."""
        with self._lock:
            arrived, self._arrived = self._arrived or [], None
            # After the first arrival, a listing may have holes: the arrivals have those WAL segments.
            listed = [info for info in page[: self._page + 1] if not arrived or info.position < arrived[0].position]
            is_whole = len(page) <= self._page + 1 or len(listed) <= self._page
            if unlisted.start is _Start.AFTER:
                if not listed or listed[0].position != unlisted.position:
                    return unlisted.position
                listed = listed[1:]
            found = [*listed, *arrived] if is_whole else listed
            run = _contiguous(unlisted, found)
            if not run:
                if found or unlisted.is_below(self._last):
                    return unlisted.expected
                self._unlisted, self._is_end_known = None, True
                return None
            newest = run[-1].position
            is_whole = is_whole and len(run) == len(found)
            if self._last is None or newest > self._last:
                self._last, self._is_end_known = newest, is_whole
            self._ready.extend(run)
            self._unlisted = None if is_whole and newest == self._last else _Unlisted(_Start.AFTER, newest)
            return None


def _contiguous(unlisted: _Unlisted, infos: list[WalSegmentInfo]) -> list[WalSegmentInfo]:
    """The first of ``infos`` up to the first missing index."""
    run: list[WalSegmentInfo] = []
    for info in infos:
        if not (_follows(run[-1].position, info.position) if run else unlisted.follows(info.position)):
            break
        run.append(info)
    return run
