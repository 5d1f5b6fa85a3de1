"""SpacetimeDB's commitlog as a log format, and the names of its log segments."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.codec.seekable_zstd import ZSTD_MAGIC, SeekableZstd
from litelog.errors import CorruptCommitError, SequenceGapError
from litelog.formats.columns import Columns
from litelog.formats.commit_tail import TailCheck
from litelog.formats.extra_columns import ColumnType, NumberColumn
from litelog.formats.log_format import Commit, Expectation, FinishedTail, Scan
from litelog.formats.numbered import NumberedFormat, NumberedNames
from litelog.formats.spacetimedb.commit_walk import FRAMES, CommitlogWalk, walk
from litelog.formats.spacetimedb.segment_header import SEGMENT_HEADER_BYTES, read_version

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

EXTRA_COLUMNS = {"epoch": ColumnType.INT64, "transactions": ColumnType.INT32}
"""Of the commit: its epoch, and how many transactions it holds."""

_NAMES = NumberedNames("spacetimedb", re.compile(r"([0-9]{20})\.stdb\.log"), "a transaction of 20 digits and .stdb.log")


class SpacetimeDBFormat(NumberedFormat):
    """SpacetimeDB's commitlog. A commit is a record: its value is the bytes of its transactions, as they are stored.

    Epochs are not compared: after a log segment that holds no commit, the writer begins with epoch 0 again.
    """

    name = "spacetimedb"
    names = _NAMES
    finished_tail = FinishedTail.PREFIX
    has_timestamps = False
    divisible = False
    extra_columns = EXTRA_COLUMNS

    def open_logical(self, path: str, read: Callable[[int, int], bytes], size: int) -> SeekableZstd | None:
        """The bytes of a log segment that its writer compressed in place."""
        return SeekableZstd(path, read, size, extra="spacetimedb") if read(0, 4) == ZSTD_MAGIC else None

    def find_commit(self, data: memoryview, offset: int, start: int) -> int | None:
        begin = start or (0 if offset else SEGMENT_HEADER_BYTES - 1)
        found = [frame.find_commit(data, begin, Expectation()) for frame in FRAMES]
        return min((place for place in found if place is not None), default=None)

    def scan(
        self,
        name: str,
        data: memoryview,
        offset: int,
        expect: Expectation,
        *,
        known: bool = False,  # noqa: ARG002  # what commits hold is not looked at anyway
    ) -> Scan:
        return _describe(offset, expect, _walk_segment(name, data, offset, expect))

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        found = _walk_segment(name, data, offset, expect)
        bounds = np.append(found.positions, found.end) + offset
        nexts = found.firsts + found.counts
        firsts = found.firsts.copy()
        firsts[found.repeated] = nexts[found.repeated]
        rows = zip(*(column.tolist() for column in (bounds[:-1], bounds[1:], firsts, nexts)), strict=True)
        return [Commit(start, end, first, following, None, None) for start, end, first, following in rows]

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        return self.scan_columns(name, data, offset, expect)[1]

    def scan_columns(self, name: str, data: memoryview, offset: int, expect: Expectation) -> tuple[Scan, Columns]:
        """The results of ``scan`` and ``decode``, from one pass over the bytes."""
        found = _walk_segment(name, data, offset, expect, with_values=True)
        positions = found.positions + found.frame.header.size
        copied = found.values is not None
        if copied:
            starts, lengths = found.places
        else:
            starts = positions
            lengths = np.diff(found.positions, append=found.end) - found.frame.min_commit_bytes
        columns: list[npt.NDArray[Any]] = [found.firsts, starts, lengths, positions, found.epochs, found.counts]
        if found.repeated:
            columns = [np.delete(column, found.repeated) for column in columns]
        sequences, starts, lengths, positions, epochs, counts = columns
        numbers = (NumberColumn(epochs), NumberColumn(counts.astype(np.int32)))
        return _describe(offset, expect, found), Columns(
            data=data if found.values is None else found.values,
            sequences=sequences,
            timestamps=None,
            key_starts=None,
            key_lengths=None,
            value_starts=starts,
            value_lengths=lengths,
            runs=np.zeros(1, np.int64) if copied and len(starts) and not found.repeated else None,
            extra=dict(zip(EXTRA_COLUMNS, numbers, strict=True)),
            commit_starts=positions if copied else None,
        )


def _describe(offset: int, expect: Expectation, found: CommitlogWalk) -> Scan:
    first = None
    if len(found.positions):
        own = np.delete(found.firsts, found.repeated) if found.repeated else found.firsts
        first = int(own[0]) if len(own) else found.next
    return Scan(
        start=offset,
        end=offset + found.end,
        commits=len(found.positions),
        records=found.records,
        first=first,
        next=found.next,
        epoch=expect.epoch,
        lowest=None,
        highest=None,
        last_commit=offset + (int(found.positions[-1]) if len(found.positions) else 0),
        tail=found.rest.tail,
        damage=found.rest.damage,
        wanted=found.rest.wanted,
        checksum=found.checksum,
    )


def _walk_segment(
    name: str, data: memoryview, offset: int, expect: Expectation, *, with_values: bool = False
) -> CommitlogWalk:
    """The walk over ``data``; at offset 0 the header is checked first, and belongs to the run with the first commit."""
    if offset:
        return walk(name, data, offset, 0, expect, with_values=with_values)
    named = _NAMES.require_sequence(name)
    version = read_version(name, data)
    if isinstance(version, TailCheck):
        return CommitlogWalk.none(0, expect, version)
    if expect.sequence is not None and expect.sequence < named:
        raise SequenceGapError(name, 0, expect.sequence, named)
    known = replace(expect, sequence=named) if expect.sequence is None else expect
    found = walk(name, data, 0, SEGMENT_HEADER_BYTES, known, version, with_values=with_values)
    if not len(found.positions):
        if any(frame.holds_commit(data, SEGMENT_HEADER_BYTES) for frame in FRAMES if frame.version != version):
            raise CorruptCommitError(name, 0, "version in the header", f"{1 - version}, as of the commits", version)
        rest = found.rest
        wanted = SEGMENT_HEADER_BYTES + rest.wanted if rest.wanted else 0
        return CommitlogWalk.none(0, expect, replace(rest, wanted=wanted))
    if (first := FRAMES[version].measure(data, SEGMENT_HEADER_BYTES)[0]) != named:
        raise CorruptCommitError(name, SEGMENT_HEADER_BYTES, "first transaction", f"{named}, as in its name", first)
    return found
