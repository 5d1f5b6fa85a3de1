"""A listener that reports how far streaming queries are behind: in the log, to the program, and to Prometheus."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from litelog.events import fields
from litelog.spark.stream.lag import describe, lag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litelog.spark.stream.lag import StreamLag
    from litelog.spark.stream.lag_metrics import LagMetrics

_logger = logging.getLogger(__name__)


class LagReports:
    """The methods of a StreamingQueryListener that reports lags. ``lag_listener`` makes a listener of them."""

    def __init__(
        self, report: Callable[[str, Mapping[str, StreamLag]], None] | None, port: int | None, host: str
    ) -> None:
        self._report = report
        self._names: dict[str, str] = {}
        self._metrics: LagMetrics | None = None
        self.port: int | None = None
        """The port at which metrics are served; None if they are not."""
        if port is not None:
            from litelog.spark.stream.lag_metrics import LagMetrics  # noqa: PLC0415 - workers need no metrics

            self._metrics = LagMetrics()
            self.port = self._metrics.serve(port, host)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no lag is known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Report the lag of a query in each log, unless it reads no log."""
        progress = event.progress
        lags = lag(progress)
        if not lags:
            return
        name = self._names.setdefault(str(progress.runId), progress.name or str(progress.id))
        if self._metrics is not None:
            self._metrics.set(name, lags)
        for line in describe(progress).splitlines():
            _logger.info("query %s: %s", name, line, extra=fields("stream-lag", query=name))
        if self._report is not None:
            self._report(name, lags)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the last report still holds."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Remove the query's metrics."""
        name = self._names.pop(str(event.runId), None)
        if name is not None and self._metrics is not None:
            self._metrics.remove(name)

    def close(self) -> None:
        """Stop serving metrics. Idempotent."""
        if self._metrics is not None:
            self._metrics.close()


def lag_listener(
    report: Callable[[str, Mapping[str, StreamLag]], None] | None = None,
    *,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
) -> Any:
    """Make a listener that reports the lag of each streaming query that reads litelog, at each of its progress reports.

    >>> spark.streams.addListener(lag_listener(metrics_port=9321))

    It logs a line for each log, at level INFO, with the event ``stream-lag``. It works with Spark Connect, in the
    client's process.

    Args:
        report: called with the query's name, or else its id, and its lag by log. Spark calls it in a separate thread.
        metrics_port: the port at which ``litelog_stream_lag_records``, ``_bytes`` and ``_seconds`` are served to
            Prometheus, with the labels ``query`` and ``log``; 0: a free one, which the listener's ``port`` names.
        metrics_host: the address of that port. By default only this machine reaches it.

    Returns:
        The pyspark.sql.streaming.StreamingQueryListener. Its ``close`` stops serving.

    Raises:
        ConfigError: the port cannot be used.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener  # noqa: PLC0415 - an extra, and slow to load

    class LagListener(LagReports, StreamingQueryListener):
        """Reports lags to Spark's listener bus."""

    return LagListener(report, metrics_port, metrics_host)
