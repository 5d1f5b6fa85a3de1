"""The format of the topics of InfluxDB 0.9's broker, and the names of their files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from litelog.errors import SequenceGapError
from litelog.formats.columns import Columns
from litelog.formats.influxdb.message_frame import FRAME, HEADER_BYTES, MessageColumns, walk
from litelog.formats.log_format import Commit, Expectation, FinishedTail, Scan
from litelog.formats.numbered import NumberedFormat, NumberedNames

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = NumberedNames("influxdb", re.compile(r"(0|[1-9][0-9]{0,18})"), "an index in decimal digits")
TOMBSTONE = "tombstone"
"""An empty file: the broker has removed log segments of the topic."""


class InfluxdbFormat(NumberedFormat):
    """A topic of a broker: a message is a commit, and its index is its sequence. Indexes rise and jump.

    Messages of the broker itself have a sequence, but readers do not get them as records.
    """

    name = "influxdb"
    names = _NAMES
    finished_tail = FinishedTail.ERROR
    has_timestamps = False
    removed_by_owner = True
    sparse = True
    has_markers = True

    def side_files(self, names: Sequence[str]) -> list[str]:
        return [TOMBSTONE] if TOMBSTONE in names else []

    def was_truncated(self, names: Sequence[str]) -> bool:
        return TOMBSTONE in names

    def is_log_folder(self, name: str) -> bool:
        return _NAMES.pattern.fullmatch(name) is not None

    def scan(
        self,
        name: str,
        data: memoryview,
        offset: int,
        expect: Expectation,
        *,
        known: bool = False,  # noqa: ARG002  # every byte is checked anyway
    ) -> Scan:
        return _describe(offset, expect, _walk_segment(name, data, offset, expect))

    def find_commit(self, data: memoryview, offset: int, start: int) -> int | None:  # noqa: ARG002
        return FRAME.find_commit(data, start, Expectation())

    def scan_columns(self, name: str, data: memoryview, offset: int, expect: Expectation) -> tuple[Scan, Columns]:
        """The results of ``scan`` and ``decode``, from one pass over the bytes."""
        found = _walk_segment(name, data, offset, expect)
        return _describe(offset, expect, found), _decode(data, found)

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        found = _walk_segment(name, data, offset, expect)
        places = zip(found.starts.tolist(), found.ends.tolist(), found.indexes.tolist(), strict=True)
        return [Commit(offset + start, offset + end, index, index + 1, None, None) for start, end, index in places]

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        """The messages that are not the broker's own."""
        return _decode(data, _walk_segment(name, data, offset, expect))


def _describe(offset: int, expect: Expectation, found: MessageColumns) -> Scan:
    some = len(found) > 0
    return Scan(
        start=offset,
        end=offset + found.end,
        commits=len(found),
        records=len(found),
        first=int(found.indexes[0]) if some else None,
        next=int(found.indexes[-1]) + 1 if some else expect.sequence,
        epoch=expect.epoch,
        lowest=None,
        highest=None,
        last_commit=offset + int(found.starts[-1]) if some else offset,
        tail=found.tail,
        damage=found.damage,
        wanted=found.wanted,
    )


def _decode(data: memoryview, found: MessageColumns) -> Columns:
    rows = ~found.is_internal
    starts = found.starts[rows] + HEADER_BYTES
    return Columns(data, found.indexes[rows], None, None, None, starts, found.ends[rows] - starts)


def _walk_segment(name: str, data: memoryview, offset: int, expect: Expectation) -> MessageColumns:
    """The walk over a piece. At offset 0, the first message must have the index in the name."""
    found = walk(name, data, offset, expect)
    if offset == 0:
        named = _NAMES.require_sequence(name)
        if len(found) and int(found.indexes[0]) != named:
            raise SequenceGapError(name, 0, named, int(found.indexes[0]))
    return found
