"""A start before the first record of a log whose sequences begin above 0, and whose writer notes that it removed
records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import TruncatedError
from litelog.formats.influxdb import InfluxdbFormat
from litelog.reading.latest import open_latest
from litelog.reading.replica_reader import ReplicaReader
from litelog.stores.registry import open_client, open_store
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder
from tests.builders.recorded_logs import unpack
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_reading import rows
from tests.builders.spark_streaming import Query

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """A topic whose first message has index 1, and which was never truncated."""
    return unpack("influxdb", "topic_1", tmp_path)


def ship(topic: Path, *, sealed: bool = True) -> str:
    url = f"file://{topic}-replica"
    log = LogBuilder(str(topic), InfluxdbFormat())
    Daemon(log, open_store(url), f"{topic}-state", backlog_sealer=sealed).sync()
    return url


def read(url: str, start: int) -> list[int]:
    with ReplicaReader(open_client(url), start=start) as reader:
        return [sequence for batch in reader.batches() for sequence in batch.sequences.tolist()]


@pytest.mark.parametrize("sealed", [True, False])
def test_it_is_the_first_record_if_none_was_removed(topic: Path, sealed: bool) -> None:
    url = ship(topic, sealed=sealed)
    every = read(url, 1)
    assert (every[0], read(url, 0)) == (1, every)
    for place in (url, str(topic)):
        named = {"format": "influxdb"} if place == str(topic) else {}
        assert [row["sequence"] for row in rows(place, startingSequence=0, **named)] == every
    assert Query(url, startingSequence="0").run().sequences() == every


@pytest.mark.parametrize("sealed", [True, False])
def test_it_is_an_error_if_the_broker_removed_records(topic: Path, sealed: bool) -> None:
    (topic / "1").unlink()
    (topic / "tombstone").touch()
    url = ship(topic, sealed=sealed)
    with pytest.raises(TruncatedError):
        read(url, 0)
    with pytest.raises(TruncatedError):
        rows(url, startingSequence=0)
    with pytest.raises(TruncatedError):
        rows(str(topic), startingSequence=0, format="influxdb")
    with pytest.raises(TruncatedError):
        Query(url, startingSequence="0").run()


def test_it_is_an_error_if_the_replica_no_longer_holds_the_first_record() -> None:
    writer_removed_nothing = InfluxdbFormat()
    builder = ReplicaBuilder()
    generation = builder.add()
    for segment in make_log([[3], [2], [4]]):
        generation.ship_segment(segment)
    for first, truncated in ((0, False), (1, True)):
        generation.snapshot(3 if first else 2, first=first)
        base = open_latest(builder.client).base
        assert (base.first.index, base.was_truncated(writer_removed_nothing)) == (first, truncated)
