"""Finds the end of a restored log: searches the footers of sealed segments and the headers of WAL segments."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import NothingToRestoreError
from litelog.formats.capabilities import notes_times
from litelog.objects.position import Position
from litelog.reading.search import first_reaching, first_shipped, first_stamped
from litelog.restore.plan import TooEarlyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.formats import Commit, LogFormat
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import BaseSnapshot
    from litelog.restore.object_lookup import Lookup
    from litelog.restore.plan import Target
    from litelog.stores.replica_client import WalSegmentInfo

_LATEST = (1 << 64) - 1

MOST_QUIET = 16
"""The number of WAL segments or runs of frames without a noted time after which the search ends: the log's writer
notes none there. Several may be shipped in a second, and only the first commit of a second has a note."""


@dataclass(frozen=True, slots=True)
class RestoreEnd:
    """The part of a generation's contents to restore."""

    entries: int
    """The number of log segments of the base, including the log segment that is cut."""
    pieces: int
    """The number of WAL segments."""
    end: Position | None
    """The end of the log; None if nothing is restored."""


class TargetSearch:
    """Cuts the contents of a generation at a bound. Reads footers and headers, and the commits around the bound."""

    def __init__(self, here: str, base: BaseSnapshot, wal: Sequence[WalSegmentInfo], lookup: Lookup) -> None:
        """``here``: the beginning of error messages."""
        self._here = here
        self._base = base
        self._wal = wal
        self._lookup = lookup
        self._positions = [piece.position for piece in wal]

    def cut(self, target: Target, log_format: LogFormat) -> RestoreEnd:
        """Find the cut for ``target``. For a bound past the end, raises a NothingToRestoreError that names the
        contents."""
        if target.index is not None:
            return self._at_index(target.index)
        if target.sequence is not None:
            return self._at_sequence(target.sequence)
        if target.timestamp is None:
            return self._after_pieces(len(self._wal))
        if notes_times(log_format):
            return self._at_time_noted(target.timestamp)
        return (self._at_timestamp if log_format.has_timestamps else self._at_time_shipped)(target.timestamp)

    def headers(self, positions: Sequence[Position]) -> list[WalHeader]:
        """Read headers. A header that stands for a sealed segment gets the sealed segment's facts."""
        return [self._described(header) for header in self._lookup.headers(positions)]

    def reach(self, header: WalHeader) -> int:
        """The end offset of the log segment's bytes in a WAL segment, or in the sealed segment that it stands for."""
        return header.end if header.sealed is None else self._lookup.entry(header).length

    def next_sequence(self) -> int | None:
        """The sequence that follows the last record; None without records."""
        for position in reversed(self._positions):
            reached = self.headers([position])[0].next
            if reached is not None:
                return reached
        return next((entry.next for entry in reversed(self._base.entries) if entry.next is not None), None)

    def first_commit(self) -> Commit | None:
        """The first commit with records; None if the first log segment has none. Reads the object that holds it."""
        entry: SnapshotEntry | None = self._base.entries[0] if self._base.entries else None
        if entry is None:
            header = self._lookup.headers([self._positions[0]])[0]
            entry = self._lookup.entry(header) if header.sealed is not None else None
            if entry is None:
                return next((commit for commit in self._lookup.commits(header) if commit.next > commit.first), None)
        if entry.first is None:
            return None
        run_of, _ = _sequence_bound(entry.first - 1)
        return next((each for each in self._lookup.commits_around(entry, run_of)[1] if each.next > each.first), None)

    def _at_index(self, index: int) -> RestoreEnd:
        first, start = self._base.first.index, self._base.start.index
        last = self._positions[-1].index if self._positions else start - 1
        if not first <= index <= last:
            message = f"{self._here}: no index {index:x}; it holds indexes {first:x} to {last:x}"
            raise TooEarlyError(message, first, None) if index < first else NothingToRestoreError(message)
        if index < start:
            return self._after_entry(index - first + 1)
        return self._after_pieces(sum(position.index <= index for position in self._positions))

    def _at_sequence(self, sequence: int) -> RestoreEnd:
        number = self._first_entry(lambda entry: entry.records > 0 and (entry.next or 0) > sequence + 1)
        if number is not None:
            return self._within_entry(number, *_sequence_bound(sequence))
        piece = first_reaching(self._positions, self.headers, sequence + 1)
        if piece < len(self._positions):
            return self._within_piece(piece, *_sequence_bound(sequence))
        reached = self.next_sequence()
        if reached is None or reached <= sequence:
            ends = "no record" if reached is None else f"records up to sequence {reached - 1}"
            raise NothingToRestoreError(f"{self._here}: sequence {sequence} is not there; it holds {ends}")
        return self._after_pieces(len(self._wal))

    def _at_timestamp(self, timestamp: int) -> RestoreEnd:
        number = self._first_entry(lambda entry: entry.highest is not None and entry.highest > timestamp)
        if number is not None:
            return self._within_entry(number, *_timestamp_bound(timestamp))
        piece = first_stamped(self._positions, self.headers, timestamp + 1)
        if piece == len(self._positions):
            return self._after_pieces(piece)
        return self._within_piece(piece, *_timestamp_bound(timestamp))

    def _at_time_shipped(self, time: int) -> RestoreEnd:
        number = self._first_entry(lambda entry: entry.shipped_last > time)
        if number is None:
            return self._after_pieces(first_shipped(self._positions, self.headers, time + 1))
        entry = self._base.entries[number]
        early = entry.shipped_first <= time
        return self._in_entry(number, self._lookup.marks(entry).offset_at(time) if early else 0)

    def _at_time_noted(self, time: int) -> RestoreEnd:
        """Cut before the first commit whose noted time is after ``time``. The log's writer notes it at some commits.

        A commit without a note has the time of the last note before it. Where the writer notes no times, those at which
        the commits were shipped count. What was shipped by ``time`` was written by then.
        """
        found = self._at_time_shipped(time)
        is_noted, quiet = self._is_noted_before(found), 0
        for commits, cut in self._commits_after(found):
            notes = [commit for commit in commits if commit.noted is not None]
            late = next((commit for commit in notes if commit.noted is not None and commit.noted > time), None)
            if late is not None:
                return cut(late.start) if is_noted or late is not notes[0] else found
            if notes:
                found, is_noted, quiet = cut(commits[-1].end), True, 0
            quiet += not notes
            if quiet > MOST_QUIET:
                break
        return found

    def _is_noted_before(self, end: RestoreEnd) -> bool:
        """Whether a commit shortly before ``end`` has a noted time."""
        for number in range(end.pieces - 1, max(-1, end.pieces - MOST_QUIET), -1):
            if any(commit.noted is not None for commits, _ in self._runs_of_piece(number) for commit in commits):
                return True
        if end.end is None or not end.entries:
            return False
        entry = self._base.entries[end.entries - 1]
        offset = (entry.length if end.pieces else end.end.offset) - 1
        return any(commit.noted is not None and commit.start <= offset for commit in self._run_in_entry(entry, offset))

    def _commits_after(self, end: RestoreEnd) -> Iterator[tuple[Sequence[Commit], Callable[[int], RestoreEnd]]]:
        """The commits after ``end``, run by run, each with the function that cuts the log at an offset in it."""
        if not end.pieces and end.end is not None and end.entries:
            for number in range(end.entries - 1, len(self._base.entries)):
                start = end.end.offset if number == end.entries - 1 else 0
                for commits in self._runs_of_entry(self._base.entries[number], start):
                    yield commits, partial(self._in_entry, number)
        for number in range(end.pieces, len(self._positions)):
            yield from self._runs_of_piece(number)

    def _runs_of_piece(self, number: int) -> Iterator[tuple[Sequence[Commit], Callable[[int], RestoreEnd]]]:
        header = self._lookup.headers([self._positions[number]])[0]
        sealed = header.sealed is not None
        for commits in self._runs_of_entry(self._lookup.entry(header)) if sealed else [self._lookup.commits(header)]:
            yield commits, partial(self._in_piece, number)

    def _runs_of_entry(self, entry: SnapshotEntry, offset: int = 0) -> Iterator[Sequence[Commit]]:
        """The commits of a sealed segment from ``offset`` on, run of frames by run of frames."""
        while offset < entry.length:
            commits = [commit for commit in self._run_in_entry(entry, offset) if commit.start >= offset]
            if not commits:
                return
            yield commits
            offset = commits[-1].end

    def _run_in_entry(self, entry: SnapshotEntry, offset: int) -> Sequence[Commit]:
        """The commits of the run of frames that holds the byte at ``offset``."""

        def run_of(footer: SealedFooter) -> range:
            return footer.frames.run_of(footer.frames.at_offset(offset))

        return list(self._lookup.commits_around(entry, run_of)[1])

    def _first_entry(self, holds: Callable[[SnapshotEntry], bool]) -> int | None:
        return next((number for number, entry in enumerate(self._base.entries) if holds(entry)), None)

    def _within_entry(
        self, number: int, run_of: Callable[[SealedFooter], range], belongs: Callable[[Commit], bool]
    ) -> RestoreEnd:
        return self._in_entry(number, self._end_within(self._base.entries[number], run_of, belongs))

    def _end_within(
        self, entry: SnapshotEntry, run_of: Callable[[SealedFooter], range], belongs: Callable[[Commit], bool]
    ) -> int:
        """The offset after the last commit that belongs. The first other commit lies in the run of frames."""
        start, commits = self._lookup.commits_around(entry, run_of)
        return max((commit.end for commit in takewhile(belongs, commits)), default=start)

    def _within_piece(
        self, number: int, run_of: Callable[[SealedFooter], range], belongs: Callable[[Commit], bool]
    ) -> RestoreEnd:
        """Cut the WAL segment of that number before the first commit that does not belong."""
        header = self._lookup.headers([self._positions[number]])[0]
        if header.sealed is not None:
            end = self._end_within(self._lookup.entry(header), run_of, belongs)
        else:
            kept = list(takewhile(belongs, self._lookup.commits(header)))
            end = kept[-1].end if kept else header.offset
        return self._in_piece(number, end)

    def _in_piece(self, number: int, end: int) -> RestoreEnd:
        """Everything up to the offset ``end``, which lies in the WAL segment of that number."""
        header = self._lookup.headers([self._positions[number]])[0]
        if end <= header.offset:
            return self._after_pieces(number)
        place = Position(header.position.generation, header.index, end)
        return RestoreEnd(len(self._base.entries), number + 1, place)

    def _in_entry(self, number: int, offset: int) -> RestoreEnd:
        if offset == 0:
            return self._after_entry(number)
        entry = self._base.entries[number]
        return RestoreEnd(number + 1, 0, Position(self._base.start.generation, entry.index, offset))

    def _after_entry(self, count: int) -> RestoreEnd:
        """All of the first ``count`` log segments of the base, and nothing else."""
        if count == 0:
            return RestoreEnd(0, 0, None)
        entry = self._base.entries[count - 1]
        return RestoreEnd(count, 0, Position(self._base.start.generation, entry.index, entry.length))

    def _after_pieces(self, pieces: int) -> RestoreEnd:
        """All of the base, and the first ``pieces`` WAL segments."""
        if pieces == 0:
            return self._after_entry(len(self._base.entries))
        header = self._lookup.headers([self._positions[pieces - 1]])[0]
        end = Position(header.position.generation, header.index, self.reach(header))
        return RestoreEnd(len(self._base.entries), pieces, end)

    def _described(self, header: WalHeader) -> WalHeader:
        if header.sealed is None:
            return header
        entry = self._lookup.entry(header)
        return replace(header, first=entry.first, records=entry.records, lowest=entry.lowest, highest=entry.highest)


def _sequence_bound(sequence: int) -> tuple[Callable[[SealedFooter], range], Callable[[Commit], bool]]:
    def run_of(footer: SealedFooter) -> range:
        return footer.frames.run_of(footer.frames.at_sequence(sequence + 1))

    return run_of, lambda commit: commit.next <= sequence + 1


def _timestamp_bound(timestamp: int) -> tuple[Callable[[SealedFooter], range], Callable[[Commit], bool]]:
    def run_of(footer: SealedFooter) -> range:
        return footer.frames.for_timestamps(timestamp + 1, _LATEST)[0]

    return run_of, lambda commit: commit.highest is None or commit.highest <= timestamp
