"""Runs of records as tasks read them, before they become record batches, and malformed commits.

In a format without records, a run is the data that was shipped at one time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from litelog.dataclass import dataclass
from litelog.formats.columns import Columns
from litelog.objects.wal_segment import MAX_LENGTH_BYTES
from litelog.reading.sealed_reader import FETCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from litelog.formats.litelog.commit_batch import Commits
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.spark.options import Range
    from litelog.spark.scan.partitions import SealedPiece


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Records of one log segment, checked."""

    columns: Columns
    index: int | None
    """Index of the log segment; None in a local folder."""
    offset: int
    """Offset in the log segment, in bytes, at which ``columns.data`` begins."""


@dataclass(frozen=True, slots=True)
class SegmentCommits:
    """All records of whole commits of one sealed segment: checked, and not yet decoded."""

    commits: Commits
    index: int

    def to_run(self) -> RecordRun:
        """Decode the records into columns. Raises CorruptCommitError if the inside of a commit is invalid."""
        return RecordRun(self.commits.columns(), self.index, self.commits.offset)


@dataclass(frozen=True, slots=True)
class Malformed:
    """Bytes [start, stop) of log segment ``index`` that fail a check."""

    index: int
    start: int
    stop: int | None
    """None if that is not known."""
    records: int | None
    """How many records they held; None if that is not known."""
    reason: str
    """The error, which names the object."""

    @property
    def text(self) -> str:
        """The text for PERMISSIVE's column."""
        stop = "?" if self.stop is None else self.stop
        return f"{self.reason} (bytes {self.start} to {stop} of log segment {self.index})"


def cut_sequences(run: RecordRun, wanted: Range, *, divisible: bool = False) -> RecordRun:
    """The records of a run with wanted sequences.

    ``divisible``: sequences count bytes, so records are cut at the bounds.
    """
    columns = run.columns
    if divisible and len(columns) and wanted.has_bounds:
        origin = run.offset + int(columns.value_starts[0]) - int(columns.sequences[0])
        run = divide(run, [origin + bound for bound in (wanted.first, wanted.stop) if bound is not None])
        columns = run.columns
    start = 0 if wanted.first is None else columns.find(wanted.first)
    stop = len(columns) if wanted.stop is None else columns.find(wanted.stop)
    return run if stop - start == len(columns) else replace(run, columns=columns.slice(start, max(start, stop)))


def cut_times(run: RecordRun, wanted: Range) -> RecordRun:
    """The records of a run with wanted timestamps; all of them if they have no timestamps."""
    stamps = run.columns.timestamps
    if stamps is None or not wanted.has_times:
        return run
    keep = np.ones(len(stamps), np.bool_)
    if wanted.since is not None:
        keep &= stamps >= wanted.since
    if wanted.until is not None:
        keep &= stamps < wanted.until
    return run if keep.all() else replace(run, columns=run.columns.take(keep))


def cut_offsets(run: RecordRun, start: int, stop: int, *, divisible: bool = False) -> RecordRun:
    """The records whose values begin in bytes [start, stop) of the log segment.

    ``divisible``: records are cut at the bounds.
    """
    if divisible:
        run = divide(run, [start, stop])
    places = run.columns.places
    if not len(places) or (start <= run.offset + int(places[0]) and run.offset + int(places[-1]) < stop):
        return run
    first, end = (int(np.searchsorted(places, bound - run.offset)) for bound in (start, stop))
    return replace(run, columns=run.columns.slice(first, end))


def divide(run: RecordRun, places: Sequence[int]) -> RecordRun:
    """Cut the records of a run at ``places``, offsets in the log segment in bytes.

    The values must be contiguous, and the sequences must count bytes.
    """
    columns = run.columns
    if not len(columns):
        return run
    starts = columns.value_starts
    first, end = int(starts[0]), int(starts[-1] + columns.value_lengths[-1])
    inside = np.array([place - run.offset for place in places if first < place - run.offset < end], np.int64)
    return _with_starts(run, np.union1d(starts, inside), end)


def join(runs: Sequence[RecordRun], places: Sequence[int]) -> RecordRun:
    """Join contiguous runs into one. Its records begin at its start and at ``places``, and nowhere else."""
    head = runs[0]
    data = head.columns.data if len(runs) == 1 else memoryview(b"".join(run.columns.data for run in runs))
    whole = replace(head, columns=replace(head.columns, data=data))
    inside = [place - head.offset for place in places if 0 < place - head.offset < len(data)]
    return _with_starts(whole, np.array([0, *inside], np.int64), len(data))


def _with_starts(run: RecordRun, starts: npt.NDArray[np.int64], end: int) -> RecordRun:
    columns = run.columns
    lengths = np.diff(np.append(starts, end))
    sequences = starts - int(columns.value_starts[0]) + int(columns.sequences[0])
    return replace(run, columns=Columns(columns.data, sequences, None, None, None, starts, lengths))


def row_starts(footer: SealedFooter) -> tuple[int, ...]:
    """The offsets in the log segment, in bytes, at which records begin: after each mark.

    Records are at most MAX_LENGTH_BYTES long, as much as one WAL segment carries, if marks are missing.
    """
    return _row_starts(footer.marks.offsets)


@lru_cache(maxsize=2)
def _row_starts(ends: tuple[int, ...]) -> tuple[int, ...]:
    starts: list[int] = []
    at = 0
    for end in ends:
        starts += range(at, end, MAX_LENGTH_BYTES)
        at = end
    return tuple(starts)


def shipped_parts(piece: SealedPiece, footer: SealedFooter, wanted: Range) -> Iterator[tuple[SealedPiece, list[range]]]:
    """Split a piece into parts of a few runs each. Yields each part with the frames that hold it.

    The parts hold the runs that begin in the piece or, if it is ``exact``, its bytes. A frame may lie in two parts.
    """
    bounds = (*row_starts(footer), footer.length)
    first, stop = bisect_left(bounds, piece.start), bisect_left(bounds, piece.stop)
    places = list(bounds[first : stop + 1])
    if piece.exact:
        places = [piece.start, *(place for place in places if piece.start < place < piece.stop), piece.stop]
    at = 0
    while at < len(places) - 1:
        end = max(at + 1, bisect_left(places, places[at] + FETCH_BYTES, at + 1) - 1)
        end = min(end, len(places) - 1)
        part = replace(piece, start=places[at], stop=places[end], exact=True)
        at = end
        if wanted.overlaps((footer.first or 0) + part.start, (footer.first or 0) + part.stop):
            yield part, list(footer.frames.runs(footer.frames.for_offsets(part.start, part.stop)))
