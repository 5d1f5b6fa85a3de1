"""In a log without records, a row holds the bytes that were shipped at one time, wherever frames and tasks end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.formats.raw import RawFormat
from litelog.objects.claim import Relation
from litelog.shipping.context import Settings
from litelog.spark.options import parse_options
from litelog.spark.query.counting import count_records
from litelog.stores.registry import open_store
from replica_clients.file import FileStore
from tests.builders.child import runs_in_child
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import make_log
from tests.builders.spark_reading import planned, rows, values
from tests.builders.spark_streaming import Query, live_builder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.replica_builder import ReplicaBuilder

RUNS = [b"aaaa", b"bb", b"ccccccc", b"d", b"eeeee"]


def _shipped() -> tuple[ReplicaBuilder, str]:
    builder, url = live_builder(RawFormat("app.*"))
    generation = builder.add()
    for run in RUNS:
        generation.ship(run, "app.0")
    return builder, url


def _seal(builder: ReplicaBuilder, more: bytes = b"", *, prune: bool = True) -> None:
    """Ship the rest, begin the next log segment, seal and prune."""
    generation = builder.generations[0]
    generation.ship(more, "app.0", final=True)
    generation.ship(b"next", "app.1")
    generation.snapshot(1)
    if prune:
        generation.prune(1)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 7])
@runs_in_child
def test_a_sealed_segment_gives_the_rows_that_its_wal_segments_gave(tmp_path: Path, count: int) -> None:
    """Some runs share a frame, and one run takes several frames."""
    log = make_log(tmp_path / "log", "raw")
    settings = Settings(max_segment_bytes=4 << 20, snapshot_segments=1)
    daemon = Daemon(log, FileStore(str(tmp_path / "replica")), str(tmp_path / "state"), settings=settings)
    log.roll(1)
    for size in (10, 20, 3 << 20, 30, 1 << 20, 5):
        while daemon.sync():
            pass
        log.append(1, size)
    while daemon.sync():
        pass
    url = str(tmp_path / "replica")
    before = [(row["sequence"], row["value"]) for row in rows(url, numPartitions=count)]
    assert len(before) == 7
    log.roll(1)
    while daemon.sync():
        pass
    assert read_replica(FileStore(url))[daemon.generation].sealed
    daemon.close()
    after = [(row["sequence"], row["value"]) for row in rows(url, numPartitions=count)]
    assert after[:-1] == before
    assert b"".join(value for _, value in after) == b"".join(log.files().values())


@pytest.mark.slow
def test_a_plan_gives_the_same_rows_when_its_wal_segments_were_sealed_and_pruned() -> None:
    builder, url = _shipped()
    for count in (1, 3):
        made = planned(url, numPartitions=count)
        assert values(url, made) == RUNS
        if count == 1:
            first = made
    _seal(builder, b"more")
    assert values(url, first) == RUNS  # no bytes that were shipped since
    assert values(url, made) == RUNS
    assert values(url) == [*RUNS, b"more", b"next"]


def test_raw_rows_are_not_counted_from_sealed_segments() -> None:
    """A frame holds several runs, and a run may take several frames."""
    builder, url = _shipped()
    _seal(builder, b"more")
    assert count_records(parse_options({"path": url})) is None
    entry = builder.generations[0].entries[0]
    builder.add(builder.claim(Relation.DIVERGED, first=1), start=False).start([entry])
    assert values(url) == [*RUNS, b"more"]
    assert count_records(parse_options({"path": url})) is None


def test_sequences_count_bytes() -> None:
    builder, url = _shipped()
    for _ in range(2):
        assert values(url, startingSequence=2, endingSequence=8) == [b"aa", b"bb", b"cc"]
        if not builder.generations[0].entries:
            _seal(builder)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["well", "damaged", "lost"])
def test_a_stream_returns_each_byte_once_if_log_segments_are_sealed_meanwhile(case: str) -> None:
    """WAL segments, if they exist, replace the damaged part of a sealed segment. Only the requested part is read."""
    builder, url = _shipped()
    query = Query(url, maxFilesPerTrigger=2, mode="DROPMALFORMED" if case == "lost" else "FAILFAST")
    for _ in range(2):
        query.step()
    assert query.values() == RUNS[:2]
    _seal(builder, b"more", prune=case != "damaged")
    if case != "well":
        key = next(info.key for info in builder.store.list("") if info.key.endswith(".segment.lz4"))
        body = bytearray(builder.store.open(key).read())
        body[20] ^= 1
        open_store(url).put(key, [bytes(body)], create_only=False)
    if case == "lost":
        assert query.restart().run().values() == [*RUNS[:2], b"next"]
        return
    query.restart(forget=2).run()
    assert query.values() == [*RUNS, b"more", b"next"]


@pytest.mark.slow
def test_a_stream_continues_where_its_predecessor_ended_inside_a_run() -> None:
    builder, url = _shipped()
    query = Query(url).run()
    second = builder.add()
    second.ship(b"".join(RUNS) + b"more", "app.0")
    second.ship(b"end", "app.0")
    assert query.run().values() == [*RUNS, b"more", b"end"]
