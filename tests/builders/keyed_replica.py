"""A replica of records with keys that come again, and the table of the latest row of each key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from uuid import UUID

from litelog.formats.litelog import SegmentHeader, encode_commit, segment_name
from litelog.spark.jobs import export
from litelog.spark.jobs.local_tasks import LocalTasks
from tests.builders.growing_replica import GrowingReplica
from tests.builders.replica_builder import LOG, SECOND, LogSegment

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 7
SEGMENT_RECORDS = 20


def key_of(sequence: int) -> bytes | None:
    """Every tenth record has no key, except for the last record of a log segment."""
    return None if sequence % 10 == 5 else b"key %d" % (sequence * sequence % KEYS)


def value_of(sequence: int) -> bytes:
    return b"value %d" % sequence


class KeyedReplica(GrowingReplica):
    """A replica whose log segments have SEGMENT_RECORDS records each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.next = 0

    def add(self, segments: int) -> KeyedReplica:
        """Add log segments."""
        for _ in range(segments):
            first, self.next = self.next, self.next + SEGMENT_RECORDS
            numbers = range(first, self.next)
            data = SegmentHeader(UUID(LOG), first, 0).encode()
            data += encode_commit(
                first, 1, [n * SECOND for n in numbers], [*map(value_of, numbers)], [*map(key_of, numbers)]
            )
            segment = LogSegment(segment_name(first), bytes(data), (len(data),), self.next)
            self.generation.ship_segment(segment)
        self.generation.snapshot(self.next // SEGMENT_RECORDS)
        return self


def latest(records: int) -> dict[bytes, tuple[int, bytes]]:
    """Map each key to the sequence and value of its last record among the first ``records`` records."""
    return {key: (n, value_of(n)) for n in range(records) if (key := key_of(n)) is not None}


def rows_of(target: Path, version: int | None = None) -> dict[bytes, tuple[int, bytes]]:
    """The rows of a Delta table, by key. AssertionError if a key is there twice."""
    from deltalake import DeltaTable

    rows = DeltaTable(str(target), version).to_pyarrow_table().to_pylist()
    found = {row["key"]: (row["sequence"], row["value"]) for row in rows}
    assert len(found) == len(rows)
    return found


def versions_of(target: Path) -> list[dict[bytes, tuple[int, bytes]]]:
    """The rows of each version of a Delta table that has any."""
    from deltalake import DeltaTable

    return [rows for number in range(DeltaTable(str(target)).version() + 1) if (rows := rows_of(target, number))]


def export_latest(url: str, target: str) -> int:
    """Export to a latest-by-key table in small files. Returns the number of runs."""
    return export(LocalTasks(), url, target, table="delta", merge_on="key", task_bytes=1 << 10).runs


if __name__ == "__main__":
    export_latest(*sys.argv[1:])
