"""A program reads a replica as it reads a log: from a place or a time, to its end or as it grows."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import litelog
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, range(10)),
        ({"start": 3, "end": 5}, range(3, 5)),
        ({"start": "latest"}, [9]),
        ({"start": "end"}, []),
        ({"start": 99}, []),
        ({"start": NOON + timedelta(minutes=2), "end": NOON + timedelta(minutes=4)}, range(2, 4)),
        ({"start_time": NOON + timedelta(minutes=8)}, [8, 9]),
        ({"start": NOON + timedelta(days=1)}, []),
    ],
)
def test_it_begins_and_ends_where_it_is_asked_to(backup: Path, bounds: dict[str, Any], expected: Any) -> None:
    with litelog.open_replica(backup, **bounds) as records:
        assert [record.sequence for record in records] == list(expected)


@pytest.mark.slow
def test_a_record_has_its_time_and_the_reader_its_url(backup: Path) -> None:
    with litelog.open_replica(str(backup), start=1) as records:
        record = next(records)
        assert (record.key, record.value, record.time) == (b"k", b"1", NOON + timedelta(minutes=1))
        assert records.url == f"file://{backup}"


@pytest.mark.slow
def test_it_follows_the_replica_until_another_thread_closes_it(backup: Path, orders: Path, tmp_path: Path) -> None:
    records = litelog.open_replica(backup, start="end", follow=True, poll_interval=0.01)
    read: list[bytes] = []
    arrived = threading.Event()

    def follow() -> None:
        for record in records:
            read.append(record.value)
            arrived.set()

    reader = threading.Thread(target=follow)
    reader.start()
    with (
        litelog.replicate(orders, backup, state_dir=tmp_path / "state", sync_interval=0.05),
        litelog.LogWriter(orders, fsync="never") as writer,
    ):
        writer.append(b"new")
    assert arrived.wait(WAIT_SECONDS)
    records.close()
    reader.join()
    assert read == [b"new"]
    assert next(records, None) is None


def test_a_replica_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with litelog.open_replica(tmp_path / "nope") as records, pytest.raises(litelog.NoReplicaError, match="nope"):
        next(records)
    assert not (tmp_path / "nope").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [("flie:///x", "known: .*file.*memory"), ("s3:backups/orders", "write s3:// for a URL"), ("", "empty")],
)
def test_a_mistyped_url_is_refused_before_anything_is_read(url: str, words: str) -> None:
    with pytest.raises(litelog.ConfigError, match=words):
        litelog.open_replica(url)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [{"start": NOON.replace(tzinfo=None)}, {"start": 3, "start_time": NOON}, {"generation": "new"}, {"start": 1.5}],
)
def test_wrong_arguments_are_refused(backup: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(litelog.ConfigError):
        litelog.open_replica(backup, **wrong)
    with pytest.raises(litelog.ConfigError, match="a URL, a path or a ReplicaConfig"):
        litelog.open_replica(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_replica_config_gives_the_backend_its_options(backup: Path) -> None:
    with pytest.raises(litelog.ConfigError, match="region"):
        litelog.open_replica(litelog.ReplicaConfig(url=str(backup), options={"region": "x"}))


@pytest.mark.slow
def test_arrow_batches_are_read_to_their_end(backup: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs litelog[arrow]")
    with litelog.open_replica(backup, start=4) as records:
        stream = records.arrow()
        assert isinstance(stream, pyarrow.RecordBatchReader)
        table = stream.read_all()
    assert table.column_names == ["sequence", "timestamp", "key", "value"]
    assert table.column("sequence").to_pylist() == list(range(4, 10))
    assert table.column("timestamp").to_pylist()[0] == NOON + timedelta(minutes=4)


def test_arrow_raises_the_errors_of_the_reader(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs litelog[arrow]")
    with litelog.open_replica(tmp_path / "nope") as records, pytest.raises(litelog.NoReplicaError):
        records.arrow().read_all()


@pytest.mark.slow
def test_pandas_takes_the_batches_without_a_copy(backup: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pyarrow = pytest.importorskip("pyarrow", reason="needs litelog[arrow]")
    with litelog.open_replica(backup) as records:
        table = records.arrow().read_all()
    frame = table.to_pandas(types_mapper=pandas.ArrowDtype)
    with litelog.open_replica(backup) as records:
        assert frame.equals(records.arrow().read_pandas(types_mapper=pandas.ArrowDtype))
    assert frame["value"].tolist() == [b"%d" % number for number in range(10)]
    taken = pyarrow.chunked_array(frame["value"])
    assert addresses(taken) == addresses(table.column("value"))


@pytest.mark.slow
def test_polars_takes_the_batches_without_a_copy(backup: Path) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    with litelog.open_replica(backup) as records:
        table = records.arrow().read_all()
    frame = polars.from_arrow(table, rechunk=False)
    assert frame["value"].to_list() == [b"%d" % number for number in range(10)]
    # Polars makes views of texts and bytes. Numbers stay in the same memory.
    given = [start for start, _ in addresses(table.column("sequence"))]
    assert [chunk.to_arrow().buffers()[-1].address for chunk in frame["sequence"].get_chunks()] == given
    with litelog.open_replica(backup) as records:
        assert polars.DataFrame(records.arrow()).height == 10


@pytest.mark.slow
def test_duckdb_queries_the_stream(backup: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pytest.importorskip("pyarrow", reason="needs litelog[arrow]")
    with litelog.open_replica(backup) as records, duckdb.connect() as connection:
        stream = records.arrow()
        connection.register("orders", stream)  # like a Python variable, or duckdb.from_arrow
        found = connection.execute("SELECT count(*), max(sequence) FROM orders WHERE value >= '5'::BLOB").fetchone()
    assert found == (5, 9)


def addresses(column: Any) -> list[tuple[int, int]]:
    """The address and size of each buffer of an Arrow column."""
    return [(each.buffers()[-1].address, each.buffers()[-1].size) for each in column.chunks]


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("waits", [{"block": False}, {"timeout": 0.05}])
def test_a_reader_that_does_not_wait_at_the_head_says_so_and_continues(
    backup: Path, orders: Path, tmp_path: Path, waits: dict[str, Any], several: bool
) -> None:
    place: Any = [backup, tmp_path / "none"] if several else backup
    options = {} if several else {"poll_interval": 0.01}
    read = list[int]()

    def take() -> None:
        for columns in records.batches():
            read.extend(columns.sequences.tolist())

    def read_all() -> None:
        with pytest.raises(litelog.NotYetAvailableError, match=f"{backup}: no record follows yet"):
            take()

    with litelog.open_replica(place, start=8, follow=True, **waits, **options) as records:
        read_all()
        assert read == [8, 9]
        for following in (11, 12):
            with litelog.LogWriter(orders, fsync="never") as writer:
                writer.append(b"new")
            with litelog.replicate(orders, backup, state_dir=tmp_path / "state", takeover=True) as replication:
                assert replication.wait_synced(WAIT_SECONDS)
            while read[-1] + 1 < following:
                read_all()
            assert read == list(range(8, following))
        read_all()
    assert records.read() is None


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_a_reader_of_a_replica_that_is_not_there_yet_waits_no_longer_than_it_may(tmp_path: Path, several: bool) -> None:
    places: Any = [tmp_path / "none", tmp_path / "other"] if several else tmp_path / "none"
    with litelog.open_replica(places, follow=True, block=False) as records:
        for _ in range(2):
            with pytest.raises(litelog.NotYetAvailableError, match="none: no record follows yet"):
                records.read()


@pytest.mark.slow
def test_records_before_the_start_do_not_prolong_the_wait(tmp_path: Path) -> None:
    place, rounds, stop = tmp_path / "replica", list[int](), threading.Event()

    def append(writer: litelog.LogWriter) -> None:
        while not stop.wait(0.01) and len(rounds) < 500:
            rounds.append(writer.append(b"early").first)

    with litelog.LogWriter(tmp_path / "log", fsync="never") as writer:
        writer.append(b"first")
        with litelog.replicate(tmp_path / "log", place, sync_interval=0.01) as replication:
            assert replication.wait_synced(timeout=WAIT_SECONDS)
            appending = threading.Thread(target=append, args=(writer,))
            appending.start()
            with (
                litelog.open_replica(place, start=10**6, follow=True, timeout=0.3, poll_interval=0.05) as records,
                pytest.raises(litelog.NotYetAvailableError),
            ):
                records.read()
            stop.set()
            appending.join(WAIT_SECONDS)
    assert 0 < len(rounds) < 500
