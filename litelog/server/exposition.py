"""Writes the metrics as text, in the two formats of Prometheus.

prometheus-client makes an object of each sample, and a thousand logs have fifty thousand. Here a sample becomes a line
at once, and the labels of a replica are written once for all its lines. The client still chooses the format that a
scraper asks for, and writes the metrics of the process.
"""

from __future__ import annotations

import math
import platform
from functools import cache
from typing import TYPE_CHECKING

from litelog.replicator.task import Phase
from litelog.server.found_reason import escape
from litelog.server.metrics import (
    BUILD,
    FROZEN_LOGS,
    HEALTHY,
    HEARTBEATS,
    LAST_TURN,
    LATENCY,
    LOG_READERS,
    LOG_SENT,
    LOGS,
    MAX_LAG,
    MEASURED,
    MIRROR_LAG,
    MIRROR_SEEN,
    NOT_REPLICATED,
    OF_REPLICA,
    PAIR,
    READER_LIMIT,
    READERS_LIMITED,
    READERS_SLOWED,
    READY,
    REPLICA_VERDICT,
    REQUEST_DURATION,
    VERDICT,
    WARNINGS,
)
from litelog.server.verdict import VERDICT_NUMBERS, judge
from litelog.stores.metered_store import BOUNDS, KINDS, Durations
from litelog.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.live.mirrors import MirrorStatus
    from litelog.live.reader_limits import ServingStatus
    from litelog.replicator.status import ReplicaStatus
    from litelog.server.daemon_view import StatusCache
    from litelog.server.heartbeat import Heartbeat
    from litelog.server.metrics import MetricSpec
    from litelog.server.status_view import StatusView
    from litelog.server.verdict import Judgement


def write_metrics(
    status_cache: StatusCache,
    heartbeat: Heartbeat | None,
    serving: ServingStatus | None,
    *,
    openmetrics: bool,
) -> str:
    """Write all metrics of ``metrics.SPECS``, as OpenMetrics without its last line, or in the older text format.

    ``serving``: the readers and mirrors of served logs.
    """
    snapshot = status_cache.read()
    judgement = judge(snapshot, status_cache.rules)
    text = _Text(openmetrics=openmetrics)
    _write_replicas(text, snapshot.statuses)
    _write_verdicts(text, judgement)
    _write_daemon(text, snapshot, judgement, status_cache.rules.max_lag)
    text.begin(HEARTBEATS)
    if heartbeat is not None:
        report = heartbeat.report()
        for result, count in (("ok", report.succeeded), ("error", report.failed), ("withheld", report.withheld)):
            text.add(HEARTBEATS.name, _labels(HEARTBEATS.labels, (result,)), count)
    _write_mirrors(text, {} if serving is None else serving.mirrors)
    _write_readers(text, serving)
    text.begin(BUILD)
    text.add(BUILD.name, _labels(BUILD.labels, (VERSION, platform.python_version())), 1)
    return text.join()


class _Text:
    """The lines of one answer."""

    def __init__(self, *, openmetrics: bool) -> None:
        self._openmetrics = openmetrics
        self._lines: list[str] = []

    def begin(self, spec: MetricSpec) -> None:
        """Begin a metric: all its samples follow."""
        name, text = spec.name, spec.help.replace("\\", r"\\").replace("\n", r"\n")
        if self._openmetrics:
            name, text = name.removesuffix("_total"), text.replace('"', r"\"")
        self._lines.append(f"# HELP {name} {text}\n# TYPE {name} {spec.kind}\n")

    def add(self, name: str, labels: str, value: float) -> None:
        """Add a sample."""
        braced = f"{{{labels}}}" if labels else ""
        self._lines.append(f"{name}{braced} {_write_number(value)}\n")

    def add_histogram(self, spec: MetricSpec, labels: str, observed: Durations) -> None:
        """Add the samples of a histogram: cumulative counts by upper bound, their number and their sum."""
        below = 0
        for bound, count in zip(_BOUND_LABELS, observed.counts, strict=True):
            below += count
            self._lines.append(f"{spec.name}_bucket{{{labels},{bound}}} {below}.0\n")
        self.add(f"{spec.name}_count", labels, below)
        self.add(f"{spec.name}_sum", labels, observed.total)

    def join(self) -> str:
        return "".join(self._lines)


_BOUND_LABELS = tuple(f'le="{bound}"' for bound in (*BOUNDS, "+Inf"))


def _write_replicas(text: _Text, statuses: Sequence[ReplicaStatus]) -> None:
    labelled = [(_labels(PAIR, (each.log, each.replica)), each) for each in statuses]
    for metric in OF_REPLICA:
        name, more = metric.spec.name, metric.spec.labels[len(PAIR) :]
        text.begin(metric.spec)
        for pair, status in labelled:
            for values, number in metric.samples(status):
                text.add(name, f"{pair},{_known_labels(more, values)}" if values else pair, number)
    text.begin(LATENCY)
    durations = dict.fromkeys(KINDS, Durations())
    for pair, status in labelled:
        if status.counters is not None:
            text.add_histogram(LATENCY, pair, status.counters.latency)
            for kind, observed in status.counters.requests.durations.items():
                durations[kind] += observed
    text.begin(REQUEST_DURATION)
    for kind, observed in durations.items():
        text.add_histogram(REQUEST_DURATION, _labels(REQUEST_DURATION.labels, (kind,)), observed)


def _write_verdicts(text: _Text, judgement: Judgement) -> None:
    text.begin(REPLICA_VERDICT)
    for pair, condition in judgement.replicas.items():
        text.add(REPLICA_VERDICT.name, _labels(PAIR, pair), VERDICT_NUMBERS[condition.verdict])


def _write_daemon(text: _Text, snapshot: StatusView, judgement: Judgement, max_lag: float) -> None:
    values = {
        VERDICT: VERDICT_NUMBERS[judgement.verdict],
        WARNINGS: judgement.warnings,
        HEALTHY: judgement.healthy,
        READY: not judgement.unready,
        LOGS: len({each.log for each in snapshot.statuses}),
        NOT_REPLICATED: len(snapshot.not_replicated),
        FROZEN_LOGS: len({each.log for each in snapshot.statuses if each.phase == Phase.FROZEN.value}),
        MAX_LAG: max_lag,
        LAST_TURN: max(0.0, snapshot.now - snapshot.last_turn),
        MEASURED: max(0.0, snapshot.now - snapshot.measured),
    }
    for spec, value in values.items():
        text.begin(spec)
        text.add(spec.name, "", value)


def _write_mirrors(text: _Text, mirrors: Mapping[str, Sequence[MirrorStatus]]) -> None:
    labelled = [
        (_labels(MIRROR_LAG.labels, (log, each.mirror)), each) for log, found in mirrors.items() for each in found
    ]
    text.begin(MIRROR_LAG)
    for labels, each in labelled:
        text.add(MIRROR_LAG.name, labels, each.lag_seconds)
    text.begin(MIRROR_SEEN)
    for labels, each in labelled:
        text.add(MIRROR_SEEN.name, labels, each.seen_seconds)


def _write_readers(text: _Text, serving: ServingStatus | None) -> None:
    readers: Mapping[str, float] = {}
    sent: Mapping[str, float] = {}
    limits: Mapping[str, float] = {}
    limited: Mapping[str, float] = {}
    slowed = 0.0
    if serving is not None:
        readers, sent = serving.readers, serving.sent_bytes
        given = {"readers": serving.limits.readers, "rate": serving.limits.rate, "bytes": serving.limits.size}
        limits = {name: limit for name, limit in given.items() if limit is not None}
        limited = {"readers": serving.refused, "bytes": serving.ended}
        slowed = serving.slowed_seconds
    for spec, values in ((LOG_READERS, readers), (LOG_SENT, sent), (READER_LIMIT, limits), (READERS_LIMITED, limited)):
        text.begin(spec)
        for name, value in values.items():
            text.add(spec.name, _labels(spec.labels, (name,)), value)
    text.begin(READERS_SLOWED)
    if serving is not None:
        text.add(READERS_SLOWED.name, "", slowed)


def _write_number(value: float) -> str:
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else f"{'+' if number > 0 else '-'}Inf"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    return ",".join(f'{name}="{_quote(value)}"' for name, value in zip(names, values, strict=True))


_known_labels = cache(_labels)
"""For the values of fixed sets: kinds, results and reasons."""


def _quote(value: str) -> str:
    return escape(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
