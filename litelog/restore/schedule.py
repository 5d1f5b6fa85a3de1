"""The order in which a restore's work is begun: sealed segments and WAL segments, index by index, side by side."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from litelog.reading.prefetch import ahead
from litelog.restore.wal_restore import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from litelog.reading.wal_chain import Link
    from litelog.restore.plan import RestorePlan
    from litelog.restore.sealed_restore import Broken, Opened, SealedReader
    from litelog.restore.wal_restore import Piece, PieceWriter

QUEUED_PER_WORKER = 4
"""Pieces handed out ahead of the oldest unfinished one. They cost nothing until a worker takes them, but bound how
many log segments are open at a time."""

_UNBOUNDED = 1 << 62

_Job = tuple[int, "Callable[[], Piece]"]


@dataclass(slots=True)
class Schedule:
    """Hands out a plan's work to threads, and gives what became of each piece in order."""

    plan: RestorePlan
    writer: PieceWriter
    reader: SealedReader
    pool: Executor
    parallelism: int
    first: Link | None
    """What the first WAL segment continues; None where none is read."""
    next: int | None = None
    """The sequence that must follow what is restored before, where that is known."""
    _last: Future[Step] | None = None

    @property
    def link(self) -> Link | None:
        """Where the chain stands at the end, once all is done."""
        return self.first if self._last is None else self._last.result().link

    def run(self) -> Iterator[Piece]:
        """All pieces, done, in order; raises the error of the first that has one."""
        return ahead(self.pool, self._jobs(), _UNBOUNDED, self.parallelism * QUEUED_PER_WORKER)

    def _jobs(self) -> Iterator[_Job]:
        wal = self._wal_jobs()
        indexes = deque(piece.position.index for piece in self.plan.pieces)
        for opened in ahead(self.pool, self._openings(), _UNBOUNDED, self.parallelism):
            while indexes and indexes[0] <= opened.piece.entry.index:
                indexes.popleft()
                yield next(wal)
            yield from self._sealed_jobs(opened)
        yield from wal

    def _wal_jobs(self) -> Iterator[_Job]:
        if self.first is None:
            return
        settled: Future[str] = Future()
        settled.set_result(self.first.digest)
        before: Future[Step] = Future()
        before.set_result(Step(self.first, None, settled))
        for number in range(len(self.plan.pieces)):
            self._last = Future()
            yield 0, partial(self.writer.write, number, before, self._last, Future())
            before = self._last

    def _openings(self) -> Iterator[tuple[int, Callable[[], Opened | Broken]]]:
        for before, piece in zip((None, *self.plan.sealed), self.plan.sealed, strict=False):
            next_before = None
            if piece.entry.index == self.plan.files[0].index:
                next_before = self.next
            elif before is not None and before.entry.index == piece.entry.index - 1:
                next_before = before.entry.next
            yield 0, partial(self.reader.open, piece, next_before)

    def _sealed_jobs(self, opened: Opened | Broken) -> Iterator[_Job]:
        for number in range(len(opened.groups)):
            yield 0, partial(self.reader.write, opened, number)
