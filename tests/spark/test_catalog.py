"""A catalog of the replicas below a place: ``SELECT * FROM litelog.orders``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.keyed_replica import SEGMENT_RECORDS, KeyedReplica
from tests.builders.spark_shipping import require_columnar

if TYPE_CHECKING:
    from pathlib import Path

CATALOG = "spark.sql.catalog.replicas"


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place of a catalog ``replicas`` with the tables orders and users."""
    require_columnar(spark)
    place = tmp_path_factory.mktemp("catalog")
    KeyedReplica(place / "orders").add(2)
    KeyedReplica(place / "users").add(1)
    spark.conf.set(CATALOG, "litelog.spark.LitelogCatalog")
    spark.conf.set(f"{CATALOG}.path", f"{place}/")
    return place


def test_tables_of_a_catalog_are_the_replicas(spark: Any, catalog: Path) -> None:
    tables = spark.sql("SHOW TABLES IN replicas").collect()
    assert sorted(row.tableName for row in tables) == ["orders", "users"]
    rows = spark.sql("SELECT count(*), max(sequence) FROM replicas.orders").first()
    assert tuple(rows) == (2 * SEGMENT_RECORDS, 2 * SEGMENT_RECORDS - 1)
    joined = "SELECT o.value FROM replicas.orders o JOIN replicas.users u ON o.sequence = u.sequence"
    assert spark.sql(f"{joined} WHERE u.sequence = 3").first().value == b"value 3"
    bounded = spark.sql(f"SELECT * FROM replicas.orders WITH (startingSequence {SEGMENT_RECORDS + 5})")
    assert bounded.count() == SEGMENT_RECORDS - 5
    KeyedReplica(catalog / "later").add(1)
    assert spark.table("replicas.later").count() == SEGMENT_RECORDS


def test_a_stream_reads_a_table_of_a_catalog(spark: Any, catalog: Path, tmp_path: Path) -> None:
    writer = spark.readStream.table("replicas.users").writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "sink")).awaitTermination()
    assert spark.read.parquet(str(tmp_path / "sink")).count() == SEGMENT_RECORDS


def test_a_stream_does_not_write_to_a_table_of_a_catalog(spark: Any, catalog: Path, tmp_path: Path) -> None:
    writer = spark.readStream.table("replicas.users").writeStream.option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="doesn't support streaming write"):
        writer.toTable("replicas.orders").awaitTermination()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM replicas.`../catalog/orders`", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT * FROM replicas.`..`", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT * FROM replicas.deeper.orders", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT * FROM replicas.none", "none"),
        ("INSERT INTO replicas.orders SELECT * FROM replicas.users", "read only"),
        ("DROP TABLE replicas.orders", "read only"),
        ("CREATE TABLE replicas.new (value BINARY)", "."),
    ],
)
def test_what_a_catalog_does_not_have_or_do_is_refused(spark: Any, catalog: Path, query: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        spark.sql(query).collect()
    assert (catalog / "orders" / "epochs").is_dir()
    assert not (catalog / "new").exists()
