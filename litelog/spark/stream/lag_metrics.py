"""Metrics for Prometheus of how far streaming queries are behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily

from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from litelog.spark.stream.lag import StreamLag

LABELS = ("query", "log")
METRICS = {
    "litelog_stream_lag_records": ("records", "Records of a log that a streaming query has not processed."),
    "litelog_stream_lag_bytes": ("bytes", "Uncompressed bytes of a log that a streaming query has not processed."),
    "litelog_stream_lag_seconds": ("seconds", "For how long the first of them has been in the replica."),
}
"""Each metric: the field of a lag, and the help text. A value that is not known has no sample."""


class LagMetrics:
    """The lags of all queries of a session, as a collector of prometheus-client. For many threads."""

    def __init__(self) -> None:
        self._lags: dict[str, Mapping[str, StreamLag]] = {}
        self._lock = threading.Lock()
        self._server: Any = None

    def set(self, query: str, lags: Mapping[str, StreamLag]) -> None:
        """Replace the lags of a query."""
        with self._lock:
            self._lags[query] = dict(lags)

    def remove(self, query: str) -> None:
        """Forget a query that has ended."""
        with self._lock:
            self._lags.pop(query, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The samples of all metrics."""
        with self._lock:
            held = dict(self._lags)
        for name, (field, text) in METRICS.items():
            family = GaugeMetricFamily(name, text, labels=LABELS)
            for query, lags in sorted(held.items()):
                for log, lag in sorted(lags.items()):
                    value = getattr(lag, field)
                    if value is not None:
                        family.add_metric([query, log], value)
            yield family

    def serve(self, port: int, host: str) -> int:
        """Serve the metrics over HTTP in threads. Returns the port: another one if ``port`` is 0.

        Raises ConfigError if the port cannot be used.
        """
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"metrics cannot be served at {host}:{port} ({error}): choose another port") from None
        del thread
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving. Idempotent."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
