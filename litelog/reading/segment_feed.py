"""SegmentFeed: tells any number of iterators of the WAL segments that one producer acknowledges."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from litelog.errors import LitelogError
from litelog.reading.segment_iterator import PAGE, SegmentIterator

if TYPE_CHECKING:
    from litelog.objects.position import Generation, Position
    from litelog.reading.segment_iterator import ListSegments, Signal
    from litelog.stores.replica_client import WalSegmentInfo


class SegmentFeed:
    """What a producer of one generation holds: tells every iterator, and depends on none.

    ``publish`` each WAL segment after it was acknowledged and before the next one is put.
    """

    def __init__(self, generation: Generation, first: Position | None = None) -> None:
        """``first``: where the generation's first WAL segment lies, which a subscription without a start begins with.
        Without it: with the first one that is listed."""
        self.generation = generation
        self._first = first
        self._lock = threading.Lock()  # taken before an iterator's
        self._iterators: list[SegmentIterator] = []
        self._error: BaseException | None = None
        self._closed = False

    def subscribe(
        self,
        list_segments: ListSegments,
        start: Position | None = None,
        notified: Signal | None = None,
        page: int = PAGE,
    ) -> SegmentIterator:
        """A new iterator that hears of everything from now on, opened: subscribe first, read the base position then.

        It is over once it is closed. After ``fail`` or ``close`` it gives what is listed, then that end. PrunedError
        where the start was removed, as a snapshot covers it: read the base, and subscribe at its start.
        """
        iterator = SegmentIterator(self.generation, list_segments, start or self._first, notified, page)
        with self._lock:
            if self._error is not None:
                iterator.fail(self._error)
            elif self._closed:
                iterator.finish()
            else:
                self._iterators = [known for known in self._iterators if not known.is_closed]
                self._iterators.append(iterator)
        try:
            return iterator.open()
        except BaseException:
            iterator.close()
            raise

    def publish(self, info: WalSegmentInfo) -> None:
        """Append ``info`` to every iterator. One that refuses it gets its error and hears no more."""
        with self._lock:
            self._iterators = [iterator for iterator in self._iterators if _append(iterator, info)]

    def fail(self, error: BaseException) -> None:
        """Give ``error`` to every iterator, and to those to come."""
        with self._lock:
            if self._error is None and not self._closed:
                self._error = error
            iterators, self._iterators = self._iterators, []
        for iterator in iterators:
            iterator.fail(error)

    def close(self) -> None:
        """Nothing more will be published: iterators give what is there, and end. Idempotent."""
        with self._lock:
            self._closed = True
            iterators, self._iterators = self._iterators, []
        for iterator in iterators:
            iterator.finish()


def _append(iterator: SegmentIterator, info: WalSegmentInfo) -> bool:
    """Whether the iterator took it and wants more."""
    try:
        iterator.append(info)
    except LitelogError as error:
        iterator.fail(error)
        return False
    return True
