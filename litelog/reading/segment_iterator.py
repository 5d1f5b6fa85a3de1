"""SegmentIterator: the WAL segments of one generation as they appear.

A producer appends each WAL segment after it was acknowledged and before it puts the next one. So a listing that begins
after an append shows what was appended, and what was put since is appended while the listing runs: the two together
miss nothing, even where a folder is read while names come into it. A listing is needed at the opening, where the reader
is behind and a new index begins, and after a rewind further back than what is remembered; never to keep up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from litelog.errors import ClosedError, GenerationMismatchError, PrunedError, SegmentOrderError
from litelog.objects.position import Generation, Position
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from types import TracebackType

PAGE = 1000
"""How many WAL segments one listing takes, and an iterator holds ready: what an S3 listing gives for one request."""

MAX_REMEMBERED = 64
"""How many given WAL segments a rewind finds without a listing: more than one upload takes together."""

LISTINGS_BEFORE_PRUNED = 2
"""What is missing is listed again before it is called gone: a folder may be read while names come into it."""

ListSegments = Callable[[Generation, Position | None], Iterable[WalSegmentInfo]]
"""``ReplicaClient.wal_segments``: a generation's WAL segments in order, from a position on, page by page."""


class Signal(Protocol):
    """What an iterator sets when there is news: a ``threading.Event``, one for many iterators where one waits for many.

    Clear it, take until there is nothing, then wait: what comes in between sets it again.
    """

    def set(self) -> None:
        """Neither blocks nor fails."""


class _Start(Enum):
    BEGINNING = "the generation's first"
    AT = "the one at a position, which was there once"
    AFTER = "those behind a position, which was there once"
    SLOT = "the one at a position, or the next index where that slot was never used"


@dataclass(frozen=True, slots=True)
class _Unlisted:
    """From where on WAL segments are known of, or supposed, that only a listing can name."""

    start: _Start
    position: Position

    def follows(self, found: Position) -> bool:
        """Whether ``found`` may come first."""
        if self.start is _Start.BEGINNING:
            return found.offset == 0
        if self.start is _Start.AFTER:
            return _follows(self.position, found)
        next_index = self.start is _Start.SLOT and self.position.offset > 0
        return found == self.position or (next_index and _follows(self.position, found) and found.offset == 0)

    @property
    def expected(self) -> Position:
        """Where the first one is, as far as it can be told."""
        if self.start is _Start.AFTER:
            return Position(self.position.generation, self.position.index + 1, 0)
        return self.position

    def is_below(self, last: Position | None) -> bool:
        """Whether something is known to be there."""
        if last is None:
            return False
        return self.position < last if self.start is _Start.AFTER else self.position <= last


def _follows(before: Position, after: Position) -> bool:
    """Whether no index lies between, and ``after`` begins its index or lies further on in the same."""
    if after.index == before.index:
        return after.offset > before.offset
    return after.index == before.index + 1 and after.offset == 0


class SegmentIterator:
    """The WAL segments of ``generation``, in order, none twice, none left out. Any thread may call any method.

    Order of opening: make the iterator, let the producer append to it, ``open`` it (``SegmentFeed.subscribe`` does all
    three), and only then read the base position and ``skip_to`` it. What was acknowledged before the producer knew of
    the iterator is in the listing of ``open``; what comes later is appended. Nothing lies between.

    ``start`` is a slot: where a WAL segment starts, or where the next one will. Without it: the generation's first.
    Memory: ``page`` infos ready, as many more while a listing runs, MAX_REMEMBERED given ones, a range of indexes.
    """

    def __init__(
        self,
        generation: Generation,
        list_segments: ListSegments,
        start: Position | None = None,
        notified: Signal | None = None,
        page: int = PAGE,
    ) -> None:
        if start is not None and start.generation != generation:
            raise GenerationMismatchError(generation, start.generation)
        self.generation = generation
        self.notified: Signal = threading.Event() if notified is None else notified
        self._list_segments = list_segments
        self._page = page
        self._reading = threading.Lock()  # one reader at a time; taken before _lock, held while a listing runs
        self._lock = threading.Lock()  # all below; never held while anything else is called
        self._changed = threading.Condition(self._lock)
        self._ready: deque[WalSegmentInfo] = deque()
        self._given: deque[WalSegmentInfo] = deque(maxlen=MAX_REMEMBERED)
        self._arrived: list[WalSegmentInfo] | None = None  # what was appended since the listing that runs began
        self._floor = start
        self._unlisted: _Unlisted | None = _Unlisted(
            _Start.BEGINNING if start is None else _Start.SLOT, start or Position(generation, 0, 0)
        )
        self._last: Position | None = None  # the newest one that was appended or listed
        self._is_end_known = False  # whether nothing was there behind _last when it was learned
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None  # the error's own: else every raise would lengthen it
        self._finished = self._closed = False

    # --- the producer's side

    def append(self, info: WalSegmentInfo) -> None:
        """``info`` is durable and acknowledged. Never blocks. The one that is known as the last already: no-op.

        GenerationMismatchError; SegmentOrderError for one before the last or beyond the next index, after which nothing
        has changed; ClosedError after ``fail``, ``finish`` or ``close``. On a backlog longer than a page the last is
        known from the first append on.
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
        """Give ``error`` to the consumer, behind all that was appended before, at every call. The first one wins."""
        with self._lock:
            if self._error is None and not self._finished:
                self._error, self._trace = error, error.__traceback__
            self._changed.notify_all()
        self.notified.set()

    def finish(self) -> None:
        """No more will be appended: the consumer takes what is there, then gets ClosedError (iteration just ends)."""
        with self._lock:
            self._finished = True
            self._changed.notify_all()
        self.notified.set()

    # --- the consumer's side

    def open(self) -> SegmentIterator:
        """List what is there (one page), and notify where there is something. PrunedError where the start is not there
        and something behind it is; other errors are those of the listing."""
        with self._reading:
            self._fill()
            with self._lock:
                backlog = bool(self._ready or self._unlisted)
        if backlog:
            self.notified.set()
        return self

    def peek(self) -> WalSegmentInfo | None:
        """The next one, which stays the next one; None: nothing new. Errors as ``next``."""
        with self._reading:
            return self._take(advance=False)

    def next(self) -> WalSegmentInfo | None:
        """The next one; None: nothing new. Does not wait, but for a listing where one is due.

        PrunedError: retention removed what comes next (``skip_to`` leads past it). The error of ``fail``, or
        ClosedError after ``finish``, once all before it was given. ClosedError at once after ``close``. Errors of the
        listing are passed on; nothing is lost by them.
        """
        with self._reading:
            return self._take(advance=True)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until ``next`` has something to give or to raise: True. False: ``timeout`` seconds went by."""
        with self._lock:
            return self._changed.wait_for(self._has_news, timeout)

    def __iter__(self) -> SegmentIterator:
        return self

    def __next__(self) -> WalSegmentInfo:
        """The next one, waited for. Ends after ``finish`` and ``close``; raises as ``next`` otherwise."""
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
        """Give the WAL segment at ``position``, and all behind it, again: its upload failed.

        ValueError where ``position`` lies behind the next one: that would leave some out.
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
        """Give nothing below ``position``, a slot: what is there is part of the base. One that lies back: no-op."""
        self._check_generation(position)
        with self._reading, self._lock:
            self._floor = max(self._floor or position, position)
            if (here := self._here()) is not None and here < position:
                self._given.clear()  # a rewind to before the skipped ones has to find them again
            while self._ready and self._ready[0].position < position:
                self._ready.popleft()
            if self._ready or self._unlisted is None:
                return
            if self._is_end_known and (self._last is None or self._last < position):
                self._unlisted = None
            elif self._unlisted.position < position:
                self._unlisted = _Unlisted(_Start.SLOT, position)

    def close(self) -> None:
        """End at once, and wake whoever waits. Idempotent."""
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
        """The indexes that hold something which is known of only by its index."""
        with self._lock:
            if self._unlisted is None or self._last is None:
                return range(0)
            return range(self._unlisted.position.index, self._last.index + 1)

    # --- under _lock

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
        """Hold ``info``, or remember from where on a listing will find it."""
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
        """The next one, or where it is looked for; the last one where there is none."""
        if self._ready:
            return self._ready[0].position
        return self._unlisted.position if self._unlisted else self._last

    # --- under _reading

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
        """List until something is ready, or nothing is unlisted."""
        missed = 0
        while (unlisted := self._begin_listing()) is not None:
            try:
                since = None if unlisted.start is _Start.BEGINNING else unlisted.position
                page = list(islice(self._list_segments(self.generation, since), self._page + 2))
            except BaseException:
                with self._lock:
                    self._arrived = None  # what arrived stays unlisted
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
        """Take over what was listed and what arrived meanwhile. Returns what should be there and is not."""
        with self._lock:
            arrived, self._arrived = self._arrived or [], None
            # What a listing shows beyond an append that it ran beside may lack some in between: those arrive.
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
    """Those of ``infos``, from the first on, between which no index is missing."""
    run: list[WalSegmentInfo] = []
    for info in infos:
        if not (_follows(run[-1].position, info.position) if run else unlisted.follows(info.position)):
            break
        run.append(info)
    return run
