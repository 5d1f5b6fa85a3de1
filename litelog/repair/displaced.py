"""Finds the good commits that stand in a log segment's bytes at any place, and the same commits in a replica's bytes.

Bytes that were cut out of a log segment, or put into it, move all commits after them. Each commit states its sequence,
so equal bytes are the same commit, wherever they stand.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError, SequenceGapError, WrongFormatError
from litelog.formats import Commit, Expectation
from litelog.formats.capabilities import is_counted, max_commit_bytes
from litelog.log.source import READ_BYTES
from litelog.units import format_count
from litelog.verify.local_log import search_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.formats import LogFormat
    from litelog.log.source import OpenSegment
    from litelog.repair.histories import History
    from litelog.repair.local_files import LocalFiles

    Read = Callable[[int, int], bytes]

_ALIGNMENT_BYTES = 8
"""Formats begin commits at multiples of this, or at any byte. Their searches look only there."""

_UNREADABLE = -1
"""Instead of the sequence of a commit that the format finds and cannot read. No replica has it."""


def can_find_displaced(log_format: LogFormat) -> bool:
    """Whether commits of a format state their sequence, and can be found at any place."""
    return log_format.self_numbered and not is_counted(log_format) and hasattr(log_format, "find_commit")


@dataclass(slots=True)
class Displaced:
    """The good commits of some bytes of a log segment, compared with a replica's bytes of a log segment."""

    commits: int = 0
    """How many there are."""
    moved: int = 0
    """How many of them the replica holds at another offset."""
    missing: int = 0
    """How many of them the replica does not hold."""
    first: int | None = None
    """The first sequence of the first one; None if there is none."""
    begin: int = 0
    """The offset of the first one in the local log segment."""
    is_readable: bool = True
    """Whether all of the local bytes could be read. Of a compressed log segment, a piece may be damaged."""
    end: int = 0
    """The largest end of any of them in the replica's bytes."""

    def __str__(self) -> str:
        """Describe the finding, for the plan; empty if no commit was moved or is missing."""
        if self.missing:
            return f"the replica lacks {format_count(self.missing, 'good commit')} of the {self.commits} there"
        if not self.moved:
            return ""
        return f"{format_count(self.moved, 'commit')} at other places of the file, all of them in the replica"


class HeldCommits:
    """The commits that a history holds of one log segment, by their first sequence. Memory: a few numbers for each
    READ_BYTES, and one piece."""

    def __init__(self, log_format: LogFormat, history: History, name: str, size: int) -> None:
        """``size``: how many bytes the history holds."""
        self._format = log_format
        self._history = history
        self._name = name
        self._size = size
        self._pieces: list[tuple[int, int, int, int]] | None = None
        """The first sequence, the one after the last, and start and end of each piece, in order."""
        self._piece: tuple[int, dict[int, int]] = (_UNREADABLE, {})
        """The start of the piece that was read last, and its commits: the start by the first sequence."""

    def compare(self, files: LocalFiles, name: str, start: int, stop: int) -> Displaced:
        """Compare the good commits in the bytes [start, stop) of the local log segment ``name``. Raises SourceError,
        CorruptionError and StoreError."""
        found = Displaced()
        with files.opened(name) as segment:
            if segment is None:
                found.is_readable = False
                return found
            read = partial(_read_local, segment, found)
            for commits in good_commits(self._format, name, read, start, stop):
                if found.first is None:
                    found.first, found.begin = commits[0].first, commits[0].start
                if not self._add(found, read, commits):
                    for commit in commits:
                        if not self._add(found, read, [commit]):
                            found.missing += 1
                            found.commits += 1
        return found

    def _add(self, found: Displaced, read: Read, commits: list[Commit]) -> bool:
        """Count commits that follow each other, if the history holds them one after another. Returns whether."""
        at = self._find(commits[0].first)
        start, length = commits[0].start, commits[-1].end - commits[0].start
        if at is None or at + length > self._size or self.read(at, length) != read(start, length):
            return False
        found.commits += len(commits)
        found.moved += len(commits) if at != start else 0
        found.end = max(found.end, at + length)
        return True

    def read(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset`` on. Raises CorruptionError and StoreError."""
        stop = min(offset + length, self._size)
        return b"".join(run.data for run in self._history.read(self._name, offset, stop))

    def may_hold(self, sequence: int) -> bool:
        """Whether a sequence is among those of these commits. Raises CorruptionError and StoreError."""
        piece = self._piece_of(sequence)
        return piece is not None and sequence < piece[1]

    def _find(self, first: int) -> int | None:
        """The offset of the commit with this first sequence; None if there is none."""
        piece = self._piece_of(first)
        if piece is None:
            return None
        _, _, start, stop = piece
        if self._piece[0] != start:
            runs = good_commits(self._format, self._name, self.read, start, stop)
            self._piece = start, {commit.first: commit.start for commits in runs for commit in commits}
        return self._piece[1].get(first)

    def _piece_of(self, sequence: int) -> tuple[int, int, int, int] | None:
        """The last piece that does not begin after a sequence; None if all do."""
        if self._pieces is None:
            runs = good_commits(self._format, self._name, self.read, 0, self._size)
            self._pieces = [(each[0].first, each[-1].next, each[0].start, each[-1].end) for each in runs]
        number = bisect_right(self._pieces, sequence, key=lambda piece: piece[0]) - 1
        return self._pieces[number] if number >= 0 else None


def _read_local(segment: OpenSegment, found: Displaced, offset: int, length: int) -> bytes:
    """Read a local log segment; nothing from a piece that cannot be decompressed, which ``found`` then says."""
    try:
        return segment.read(offset, length)
    except CorruptCommitError:
        found.is_readable = False
        return b""


def good_commits(log_format: LogFormat, name: str, read: Read, start: int, stop: int) -> Iterator[list[Commit]]:
    """Yield all good commits in the bytes [start, stop) of a log segment, wherever they stand.

    Args:
        log_format: The log's format. ``can_find_displaced`` holds for it.
        name: The log segment's name.
        read: Reads the log segment: from an offset, up to a number of bytes.
        start: Where to begin.
        stop: Where to end.

    Yields:
        Commits that follow each other, about READ_BYTES of them, or one.
    """
    at, length, is_found = start, READ_BYTES, False
    while at < stop:
        data = memoryview(read(at, min(length, stop - at)))
        if not data:
            return
        commits, is_bad = _commits_at(log_format, name, data, at)
        if commits:
            yield commits
            at, length, is_found = commits[-1].end, READ_BYTES, False
        elif is_bad or length > max_commit_bytes(log_format) or at + len(data) >= stop:
            if is_found:
                yield [Commit(at, at, _UNREADABLE, _UNREADABLE, None, None)]
            at, length, is_found = _next_commit(log_format, read, stop, at), READ_BYTES, True
        else:
            length *= 2


def _commits_at(log_format: LogFormat, name: str, data: memoryview, offset: int) -> tuple[list[Commit], bool]:
    """The good commits at the beginning of ``data``, and whether something bad follows them."""
    try:
        return log_format.commits(name, data, offset, Expectation()), False
    except WrongFormatError:
        return [], True
    except (CorruptCommitError, SequenceGapError) as error:
        if error.offset <= offset:
            return [], True
        return log_format.commits(name, data[: error.offset - offset], offset, Expectation()), True


def _next_commit(log_format: LogFormat, read: Read, stop: int, offset: int) -> int:
    """The offset of the next good commit after ``offset``, at any byte; ``stop`` if there is none.

    A search looks only at multiples of the alignment from where it begins, and not at the beginning itself.
    """

    def padded(at: int, length: int) -> bytes:
        zeros = bytes(max(0, _ALIGNMENT_BYTES - at))[:length]
        start = max(0, at - _ALIGNMENT_BYTES)
        return zeros + read(start, min(length - len(zeros), stop - start))

    def search(begin: int) -> int:
        size = stop + _ALIGNMENT_BYTES
        while (found := search_commit(log_format, padded, size, begin)) <= offset + _ALIGNMENT_BYTES:
            begin = found
        return found - _ALIGNMENT_BYTES

    return min(search(offset + shift) for shift in range(1, _ALIGNMENT_BYTES + 1))


def count_commits(files: LocalFiles, name: str, start: int, stop: int) -> int:
    """The number of good commits in the bytes [start, stop) of a local log segment. Raises SourceError."""
    with files.opened(name) as segment:
        if segment is None:
            return 0
        read = partial(_read_local, segment, Displaced())
        return sum(len(each) for each in good_commits(files.format, name, read, start, stop))
