"""The listener reports the lag of each query: in the log, to the program, and as metrics."""

from __future__ import annotations

import logging
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from prometheus_client.parser import text_string_to_metric_families as parse_metrics

from litelog.errors import ConfigError
from litelog.objects.position import Position, generation
from litelog.spark import lag_listener
from litelog.spark.stream.lag import StreamLag
from litelog.spark.stream.lag_metrics import LABELS, METRICS, LagMetrics
from litelog.spark.stream.listener import LagReports
from litelog.spark.stream.steps import LogOffset, encode, encode_report

if TYPE_CHECKING:
    from collections.abc import Mapping

LAG = StreamLag(4, 700, 2.5)
GENERATION = generation("00000001000000a1")


def _progress(log: str, name: str | None = "orders", run: str = "run", seconds: float | None = 2.5) -> Any:
    """The event of a query that is four records behind in a log."""
    end, head = (LogOffset(Position(GENERATION, 0, offset), sequence) for offset, sequence in ((0, 5), (9, 9)))
    report = encode_report({log: head}, {log: {"bytes": 700, "seconds": seconds}})
    source = SimpleNamespace(endOffset=encode({log: end}), latestOffset=report)
    return SimpleNamespace(progress=SimpleNamespace(sources=[source], name=name, id="id", runId=run))


def _scrape(port: int | None) -> dict[tuple[str, str, str], float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels["query"], sample.labels["log"]): sample.value
        for family in parse_metrics(text)
        for sample in family.samples
    }


def test_each_progress_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    found: list[tuple[str, Mapping[str, StreamLag]]] = []
    reports = LagReports(lambda query, lags: found.append((query, lags)), None, "")
    with caplog.at_level(logging.INFO, "litelog"):
        reports.onQueryStarted(None)
        reports.onQueryProgress(_progress("bucket/a"))
        reports.onQueryProgress(_progress("bucket/a", name=None))
        reports.onQueryIdle(None)
    assert found == [("orders", {"bucket/a": LAG})] * 2  # a run keeps its name
    line = "query orders: bucket/a: next is record 5 in generation 00000001000000a1, behind by 4 records, 700 B, 2.5s"
    assert [record.getMessage() for record in caplog.records] == [line, line]
    assert {record.event for record in caplog.records} == {"stream-lag"}  # type: ignore[attr-defined]


def test_a_query_without_a_name_is_reported_with_its_id_and_other_sources_not() -> None:
    found: list[str] = []
    reports = LagReports(lambda query, _: found.append(query), None, "")
    reports.onQueryProgress(_progress("bucket/a", name=None))
    other = SimpleNamespace(sources=[SimpleNamespace(endOffset="12", latestOffset=None)], name="b", id="b", runId="b")
    reports.onQueryProgress(SimpleNamespace(progress=other))
    assert found == ["id"]


def test_metrics_are_served_until_their_query_ends() -> None:
    with closing(LagReports(None, 0, "127.0.0.1")) as reports:
        assert _scrape(reports.port) == {}
        reports.onQueryProgress(_progress("bucket/a"))
        reports.onQueryProgress(_progress('bucket/"b"\\\n', name="other", run="2", seconds=None))
        assert _scrape(reports.port) == {
            ("litelog_stream_lag_records", "orders", "bucket/a"): 4,
            ("litelog_stream_lag_bytes", "orders", "bucket/a"): 700,
            ("litelog_stream_lag_seconds", "orders", "bucket/a"): 2.5,
            ("litelog_stream_lag_records", "other", 'bucket/"b"\\\n'): 4,
            ("litelog_stream_lag_bytes", "other", 'bucket/"b"\\\n'): 700,
        }
        for run in ("run", "unknown"):
            reports.onQueryTerminated(SimpleNamespace(runId=run))
        assert {query for _, query, _ in _scrape(reports.port)} == {"other"}
    with pytest.raises(OSError, match="refused"):
        _scrape(reports.port)


def test_a_port_that_is_in_use_is_a_usage_error() -> None:
    with closing(LagReports(None, 0, "127.0.0.1")) as reports:
        assert reports.port is not None
        with pytest.raises(ConfigError, match=f"metrics cannot be served at 127.0.0.1:{reports.port} .*another port"):
            lag_listener(metrics_port=reports.port)


def test_the_metrics_have_the_names_and_labels_that_are_documented() -> None:
    metrics = LagMetrics()
    metrics.set("q", {"l": LAG})
    families = list(metrics.collect())
    assert {family.name for family in families} == set(METRICS)
    assert {tuple(sample.labels) for family in families for sample in family.samples} == {LABELS}


def test_it_is_a_listener_of_spark() -> None:
    from pyspark.sql.streaming import StreamingQueryListener

    listener = lag_listener()
    assert isinstance(listener, StreamingQueryListener)
    assert listener.port is None
    listener.close()
