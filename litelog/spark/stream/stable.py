"""Finds how far a stream of committed records may go: up to the first transaction that is still open.

Only later records decide about those of an open transaction. So the driver reads the records of each step once, and
notes where transactions begin and end. A batch ends at its end without open transactions, or at the first record of the
first open one. Between two such offsets a batch has the same rows at any time, since its tasks read on until all of
them are decided.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ReplicaGapError
from litelog.reading.follower import Look
from litelog.spark.scan.decoding import open_reading, read_columns
from litelog.spark.scan.packing import pack
from litelog.spark.stream.batching import choose
from litelog.spark.stream.steps import LogOffset, MoveStep, behind, step_items

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from litelog.formats.columns import Columns
    from litelog.formats.committed_reading import CommittedReading
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation, Position
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.inputs import ScanInput
    from litelog.spark.stream.batching import Budget
    from litelog.spark.stream.steps import StreamStep
    from litelog.spark.stream.tail import StreamTail


@dataclass(frozen=True, slots=True)
class _Begun:
    """A step that holds records, and its first one."""

    start: LogOffset
    first: int


class StableEnd:
    """The end of the decided records of one log, as its steps are read in order. For one thread."""

    def __init__(self, place: ScanInput, options: ReadOptions, at: LogOffset) -> None:
        """Begin at ``at``, an offset of the stream: no record before it is undecided."""
        self._place, self._options = place, options
        self._last: tuple[LogOffset, LogOffset] | None = None
        self._restart(at)

    def _restart(self, at: LogOffset) -> None:
        self._begin = self._head = at
        self._reading: CommittedReading | None = None
        self._begun: list[_Begun] = []
        """The steps from the one with the first open record on."""

    def is_at(self, at: LogOffset) -> bool:
        """Whether it knows all steps from ``at`` to where it stands."""
        return at in (self._begin, self.end)

    def take(self, tail: StreamTail, at: LogOffset, budget: Budget, target: Position | None) -> LogOffset:
        """Take steps from ``at`` on until some of their records are decided; return the offset after these.

        Takes what ``budget`` allows, and as much again as long as nothing is decided, and looks for more objects.
        Returns ``at`` if those that decide are not there yet, or lie after ``target``.
        """
        reached = at
        while True:
            after = tail.take(reached, choose(tail.steps, replace(budget), target, tail))
            if after == reached:
                if target is None and tail.advance():
                    continue
                return at
            reached = after
            for step in tail.taken:
                self._follow(step, at, tail)
            if self.end != at and self._head.position <= reached.position:
                self._last = at, self.end
                return self.end

    def took(self, at: LogOffset, stop: LogOffset) -> bool:
        """Whether the last ``take`` began at ``at`` and returned ``stop``."""
        return self._last == (at, stop)

    def walk(self, tail: StreamTail, stop: LogOffset) -> list[StreamStep]:
        """The steps from the beginning on that decide about all records before ``stop``, looked up again.

        Raises ReplicaGapError if these objects are gone.
        """
        found: list[StreamStep] = []
        _ = tail.claim
        while not self._has_decided(stop):
            if len(found) == len(tail.steps) and not tail.advance(Look.EPOCH):
                raise ReplicaGapError(str(self._head.position), str(stop.position))
            for step in islice(tail.steps, len(found), None):
                found.append(step)
                self._follow(step, self._begin, tail)
                if self._has_decided(stop):
                    break
        return found

    def _has_decided(self, stop: LogOffset) -> bool:
        end = self.end
        return self._head.position >= stop.position and (end.sequence or 0) >= (stop.sequence or 0)

    @property
    def end(self) -> LogOffset:
        """The offset after the last record that is decided, together with all before it."""
        first = None if self._reading is None else self._reading.first_open
        if first is None:
            self._begun.clear()
            return self._head
        while len(self._begun) > 1 and self._begun[1].first <= first:
            del self._begun[0]
        return LogOffset(self._begun[0].start.position, first)

    def _follow(self, step: StreamStep, at: LogOffset, tail: StreamTail) -> None:
        """Read a step, unless it is known. Begin again at ``at`` if only a part of it is known."""
        if step.stop <= self._head.position:
            return
        if step.start != self._head.position:
            self._restart(at)
            for earlier in tail.taken:
                if earlier is step:
                    break
                self._read(earlier, tail.claims)
        self._read(step, tail.claims)

    def _read(self, step: StreamStep, claims: Mapping[Generation, Claim]) -> None:
        start = self._head
        if not isinstance(step, MoveStep) and step.raw:
            for columns in self._columns(start, step, claims):
                first = int(columns.sequences[0])
                if not self._begun or self._begun[-1].start != start:
                    self._begun.append(_Begun(start, first))
                assert self._reading is not None
                self._reading.follow(columns)
                last = int(columns.sequences[-1])
                self._head = replace(self._head, sequence=max(last + 1, self._head.sequence or 0))
        self._head = behind(self._head, step)

    def _columns(self, start: LogOffset, step: StreamStep, claims: Mapping[Generation, Claim]) -> Iterator[Columns]:
        items = step_items(self._place, self._options, claims, start, [step])
        for partition in pack(items, self._options.max_partition_bytes, 1):
            for part in partition.parts:
                if self._reading is None:
                    self._reading = open_reading(part.log)
                yield from (columns for columns in read_columns(part, self._reading) if len(columns))
