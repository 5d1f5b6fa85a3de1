"""The format of Kafka's partitions, and the names in their folders."""

from __future__ import annotations

import os
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from litelog.errors import SequenceGapError
from litelog.formats.extra_columns import ColumnType
from litelog.formats.kafka.batch_columns import decode_batches
from litelog.formats.kafka.batch_header import (
    APPEND_TIME,
    DELETE_HORIZON,
    MAX_MILLISECONDS,
    MAX_OFFSET,
    MAX_SEGMENT_OFFSETS,
)
from litelog.formats.kafka.batch_walk import BatchWalk, find_batch, walk
from litelog.formats.kafka.committed import MARKER, PRODUCER, CommittedRecords
from litelog.formats.log_format import NO_LOWEST, Commit, Expectation, FinishedTail, Scan
from litelog.formats.numbered import NumberedFormat, NumberedNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.formats.capabilities import RecordFilter
    from litelog.formats.columns import Columns
    from litelog.formats.kafka.batch_header import Int64s, RecordBatches
    from litelog.formats.log_format import LogFormat

_NAMES = NumberedNames("kafka", re.compile(r"([0-9]{20})\.log"), "an offset of 20 digits and .log")
_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>[0-9]+)")
_METADATA_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_SIDE_FILES = ("quorum-state", "leader-epoch-checkpoint", "partition.metadata")
_IGNORED = re.compile(
    r".*\.(index|timeindex|txnindex|snapshot|deleted|cleaned|swap|part|delete)|[0-9]{20}-[0-9]{10}\.checkpoint(\.tmp)?"
    r"|.*\.tmp|\.lock|\.kafka_cleanshutdown|remote_log_snapshot"
)
_METADATA_TOPIC = "__cluster_metadata"
_WATERMARKS = "replication-offset-checkpoint"


EXTRA_COLUMNS = MappingProxyType(
    {"headers": ColumnType.HEADERS, "timestampType": ColumnType.INT32, "producerId": ColumnType.INT64}
)
"""``timestampType`` is 0 for the time at which a record was created, and 1 for that at which it was appended."""

MARKER_COLUMNS = MappingProxyType({MARKER: ColumnType.INT32, PRODUCER: ColumnType.INT64})


class KafkaFormat(NumberedFormat):
    """Record batches of version 2. A batch is a commit, and a record's sequence is its Kafka offset."""

    name = "kafka"
    names = _NAMES
    finished_tail = FinishedTail.ERROR
    has_timestamps = True
    divisible = False
    rewrites_finished = True
    sparse = True
    removed_by_owner = True
    has_markers = True
    awaited_side_file = "partition.metadata"
    has_kafka_schema = True

    def __init__(self, *, markers: bool = False) -> None:
        """With ``markers``, records of control batches are records, too, as ``CommittedRecords`` needs them."""
        self._markers = markers
        self.extra_columns = EXTRA_COLUMNS | MARKER_COLUMNS if markers else EXTRA_COLUMNS

    def ignores(self, name: str) -> bool:
        return _IGNORED.fullmatch(name) is not None

    def is_log_folder(self, name: str) -> bool:
        return _FOLDER.fullmatch(name) is not None

    def side_files(self, names: Sequence[str]) -> list[str]:
        newest = max((name for name in names if _METADATA_SNAPSHOT.fullmatch(name)), default=None)
        return [*([] if newest is None else [newest]), *(name for name in _SIDE_FILES if name in names)]

    def watermark_file(self, folder: str) -> str | None:
        return os.path.join(os.path.dirname(os.path.abspath(folder)), _WATERMARKS)

    def read_watermark(self, folder: str, content: bytes | None) -> int | None:
        match = _FOLDER.fullmatch(os.path.basename(os.path.abspath(folder)))
        if match is None:
            raise ValueError(f"{folder} is not named as a partition, <topic>-<number>")
        if match["topic"] == _METADATA_TOPIC:
            return None  # its high watermark is in no file
        if content is None:
            return 0
        return _read_watermarks(content).get((match["topic"], int(match["partition"])), 0)

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:  # noqa: ARG002  # headers and checksums are all that it looks at
        return _describe(offset, _walk_segment(name, data, offset, expect), expect)

    def scan_columns(self, name: str, data: memoryview, offset: int, expect: Expectation) -> tuple[Scan, Columns]:
        """The results of ``scan`` and ``decode``, from one pass over the bytes."""
        found = _walk_segment(name, data, offset, expect, with_rows=not self._markers)
        return _describe(offset, found, expect), decode_batches(name, data, offset, found, markers=self._markers)

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        found = _walk_segment(name, data, offset, expect)
        batches = found.batches
        lowest, highest = _times(batches)
        columns = (offset + batches.places, offset + batches.ends, batches.get("base"), batches.last + 1)
        rows = zip(*(column.tolist() for column in (*columns, lowest, highest, batches.get("records"))), strict=True)
        return [
            Commit(start, end, first, following, low if records else None, high if records else None)
            for start, end, first, following, low, high, records in rows
        ]

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        found = _walk_segment(name, data, offset, expect, with_rows=not self._markers)
        return decode_batches(name, data, offset, found, markers=self._markers)

    def read_committed(self) -> tuple[LogFormat, RecordFilter]:
        return KafkaFormat(markers=True), CommittedRecords()

    def find_commit(self, data: memoryview, offset: int, start: int) -> int | None:  # noqa: ARG002
        return find_batch(data, start, Expectation())


def _walk_segment(
    name: str, data: memoryview, offset: int, expect: Expectation, *, with_rows: bool = False
) -> BatchWalk:
    """The walk over ``data``; the first batch of a log segment may not lie before the offset in its name."""
    if offset:
        held = _NAMES.sequence_of(name.rpartition("/")[2])
        limit = MAX_OFFSET if held is None else held + MAX_SEGMENT_OFFSETS - 1
        return walk(name, data, offset, expect, min(limit, MAX_OFFSET - 1), with_rows=with_rows)
    named = _NAMES.require_sequence(name)
    if expect.sequence is not None and named < expect.sequence:
        raise SequenceGapError(name, 0, expect.sequence, named)
    limit = min(named + MAX_SEGMENT_OFFSETS - 1, MAX_OFFSET - 1)
    return walk(name, data, offset, Expectation(named, expect.epoch), limit, with_rows=with_rows)


def _times(batches: RecordBatches) -> tuple[Int64s, Int64s]:
    """The bounds of batches' times in microseconds; they mean nothing for a batch without records. Records may be older
    than the first one, whose time the header has; only a batch with one time shows its lowest."""
    highest = np.clip(batches.get("highest_time"), -MAX_MILLISECONDS, MAX_MILLISECONDS) * 1000
    exact = batches.have(APPEND_TIME) | ((batches.get("records") == 1) & ~batches.have(DELETE_HORIZON))
    return np.where(exact, highest, np.minimum(highest, NO_LOWEST)), highest


def _describe(offset: int, found: BatchWalk, expect: Expectation) -> Scan:
    """The scan of a walk, where ``expect`` was expected."""
    some, totals = len(found) > 0, found.totals
    has_times = totals.earliest <= totals.latest
    lowest, highest = 1000 * totals.earliest, 1000 * totals.latest
    return Scan(
        start=offset,
        end=offset + found.end,
        commits=len(found),
        records=totals.records,
        first=int.from_bytes(found.data[:8], "big") if some else None,
        next=totals.next if some else expect.sequence,
        epoch=totals.epoch,
        lowest=(min(lowest, NO_LOWEST) if totals.has_older else lowest) if has_times else None,
        highest=highest if has_times else None,
        last_commit=offset + (int(found.bounds[-2]) if some else 0),
        tail=found.tail,
        damage=found.damage,
        wanted=found.wanted,
    )


def _read_watermarks(content: bytes) -> dict[tuple[str, int], int]:
    """The high watermarks in a checkpoint file: a version, a count, and a line for each partition."""
    lines = content.decode("ascii").splitlines()
    if len(lines) < 2 or lines[0] != "0" or int(lines[1]) != len(lines) - 2:
        raise ValueError("it is not a checkpoint of version 0 with as many lines as it states")
    found = {}
    for line in lines[2:]:
        topic, partition, offset = line.split(" ")
        found[topic, int(partition)] = int(offset)
    return found
