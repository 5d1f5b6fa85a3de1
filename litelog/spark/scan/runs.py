"""Runs of sealed segments, or of WAL segments, as columns: planning then makes no value for each object."""

from __future__ import annotations

from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.dataclass import dataclass
from litelog.objects.lazy_sequence import LazySequence
from litelog.objects.snapshot_entries import NONE
from litelog.spark.scan.partitions import COMPRESSION_RATIO, SealedPiece, WalPiece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from litelog.objects.chain import ChainState
    from litelog.objects.snapshot_entries import EntryColumns
    from litelog.reading.wal_names import WalNames
    from litelog.spark.scan.partitions import Piece, PlannedLog

MOST_RAW = 1 << 40
"""The most bytes of a log segment in a run. With this limit the sum of all fits in 64 bits."""


@dataclass(frozen=True, slots=True)
class SealedRun:
    """Whole sealed segments [start, stop) of ``entries``, all that a plan reads of a log."""

    log: PlannedLog
    entries: EntryColumns
    follows: npt.NDArray[np.int64]
    """The sequence after the log segments before each of ``entries``; NONE if that is not known."""
    raws: npt.NDArray[np.int64]
    """How many bytes of the log each sealed segment of the run holds."""
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @classmethod
    def of(cls, log: PlannedLog, entries: EntryColumns) -> SealedRun:
        """All of ``entries``."""
        return cls(log, entries, entries.follows(), entries.array("length"), 0, len(entries))

    def part(self, start: int, stop: int) -> SealedRun:
        """Those with numbers [start, stop) in this run."""
        at = self.start + start
        return SealedRun(self.log, self.entries, self.follows, self.raws[start:stop], at, self.start + stop)

    def pieces(self) -> Iterator[SealedPiece]:
        """Yield the pieces. Each is made when it is requested."""
        follows = self.follows[self.start : self.stop].tolist()
        for entry, after in zip(self.entries.part(self.start, self.stop), follows, strict=True):
            yield SealedPiece(entry, 0, entry.length, None if after == NONE else after)


@dataclass(frozen=True, slots=True)
class WalRun:
    """WAL segments [start, stop) of ``names``, all that a plan reads of a log."""

    log: PlannedLog
    names: WalNames
    raws: npt.NDArray[np.int64]
    """Roughly how many bytes of the log each of them holds."""
    link: ChainState | None
    starts_log: bool
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @classmethod
    def of(cls, log: PlannedLog, names: WalNames, link: ChainState | None, *, starts_log: bool) -> WalRun:
        """All of ``names``. ``link``, ``starts_log``: as in WalPiece."""
        indexes, offsets, sizes = (
            np.frombuffer(column, np.uint64) for column in (names.indexes, names.offsets, names.sizes)
        )
        raws = (COMPRESSION_RATIO * sizes).astype(np.int64)
        within = indexes[1:] == indexes[:-1]
        raws[:-1][within] = (offsets[1:] - offsets[:-1])[within].astype(np.int64)
        return cls(log, names, raws, link, starts_log, 0, len(names))

    def part(self, start: int, stop: int) -> WalRun:
        """Those with numbers [start, stop) in this run."""
        at = self.start + start
        return WalRun(self.log, self.names, self.raws[start:stop], self.link, self.starts_log, at, self.start + stop)

    def pieces(self) -> Iterator[WalPiece]:
        """Yield one piece, which holds all of them."""
        names, start, stop = self.names, self.start, self.stop
        yield WalPiece(
            indexes=names.indexes[start:stop],
            offsets=names.offsets[start:stop],
            sizes=names.sizes[start:stop],
            link=None if start else self.link,
            before=names[start - 1].position if start else None,
            stop=names[stop].position if stop < len(names) else None,
            starts_log=self.starts_log and not start,
        )


Run = SealedRun | WalRun


def cut_run(run: Run, at: int, open_cost: int, target: int) -> Iterator[tuple[int, int, Run]]:
    """(partition, where it begins, part of the run for it) for all parts. A sealed segment that costs more than
    ``target`` is a separate part. The run begins after ``at`` bytes of earlier items."""
    costs = run.raws + open_cost
    starts = at + np.cumsum(costs) - costs
    numbers = (starts + costs // 2) // target
    large = (costs > target) & isinstance(run, SealedRun)
    edges = np.flatnonzero((np.diff(numbers) != 0) | large[1:] | large[:-1]) + 1
    for start, stop in pairwise([0, *edges.tolist(), len(costs)]):
        yield int(numbers[start]), int(starts[start]), run.part(start, stop)


class LazyPieces(LazySequence["Piece"]):
    """The pieces of runs, and pieces between them, in order. Makes them when they are taken or pickled."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Run | tuple[Piece, ...]]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(1 if isinstance(part, WalRun) else len(part) for part in self.parts)

    def __iter__(self) -> Iterator[Piece]:
        return chain.from_iterable(part if isinstance(part, tuple) else part.pieces() for part in self.parts)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice) and number.start is None and number.step is None and (number.stop or 0) >= 0:
            return tuple(islice(self, number.stop))
        return tuple(self)[number]
