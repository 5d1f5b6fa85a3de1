"""Records that tests write with Spark, and checks of the written replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.formats.registry import open_format
from litelog.reading.replica_reader import ReplicaReader
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from litelog.verify.execution import verify

if TYPE_CHECKING:
    from litelog.formats.columns import Record
    from litelog.verify.findings import AnomalyKind


START = 1_700_000_000_000_000


def rows(spark: Any, count: int, partitions: int, first: int = 0) -> Any:
    """Records with their number in the value. Every third has no key; each has its own time."""
    numbers = spark.range(first, first + count, 1, partitions)
    return numbers.selectExpr(
        "concat('value ', id) AS value",
        "CAST(if(id % 3 = 0, NULL, concat('key ', id % 7)) AS BINARY) AS key",
        f"timestamp_micros({START} + id) AS timestamp",
    )


def expected(count: int, first: int = 0) -> list[tuple[int, bytes | None, bytes]]:
    """(timestamp, key, value) of the records that ``rows`` makes."""
    numbers = range(first, first + count)
    return [(START + n, None if n % 3 == 0 else b"key %d" % (n % 7), b"value %d" % n) for n in numbers]


def read_replica(url: str, **options: object) -> list[Record]:
    """All records of a replica, as litelog's own reader reads them."""
    client = ObjectReplicaClient(open_store(url, options))
    with ReplicaReader(client) as reader:
        found = [record for columns in reader.batches() for record in columns.records()]
    client.close()
    return found


def require_records(found: list[Record], wanted: list[tuple[int, bytes | None, bytes]]) -> None:
    assert [record.sequence for record in found] == list(range(len(wanted)))
    assert [(record.timestamp, record.key, record.value) for record in found] == wanted


def require_well(url: str, besides: tuple[AnomalyKind, ...] = (), **options: object) -> None:
    """Verify a replica. AssertionError if there is an anomaly of another kind than ``besides``."""
    store = open_store(url, options)
    report = verify(store, formats=open_format)
    store.close()
    assert [str(anomaly) for anomaly in report.anomalies if anomaly.kind not in besides] == []
    assert (report.failed, report.is_empty) == (0, False)
