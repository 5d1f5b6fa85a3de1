"""Values are decoded with Spark's functions, and the newest record of each key is kept, in batches and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from litelog.errors import ConfigError
from litelog.spark import decode, latest_by_key, write
from tests.builders.installed import needs
from tests.builders.protobuf_messages import ORDER as SHOP
from tests.builders.protobuf_messages import descriptor_set, encode

if TYPE_CHECKING:
    from pathlib import Path

ORDER = "to_json(named_struct('id', id, 'name', concat('order ', id)))"
AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}"""
FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])


@pytest.fixture(scope="module")
def orders(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The pattern of two logs: twelve orders each, of five keys and none, by one partition."""
    folder = tmp_path_factory.mktemp("orders")
    for name in ("a", "b"):
        key = f"if(id % 6 = 5, NULL, concat('{name}', id % 6)) AS key"
        write(spark.range(0, 12, 1, 1).selectExpr(f"{ORDER} AS value", key), f"{folder}/{name}")
    return f"{folder}/*"


def load(spark: Any, url: str) -> Any:
    return spark.read.format("litelog").load(url)


def of_values(spark: Any, *values: bytes | None) -> Any:
    return spark.createDataFrame([(None if value is None else bytearray(value),) for value in values], "value BINARY")


@pytest.mark.parametrize(
    ("form", "schema"), [("json", "id BIGINT, name STRING, tags ARRAY<STRING>"), (FIELDS, None)], ids=["ddl", "arrow"]
)
def test_json_becomes_the_fields_of_a_schema(spark: Any, orders: str, form: Any, schema: str | None) -> None:
    found = decode(load(spark, orders), form, schema=schema)
    assert found.columns == ["sequence", "timestamp", "key", "value", "log"]
    assert found.schema["value"].dataType.simpleString() == "struct<id:bigint,name:string,tags:array<string>>"
    rows = found.select("sequence", "value.*").where("value.id >= 10").distinct().orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(number, number, f"order {number}", None) for number in (10, 11)]


def test_json_without_a_schema_becomes_a_variant(spark: Any, orders: str) -> None:
    found = decode(load(spark, orders), "json").selectExpr("sequence", "value:id::bigint AS id", "value:none AS none")
    assert all(row.sequence == row.id and row.none is None for row in found.collect())


@pytest.mark.parametrize("schema", [None, "id BIGINT"], ids=["variant", "fields"])
def test_a_malformed_value_is_an_error_or_null(spark: Any, schema: str | None) -> None:
    frame = of_values(spark, b'{"id": 1}', b'{"id"')
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        decode(frame, "json", schema=schema).collect()
    lenient = decode(frame, "json", schema=schema, mode="PERMISSIVE")
    found = lenient.selectExpr("CAST(value:id AS BIGINT)" if schema is None else "value.id").collect()
    assert [row[0] for row in found] == [1, None]


def test_avro_is_decoded_with_its_schema(spark: Any) -> None:
    frame = of_values(spark, b"\x06\x04xy", b"\x01\x00")
    try:
        found = decode(frame, "avro", schema=AVRO)
    except ConfigError as error:
        pytest.skip(str(error))
    assert [tuple(row) for row in found.select("value.*").collect()] == [(3, "xy"), (-1, "")]
    framed = of_values(spark, b"\x00\x00\x00\x00\x07\x06\x04xy").selectExpr("substring(value, 6) AS value")
    assert decode(framed, "avro", schema=AVRO).first().value.name == "xy"
    broken = of_values(spark, b"\x06\x10xy")
    with pytest.raises(Exception, match="Malformed records are detected"):
        decode(broken, "avro", schema=AVRO).collect()
    assert decode(broken, "avro", schema=AVRO, mode="PERMISSIVE").first().value.name is None


@needs("google.protobuf")
def test_protobuf_is_decoded_without_the_jar(spark: Any, tmp_path: Path) -> None:
    """A descriptor that a program has, or a file; the name of the message with its package, or without it."""
    shop = descriptor_set(SHOP)
    (tmp_path / "shop.desc").write_bytes(shop)
    order = encode(shop, "shop.Order", id=7, name="x", state=1, tags=["a", "b"])
    frame = of_values(spark, order, b"", None)
    wanted = [(7, "x", "PAID", ["a", "b"]), (None, None, None, []), None]
    for message, descriptor in (("shop.Order", shop), ("Order", str(tmp_path / "shop.desc"))):
        found = decode(frame, "protobuf", message=message, descriptor=descriptor)
        held = found.schema["value"].dataType.simpleString()
        assert held == "struct<id:bigint,name:string,state:string,tags:array<string>>"
        assert [None if row.value is None else tuple(row.value) for row in found.collect()] == wanted
    broken = of_values(spark, b"\x08")
    with pytest.raises(Exception, match="a value is not a message Order"):
        decode(broken, "protobuf", message="Order", descriptor=shop).collect()
    assert decode(broken, "protobuf", message="Order", descriptor=shop, mode="PERMISSIVE").first().value is None


@pytest.mark.parametrize(
    ("form", "arguments", "said"),
    [
        (
            "protobuf",
            {"message": "Order", "descriptor": b"", "options": {"enums.as.ints": "true"}},
            "--packages org.apache.spark:spark-protobuf_2.13:4",
        ),
        ("protobuf", {"message": "Order", "descriptor": b""}, "has no message Order"),
        ("protobuf", {"message": "Order", "descriptor": b"no descriptor"}, "the descriptor cannot be used"),
        ("protobuf", {"descriptor": b""}, "protobuf needs message"),
        ("protobuf", {"message": "Order"}, "protobuf needs descriptor"),
        ("protobuf", {"message": "Order", "descriptor": "/nowhere"}, "descriptor /nowhere: cannot be read"),
        ("avro", {}, "avro needs schema"),
        ("xml", {}, "'xml' must be json, avro, protobuf, or a pyarrow.Schema"),
        (FIELDS, {"schema": "id BIGINT"}, "give the pyarrow.Schema alone"),
        (pa.schema([("id", pa.month_day_nano_interval())]), {}, "decode: .*month_day_nano_interval"),
        ("json", {"column": "values"}, "has no column 'values'; it has value"),
        ("json", {"mode": "DROPMALFORMED"}, "must be FAILFAST or PERMISSIVE"),
    ],
)
def test_what_cannot_be_decoded_says_what_to_give(spark: Any, form: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        decode(of_values(spark, b""), form, **arguments)


def test_the_newest_record_of_each_key_of_each_log_is_kept(spark: Any, orders: str) -> None:
    found = latest_by_key(load(spark, orders))
    assert found.columns == ["sequence", "timestamp", "key", "value", "log"]
    rows = {(row.log.rpartition("/")[2], bytes(row.key).decode(), row.sequence) for row in found.collect()}
    assert rows == {(name, f"{name}{key}", 6 + key) for name in "ab" for key in range(5)}
    by_name = decode(load(spark, orders), "json", schema="id BIGINT").selectExpr(
        "value.id % 2 AS `odd one`", "sequence"
    )
    highest = latest_by_key(by_name, key="odd one").orderBy("sequence").collect()
    assert [tuple(row) for row in highest] == [(0, 10), (1, 11)]
    with pytest.raises(ConfigError, match="order='time' is not a column; there are odd one, sequence"):
        latest_by_key(by_name, key="odd one", order="time")


def test_a_stream_updates_the_newest_record_of_each_key(spark: Any, tmp_path: Path) -> None:
    url, rows = str(tmp_path / "log"), "concat('value ', id) AS value"
    changes: list[list[tuple[str, int]]] = []

    def keep(frame: Any, _: int) -> None:
        changes.append(sorted((bytes(row.key).decode(), row.sequence) for row in frame.collect()))

    for keys in ("CAST(id AS STRING)", "CAST(id + 2 AS STRING)"):
        write(spark.range(0, 3, 1, 1).selectExpr(rows, f"{keys} AS key"), url)
        newest = latest_by_key(spark.readStream.format("litelog").load(url))
        query = newest.writeStream.outputMode("update").foreachBatch(keep)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(240)
    assert [batch for batch in changes if batch] == [[("0", 0), ("1", 1), ("2", 2)], [("2", 3), ("3", 4), ("4", 5)]]
