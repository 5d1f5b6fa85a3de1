"""The time columns of a stream carry watermarks: windows close, late records are left out, streams are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.functions import expr, window

from litelog.spark import write
from tests.sampling import one_in_a_run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SECONDS = 240

timed = one_in_a_run(("windows", "join"), "times of a stream")
"""For tests whose queries keep a state: six micro-batches each."""


def append(spark: Any, url: str, times: Iterable[int]) -> None:
    """Append records with these times, in seconds since 1970, which their values state, too."""
    rows = spark.createDataFrame([(time,) for time in times], "time BIGINT").coalesce(1)
    write(rows.selectExpr("CAST(time AS STRING) AS value", "timestamp_seconds(time) AS timestamp"), url)


def stream(spark: Any, url: str, late: str) -> Any:
    return spark.readStream.format("litelog").load(url).withWatermark("timestamp", late)


def run(frame: Any, name: str, folder: Path) -> Any:
    """Run a query on what exists, from its checkpoint on. It adds its rows to the table in ``folder``."""
    writer = frame.writeStream.format("parquet").queryName(name).option("path", str(folder / name))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS)
    return query


@timed("windows")
def test_windows_close_at_the_watermark_and_late_records_are_left_out(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    dropped = 0
    for times in (range(30), (1, 27, 60)):  # 1 is late, and 27 is not: the watermark is at 24
        append(spark, url, times)
        windows = stream(spark, url, "5 seconds").groupBy(window("timestamp", "10 seconds")).count()
        query = run(windows.selectExpr("unix_seconds(window.start) AS start", "count"), "windows", tmp_path)
        dropped += sum(
            operator.numRowsDroppedByWatermark for each in query.recentProgress for operator in each.stateOperators
        )
    found = spark.read.parquet(str(tmp_path / "windows")).orderBy("start").collect()
    assert [tuple(row) for row in found] == [(0, 10), (10, 10), (20, 11)]
    assert dropped == 1


@timed("join")
def test_two_streams_are_joined_on_their_times(spark: Any, tmp_path: Path) -> None:
    orders, payments = str(tmp_path / "orders"), str(tmp_path / "payments")
    near = "paid BETWEEN ordered AND ordered + INTERVAL 10 SECONDS AND order % 3 = payment % 3"
    ordered, paid = [*range(4, 44, 4)], [*range(30, 60, 7)]
    for more in (0, 1000):
        append(spark, orders, [time + more for time in ordered])
        append(spark, payments, [time + more for time in paid])
        left = stream(spark, orders, "20 seconds").selectExpr(
            "timestamp AS ordered", "CAST(CAST(value AS STRING) AS INT) AS order"
        )
        right = stream(spark, payments, "20 seconds").selectExpr(
            "timestamp AS paid", "CAST(CAST(value AS STRING) AS INT) AS payment"
        )
        joined = left.join(right, expr(near), "leftOuter").select("order", "payment")
        run(joined, "joined", tmp_path)
    found = [tuple(row) for row in spark.read.parquet(str(tmp_path / "joined")).collect()]
    pairs = {
        (order + more, payment + more)
        for more in (0, 1000)
        for order in ordered
        for payment in paid
        if order <= payment <= order + 10 and (order + more) % 3 == (payment + more) % 3
    }
    alone = {(order, None) for order in ordered if not any(order == paired for paired, _ in pairs)}
    assert pairs
    assert alone
    assert len(found) == len(set(found))
    assert {pair for pair in found if pair[1] is not None} == pairs
    assert {pair for pair in found if pair[1] is None and pair[0] < 1000} == alone
