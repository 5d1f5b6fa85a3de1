"""Progress: how far a consumer has read, and the commits that move its durable position.

Specified in litelog/consumers/README.md#the-position.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from litelog.consumers.rewind_check import make_evidence

if TYPE_CHECKING:
    from litelog.consumers.consumed_log import ConsumedLog
    from litelog.consumers.positions import KeptPosition
    from litelog.formats.columns import Columns
    from litelog.objects.consumer_position import ConsumerPosition, Evidence
    from litelog.system.clock import Clock

MOST_MARKS = 1024
"""How many batches are remembered by their ends, for commits that lie before the newest batch."""


class Progress:
    """One thread reads, and any thread commits."""

    def __init__(self, log: ConsumedLog, kept: KeptPosition, clock: Clock) -> None:
        self._log = log
        self._position = kept
        self._clock = clock
        self._lock = threading.Lock()
        self._marks: deque[Evidence] = deque(maxlen=MOST_MARKS)
        self._batch: Columns | None = None
        self._kept: Evidence | None = None
        self._floor = 0
        self.held: ConsumerPosition | None = None
        """The durable position, as this process knows it."""
        self.returned: int | None = None
        """The sequence after the last record that was returned; None: before the first record of the log."""

    def load(self) -> None:
        """Begin at the durable position. Raises ConsumerStateError."""
        self.held = self._position.read()
        self.begin(None if self.held is None else self.held.next)
        self._kept = None if self.held is None else self.held.evidence

    def create(self, following: int | None) -> None:
        """Make the durable position of a new consumer. Raises ConsumerMovedError and ConsumerStateError."""
        with self._lock:
            self.held = self._position.move(self.held, following, None, self._clock.now())
        self.begin(following)

    def begin(self, following: int | None) -> None:
        """Continue at another place. The durable position stays until the next commit."""
        with self._lock:
            self._marks.clear()
            self._batch = self._kept = None
            self.returned = following
            self._floor = following or 0

    def newest_evidence(self) -> Evidence | None:
        """The evidence of what was returned last, or else of what was processed last; None if nothing is known of it:
        for example after a person has moved the consumer."""
        with self._lock:
            return None if self.returned is None else self._find_evidence(self.returned)

    def note_batch(self, columns: Columns) -> None:
        """Record that these records are returned next, one by one or at once.

        The first records of all give the consumer a durable position: truncation could otherwise remove unprocessed
        records without notice. Raises ConsumerMovedError and ConsumerStateError.
        """
        with self._lock:
            if self._batch is not None:
                mark = self._evidence(self._batch, self._log.sequence_after(self._batch))
                self._marks.extend([mark] if mark is not None else ())
            self._batch = columns
            if self.returned is None and (self.held is None or self.held.next is None):
                self.held = self._position.move(self.held, int(columns.sequences[0]), None, self._clock.now())

    def commit(self, following: int | None) -> None:
        """Move the durable position to the sequence ``following``; None: after all that was returned. A place before
        the last commit changes nothing.

        Raises:
            ValueError: Records before ``following`` have not been returned.
            ConsumerMovedError, ConsumerStateError: As ``KeptPosition.move``.
        """
        with self._lock:
            target = self.returned if following is None else following
            if target is not None and (self.returned is None or target > self.returned):
                raise ValueError(
                    f"records before {target} have not been read yet: the next one is {self.returned or 0}"
                )
            if target is not None and target < self._floor:
                return
            if target == (None if self.held is None else self.held.next):
                return
            evidence = None if target is None else self._find_evidence(target)
            self.held = self._position.move(self.held, target, evidence, self._clock.now())
            self._floor, self._kept = target or 0, evidence

    def _find_evidence(self, target: int) -> Evidence | None:
        """The evidence of the newest known record before ``target``."""
        if self._batch is not None and (found := self._evidence(self._batch, target)) is not None:
            return found
        known = [*([self._kept] if self._kept is not None else ()), *self._marks]
        return next((each for each in reversed(known) if each.end <= target), None)

    def _evidence(self, columns: Columns, following: int) -> Evidence | None:
        return make_evidence(columns, following, divisible=self._log.is_divisible)
