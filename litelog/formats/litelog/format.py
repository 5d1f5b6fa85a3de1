"""litelog's own log format, and the names of its log segments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from litelog.errors import SequenceGapError, WrongFormatError
from litelog.formats.litelog.commit_walk import (
    FEW_BYTES,
    Walk,
    find_commit,
    walk,
    walk_bodies,
    walk_checked,
    walk_front,
)
from litelog.formats.litelog.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, check_header
from litelog.formats.litelog.small_commit import SmallCommit
from litelog.formats.log_format import MAX_COMMIT_BYTES, Commit, Expectation, FinishedTail, Scan, Tail
from litelog.formats.numbered import NumberedFormat, NumberedNames
from litelog.native.commit_rows import check_bodies, check_commits, take_commits

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litelog.formats.columns import Columns
    from litelog.formats.litelog.commit_batch import Commits
    from litelog.formats.litelog.commit_columns import Bodies
    from litelog.formats.litelog.taken_bodies import TakenBodies

_NAMES = NumberedNames("litelog", re.compile(r"([0-9]{20})\.log"), "a sequence of 20 digits and .log")


def segment_name(first_sequence: int) -> str:
    """The file name of the log segment that starts with ``first_sequence``."""
    return f"{first_sequence:020d}.log"


def sequence_of(name: str) -> int | None:
    """The first sequence that a log segment's file name states; None for any other name."""
    return _NAMES.sequence_of(name)


class LitelogFormat(NumberedFormat):
    """litelog's own format. Commits count their records, so sequences are dense."""

    name = "litelog"
    names = _NAMES
    finished_tail = FinishedTail.ERROR
    has_timestamps = True
    has_log_id = True
    divisible = False

    def log_id(self, name: str, head: memoryview) -> UUID | None:
        try:
            return SegmentHeader.decode(name, head).log_id
        except ValueError:
            return None

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        found = _walk_segment(name, data, offset, expect, walk_checked)
        needs_check = found.positions and not known
        return _describe(data, offset, found, _check_times(name, data, offset, found) if needs_check else found.times)

    def find_commit(self, data: memoryview, offset: int, start: int) -> int | None:
        return find_commit(data, start or (0 if offset else SEGMENT_HEADER_BYTES - 1), Expectation())

    def scan_columns(self, name: str, data: memoryview, offset: int, expect: Expectation) -> tuple[Scan, Columns]:
        """The results of ``scan`` and ``decode``, from one pass over the bytes."""
        from litelog.formats.columns import Columns  # noqa: PLC0415 - a daemon only scans

        found = _walk_segment(name, data, offset, expect, walk_bodies)
        if not found.positions:
            return _describe(data, offset, found, None), Columns.empty(data, has_timestamps=True)
        bodies = _check(name, data, offset, found)
        return _describe(data, offset, found, bodies.time_range()), bodies.columns(_first_sequence(data, found))

    def take_columns(
        self, data: memoryview, offset: int, expect: Expectation
    ) -> tuple[Columns, int, Expectation] | None:
        taken = take_commits(data, 0, expect.sequence, expect.epoch, MAX_COMMIT_BYTES) if offset else None
        if taken is None:
            return None
        from litelog.formats.litelog.taken_bodies import TakenBodies  # noqa: PLC0415 - as above

        columns = TakenBodies(data, taken.bodies).columns(0)
        return columns, offset + taken.run.end, Expectation(taken.run.next, taken.run.epoch)

    def scan_front(self, data: memoryview, offset: int, expect: Expectation) -> Scan | None:
        found = walk_front(data, expect) if offset else None
        return None if found is None else _describe(data, offset, found, found.times)

    def scan_whole(self, name: str, data: memoryview, offset: int, expect: Expectation, crc: int) -> Scan | None:
        start, first = 0, expect.sequence
        if not offset:
            start, named = SEGMENT_HEADER_BYTES, sequence_of(name.rpartition("/")[2])
            if named is None or first not in (None, named) or not _has_header(name, data, named):
                return None
            first = named
        found = check_commits(data, start, first, expect.epoch, MAX_COMMIT_BYTES) if len(data) >= FEW_BYTES else None
        if found is None or (found.end, found.crc) != (len(data), crc):
            return None
        return Scan(
            start=offset,
            end=offset + found.end,
            commits=found.commits,
            records=found.records,
            first=found.next - found.records,
            next=found.next,
            epoch=found.epoch,
            lowest=found.lowest,
            highest=found.highest,
            last_commit=offset + found.last,
            tail=Tail.NOTHING,
            damage=None,
            wanted=0,
        )

    def scan_commits(
        self, name: str, data: memoryview, offset: int, expect: Expectation
    ) -> tuple[Scan, Commits | None]:
        """The scan of known bytes, and the commits; None without any."""
        from litelog.formats.litelog.commit_batch import Commits  # noqa: PLC0415 - as above

        found = _walk_segment(name, data, offset, expect)
        scan = _describe(data, offset, found, None)
        if scan.first is None:
            return scan, None
        return scan, Commits(name, data, offset, found.positions, scan.first, scan.records)

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        from litelog.formats.litelog.commit_columns import Bodies  # noqa: PLC0415 - as above

        found = _walk_segment(name, data, offset, expect)
        if not found.positions:
            return []
        bodies = Bodies.check(name, data, offset, found.positions)
        ends = bodies.positions + bodies.totals + offset
        nexts = bodies.counts.cumsum() + _first_sequence(data, found)
        lows, highs = bodies.timestamp_ranges()
        columns = (bodies.positions + offset, ends, nexts - bodies.counts, nexts, lows, highs)
        return [Commit(*facts) for facts in zip(*(column.tolist() for column in columns), strict=True)]

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        from litelog.formats.columns import Columns  # noqa: PLC0415 - as above

        found = _walk_segment(name, data, offset, expect, walk_bodies)
        if not found.positions:
            return Columns.empty(data, has_timestamps=True)
        return _check(name, data, offset, found).columns(_first_sequence(data, found))


def _has_header(name: str, data: memoryview, sequence: int) -> bool:
    """Whether ``data`` begins with the header of a log segment that starts with ``sequence``."""
    try:
        return SegmentHeader.decode(name, data).first_sequence == sequence
    except (ValueError, WrongFormatError):
        return False


def _check_times(name: str, data: memoryview, offset: int, found: Walk) -> tuple[int, int]:
    """Check the columns of a walk's commits, of which there is at least one. Returns the lowest and the highest
    timestamp of a record. Raises CorruptCommitError. NumPy is not loaded if the compiled library does the work."""
    if found.times is not None:
        return found.times
    if len(found.positions) > 1:
        times = check_bodies(data, found.positions, (found.next or 0) - _first_sequence(data, found))
        if times is not None:
            return times
    return _check(name, data, offset, found).time_range()


def _check(name: str, data: memoryview, offset: int, found: Walk) -> Bodies | SmallCommit | TakenBodies:
    """Check these columns, and keep where they are. Raises CorruptCommitError."""
    if found.bodies is None and len(found.positions) == 1:
        small = SmallCommit.read(data, found.positions[0])
        if small is not None:
            return small
    from litelog.formats.litelog.commit_columns import Bodies  # noqa: PLC0415 - a daemon starts without NumPy
    from litelog.formats.litelog.taken_bodies import TakenBodies  # noqa: PLC0415 - as above

    if found.bodies is not None:
        return TakenBodies(data, found.bodies)
    records = (found.next or 0) - _first_sequence(data, found)
    return TakenBodies.read(data, found.positions, records) or Bodies.check(name, data, offset, found.positions)


def _describe(data: memoryview, offset: int, found: Walk, times: tuple[int, int] | None) -> Scan:
    """The scan of a walk. ``times``: the lowest and the highest timestamp of a record, if they are known."""
    first = None
    lowest, highest = times or (None, None)
    records, last_commit = 0, offset
    if found.positions:
        first = _first_sequence(data, found)
        records = (found.next or first) - first
        last_commit = offset + found.positions[-1]
    return Scan(
        start=offset,
        end=offset + found.end,
        commits=len(found.positions),
        records=records,
        first=first,
        next=found.next,
        epoch=found.epoch,
        lowest=lowest,
        highest=highest,
        last_commit=last_commit,
        tail=found.tail,
        damage=found.damage,
        wanted=found.wanted,
    )


def _first_sequence(data: memoryview, found: Walk) -> int:
    at = found.positions[0]
    return int.from_bytes(data[at : at + 8], "little")


def _walk_segment(
    name: str,
    data: memoryview,
    offset: int,
    expect: Expectation,
    step: Callable[[str, memoryview, int, int, Expectation], Walk] = walk,
) -> Walk:
    """The walk over ``data``; at offset 0 the header is checked first, and belongs to the run with the first commit.
    ``step``: the walk to take."""
    if offset:
        return step(name, data, offset, 0, expect)
    named = _NAMES.require_sequence(name)
    header = check_header(name, data, named, expect.epoch)
    if isinstance(header, Walk):
        return header
    if expect.sequence is not None and expect.sequence != named:
        raise SequenceGapError(name, 0, expect.sequence, named)
    found = step(name, data, 0, SEGMENT_HEADER_BYTES, Expectation(named, expect.epoch))
    if found.positions:
        return found
    wanted = SEGMENT_HEADER_BYTES + found.wanted if found.wanted else 0
    return Walk([], 0, found.next, found.epoch, found.tail, found.damage, wanted)
