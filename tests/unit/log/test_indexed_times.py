"""A topic of NetLog is read from a time on by the index files of its server, as the server does."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest

from litelog.errors import ConfigError
from litelog.formats.netlog import NetlogFormat
from litelog.formats.netlog.index_file import ROW
from litelog.log.reader import LogReader
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 49
FIRST_SECOND = 1_800_000_000


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """A recorded topic whose index files say that each message was written two seconds after the one before."""
    folder, second = unpack("netlog", "sets", tmp_path), FIRST_SECOND
    for path in sorted(folder.glob("*.index")):
        rows = np.frombuffer(path.read_bytes(), ROW).copy()
        used = np.flatnonzero(rows["time"] > 0)
        rows["time"][used] = second + 2 * np.arange(len(used))
        second += 2 * len(used)
        path.write_bytes(rows.tobytes())
    return folder


def first_read(folder: Path, start: datetime | str | int, **bounds: object) -> list[int]:
    with LogReader(folder, log_format=NetlogFormat(), start=start, **bounds) as reader:  # type: ignore[arg-type]
        return [int(sequence) for columns in reader.batches() for sequence in columns.sequences]


def moment(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_it_begins_with_the_first_message_of_that_time(topic: Path) -> None:
    starts = {}
    for second in range(FIRST_SECOND - 1, FIRST_SECOND + 40):
        found = first_read(topic, moment(second))
        assert found == list(range(RECORDS))[-len(found) :] if found else True
        starts[second] = found[0] if found else RECORDS
    assert starts[FIRST_SECOND - 1] == starts[FIRST_SECOND] == 0
    assert starts[FIRST_SECOND + 1] == starts[FIRST_SECOND + 2] > 0
    assert list(starts.values()) == sorted(starts.values())
    assert len(set(starts.values())) == 18  # a start for each message, and the end
    assert starts[FIRST_SECOND + 39] == RECORDS


def test_a_log_segment_without_an_index_file_is_skipped(topic: Path) -> None:
    whole = first_read(topic, moment(FIRST_SECOND))
    (oldest, *_) = sorted(topic.glob("*.index"))
    os.remove(oldest)
    found = first_read(topic, moment(FIRST_SECOND))
    assert found == whole[-len(found) :]
    assert found[0] == 12


def test_it_does_not_end_at_a_time(topic: Path) -> None:
    with pytest.raises(ConfigError, match="has no timestamps to start or end at"):
        first_read(topic, 0, end=moment(FIRST_SECOND))
