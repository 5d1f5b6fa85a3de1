"""SegmentFeed: passes the WAL segments that one producer acknowledges to any number of iterators."""

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
    """A producer of one generation publishes to a feed. The feed notifies every iterator, and waits for none.

    The producer calls ``publish`` for each WAL segment after it was acknowledged, and before it puts the next one.
    """

    def __init__(self, generation: Generation, first: Position | None = None) -> None:
        """``first``: the position of the generation's first WAL segment, where a subscription without a start begins.
        If None, such a subscription begins with the first listed WAL segment."""
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
        """Return a new, open iterator over the WAL segments from ``start`` on. Subscribe first, then read the base.

        After ``fail`` or ``close``, a new iterator returns the listed WAL segments, and then raises the error, or ends.

        Args:
            list_segments: Lists WAL segments, as ``ReplicaClient.wal_segments`` does.
            start: The slot to begin at; None for the generation's first one.
            notified: Is set when there is news; by default a new ``threading.Event``.
            page: How many infos one listing takes, and the iterator holds ready.

        Raises:
            PrunedError: The start was removed because a snapshot covers it: read the base, and subscribe at its start.
            StoreError: The listing failed.
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
        """Append ``info`` to every iterator. An iterator that refuses it fails with that error, and is dropped."""
        with self._lock:
            self._iterators = [iterator for iterator in self._iterators if _append(iterator, info)]

    def fail(self, error: BaseException) -> None:
        """Fail every iterator with ``error``, and every later one."""
        with self._lock:
            if self._error is None and not self._closed:
                self._error = error
            iterators, self._iterators = self._iterators, []
        for iterator in iterators:
            iterator.fail(error)

    def close(self) -> None:
        """Publish nothing more: iterators return what they have, and end. Idempotent."""
        with self._lock:
            self._closed = True
            iterators, self._iterators = self._iterators, []
        for iterator in iterators:
            iterator.finish()


def _append(iterator: SegmentIterator, info: WalSegmentInfo) -> bool:
    """Append ``info``. Return whether the iterator accepted it."""
    try:
        iterator.append(info)
    except LitelogError as error:
        iterator.fail(error)
        return False
    return True
