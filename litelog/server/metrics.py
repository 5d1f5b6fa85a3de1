"""Prometheus metrics: a table that defines all of them. ``exposition`` writes their samples on each scrape.

Label values are bounded: logs and replicas come from the configuration, all others from a fixed set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.objects.claim import Relation
from litelog.objects.layout import Fencing
from litelog.objects.position import epoch_of
from litelog.replicator.task import Phase
from litelog.server.reasons import STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from litelog.replicator.status import ReplicaStatus
    from litelog.shipping.counters import ReplicaCounters

PAIR = ("log", "replica")
"""The labels of a metric about one replica of one log."""

Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. A counter's name ends in _total."""

    name: str
    kind: str
    """gauge, counter or histogram."""
    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class OfReplica:
    """A metric of each replica, and the function that makes its samples: (labels after PAIR, value)."""

    spec: MetricSpec
    samples: Callable[[ReplicaStatus], Iterable[Sample]]


def _gauge(name: str, text: str, value: Callable[[ReplicaStatus], float | None]) -> OfReplica:
    def samples(status: ReplicaStatus) -> Iterator[Sample]:
        number = value(status)
        if number is not None:
            yield (), number

    return OfReplica(MetricSpec(name, "gauge", PAIR, text), samples)


def _counter(
    name: str, labels: tuple[str, ...], text: str, samples: Callable[[ReplicaCounters], Iterable[Sample]]
) -> OfReplica:
    return OfReplica(
        MetricSpec(name, "counter", (*PAIR, *labels), text),
        lambda status: () if status.counters is None else samples(status.counters),
    )


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1_000_000


def _count_of(status: ReplicaStatus, name: str) -> float | None:
    return None if status.counters is None else _seconds(getattr(status.counters.counts, name))


OF_REPLICA = (
    _gauge(
        "litelog_replica_lag_seconds",
        "Seconds for which the oldest byte that the replica lacks has been in the log; 0 if it lacks none.",
        lambda status: None if status.meter is None else status.lag_seconds,
    ),
    _gauge(
        "litelog_replica_lag_bytes",
        "Bytes that the log's folder holds and the replica lacks.",
        lambda status: None if status.meter is None else status.lag_bytes,
    ),
    _gauge(
        "litelog_replica_lag_records",
        "Sequences of whole commits that the log's folder holds and the replica lacks, if they are counted.",
        lambda status: None if status.meter is None else status.lag_records,
    ),
    _gauge(
        "litelog_replica_position_epoch",
        "The epoch of the current generation: it grows with each new one.",
        lambda status: None if (at := status.position) is None else epoch_of(at.generation),
    ),
    _gauge(
        "litelog_replica_position_index",
        "The index of the log segment that is being shipped.",
        lambda status: None if (at := status.position) is None else at.index,
    ),
    _gauge(
        "litelog_replica_position_offset_bytes",
        "How many bytes of that log segment are acknowledged.",
        lambda status: None if (at := status.position) is None else at.offset,
    ),
    _gauge(
        "litelog_replica_next_sequence",
        "The sequence after the last record in the replica.",
        lambda status: status.sequence,
    ),
    _gauge(
        "litelog_replica_synced",
        "1 if the replica has held everything in the log at some time since the daemon started.",
        lambda status: status.synced,
    ),
    _gauge(
        "litelog_replica_frozen",
        "1 if shipping has ended because bytes are damaged, or cannot be made durable at the source.",
        lambda status: status.phase == Phase.FROZEN.value,
    ),
    _gauge(
        "litelog_replica_fenced",
        "1 if shipping has ended because another owner writes there.",
        lambda status: status.phase == Phase.FENCED.value,
    ),
    _gauge(
        "litelog_replica_stopped",
        "1 if shipping has ended for any reason: frozen, fenced, refused, or a final sync that failed.",
        lambda status: status.phase in STOPPED,
    ),
    _gauge(
        "litelog_replica_fencing_isolated",
        "1 if nothing stops a second daemon that writes to the replica (fencing: isolated).",
        lambda status: status.fencing == Fencing.ISOLATED,
    ),
    _gauge(
        "litelog_replica_consecutive_failures",
        "How many syncs in a row have failed.",
        lambda status: status.failures,
    ),
    _gauge(
        "litelog_replica_failing_seconds",
        "Seconds for which every sync has failed; 0 if the last one succeeded.",
        lambda status: status.failing_seconds,
    ),
    _gauge(
        "litelog_replica_archive_consecutive_failures",
        "How many times in a row sealing, snapshots or deletions failed.",
        lambda status: status.archive_failures,
    ),
    _gauge(
        "litelog_replica_checkpoint_consecutive_failures",
        "How many times in a row writing a checkpoint failed.",
        lambda status: status.checkpoint_failures,
    ),
    _gauge(
        "litelog_replica_queued_segments",
        "WAL segments that are encoded and not yet acknowledged.",
        lambda status: status.queued,
    ),
    _gauge(
        "litelog_replica_unsealed_segments",
        "Log segments that are finished and not yet sealed.",
        lambda status: status.unsealed,
    ),
    _gauge(
        "litelog_replica_last_shipped_timestamp_seconds",
        "When the last WAL segment was acknowledged, since the daemon started.",
        lambda status: _count_of(status, "last_shipped"),
    ),
    _gauge(
        "litelog_replica_last_snapshot_timestamp_seconds",
        "When the last snapshot was written, since the daemon started.",
        lambda status: _count_of(status, "last_snapshot"),
    ),
    _gauge(
        "litelog_replica_last_checkpoint_timestamp_seconds",
        "When the newest signed checkpoint was made.",
        lambda status: _seconds(status.checkpoint_time),
    ),
    _gauge(
        "litelog_replica_last_verified_timestamp_seconds",
        "When the replica was last checked or verified (scrub-interval).",
        lambda status: _seconds(status.last_verified),
    ),
    _gauge(
        "litelog_replica_anomalies",
        "Anomalies that the last verification found.",
        lambda status: status.anomalies,
    ),
    _gauge(
        "litelog_replica_damaged_since_timestamp_seconds",
        "When a verification first found damage that is still there.",
        lambda status: _seconds(status.damaged_since),
    ),
    _gauge(
        "litelog_replica_diverged_timestamp_seconds",
        "When the log was last rewound or rewritten, until that is dismissed.",
        lambda status: None if status.diverged is None else _seconds(status.diverged.time),
    ),
    _counter(
        "litelog_written_objects_total",
        ("object",),
        "Objects that became durable, by kind: wal, sealed or snapshot.",
        lambda counters: [
            (("wal",), counters.counts.wal_segments),
            (("sealed",), counters.counts.sealed_segments),
            (("snapshot",), counters.counts.snapshots),
        ],
    ),
    _counter(
        "litelog_written_log_bytes_total",
        ("object",),
        "Bytes of the log, uncompressed, in objects that became durable: wal or sealed.",
        lambda counters: [(("wal",), counters.counts.wal_log_bytes), (("sealed",), counters.counts.sealed_log_bytes)],
    ),
    _counter(
        "litelog_written_object_bytes_total",
        ("object",),
        "Bytes of the objects that became durable: wal or sealed.",
        lambda counters: [
            (("wal",), counters.counts.wal_object_bytes),
            (("sealed",), counters.counts.sealed_object_bytes),
        ],
    ),
    _counter(
        "litelog_requests_total",
        ("kind", "result"),
        "Requests to the store: put, get, list, delete or lock; ok, exists, not_found, not_offered or error.",
        lambda counters: counters.requests.requests.items(),
    ),
    _counter(
        "litelog_errors_total",
        ("kind",),
        "Errors with which syncs ended: store, source, source_missing, diverged, fenced, corruption, config or other.",
        lambda counters: [((kind,), count) for kind, count in counters.errors.items()],
    ),
    _counter(
        "litelog_generation_changes_total",
        ("reason",),
        "Generations that began: first, continues (after lost state or a takeover) or diverged (the log was rewound).",
        lambda counters: [((str(each),), counters.generation_changes.get(str(each), 0)) for each in Relation],
    ),
)

LATENCY = MetricSpec(
    "litelog_replication_latency_seconds",
    "histogram",
    PAIR,
    "From when bytes were noticed in the log until they were durable in the replica.",
)
REQUEST_DURATION = MetricSpec(
    "litelog_request_duration_seconds",
    "histogram",
    ("kind",),
    "How long requests to all stores took, including failed ones: put, get, list, delete or lock.",
)
VERDICT = MetricSpec(
    "litelog_verdict", "gauge", (), "The worst verdict on any replica: 0 safe, 1 unknown, 2 late, 3 unsafe."
)
REPLICA_VERDICT = MetricSpec(
    "litelog_replica_verdict", "gauge", PAIR, "The verdict on the replica: 0 safe, 1 unknown, 2 late, 3 unsafe."
)
WARNINGS = MetricSpec("litelog_warnings", "gauge", (), "How many warnings there are: they make nothing unsafe.")
HEALTHY = MetricSpec("litelog_healthy", "gauge", (), "1 if /healthz answers with 200: nothing is late or unsafe.")
READY = MetricSpec("litelog_ready", "gauge", (), "1 if /readyz answers with 200.")
LOGS = MetricSpec("litelog_logs", "gauge", (), "How many logs are replicated.")
NOT_REPLICATED = MetricSpec(
    "litelog_not_replicated",
    "gauge",
    (),
    "Configured logs and folders of logs that cannot be replicated now.",
)
FROZEN_LOGS = MetricSpec("litelog_frozen_logs", "gauge", (), "How many logs have a frozen replica.")
MAX_LAG = MetricSpec("litelog_max_lag_seconds", "gauge", (), "The configuration's max-lag.")
LAST_TURN = MetricSpec("litelog_loop_last_turn_seconds", "gauge", (), "How long ago the main loop took its last turn.")
MEASURED = MetricSpec(
    "litelog_last_measured_seconds", "gauge", (), "How long ago the logs' folders were last read to measure the lag."
)
HEARTBEATS = MetricSpec(
    "litelog_heartbeats_total",
    "counter",
    ("result",),
    "Calls of the heartbeat URL: ok, error, or withheld because the verdict was not safe.",
)
MIRROR_LAG = MetricSpec(
    "litelog_mirror_lag_seconds",
    "gauge",
    ("log", "mirror"),
    "For how long a mirror may have lacked something; 0 while it has all that is durable in the log's folder.",
)
MIRROR_SEEN = MetricSpec(
    "litelog_mirror_seen_seconds", "gauge", ("log", "mirror"), "How long ago the last request of a mirror began."
)
LOG_READERS = MetricSpec("litelog_log_readers", "gauge", ("log",), "How many read the log over HTTP.")
LOG_SENT = MetricSpec(
    "litelog_log_sent_bytes_total", "counter", ("log",), "Bytes that the readers of the log got over HTTP."
)
READER_LIMIT = MetricSpec(
    "litelog_reader_limit",
    "gauge",
    ("limit",),
    "The configured limits of readers: readers (at a time), rate (bytes in a second, of each) and bytes (of a stream).",
)
READERS_LIMITED = MetricSpec(
    "litelog_readers_limited_total",
    "counter",
    ("limit",),
    "How often a limit acted: readers refused (readers), streams ended (bytes).",
)
READERS_SLOWED = MetricSpec(
    "litelog_readers_slowed_seconds_total", "counter", (), "Seconds that streams waited, to keep to the rate."
)
BUILD = MetricSpec(
    "litelog_build_info",
    "gauge",
    ("version", "python"),
    "Always 1. The labels name the versions of litelog and Python.",
)

SPECS: tuple[MetricSpec, ...] = (
    *(metric.spec for metric in OF_REPLICA),
    LATENCY,
    REQUEST_DURATION,
    VERDICT,
    REPLICA_VERDICT,
    WARNINGS,
    HEALTHY,
    READY,
    LOGS,
    NOT_REPLICATED,
    FROZEN_LOGS,
    MAX_LAG,
    LAST_TURN,
    MEASURED,
    HEARTBEATS,
    MIRROR_LAG,
    MIRROR_SEEN,
    LOG_READERS,
    LOG_SENT,
    READER_LIMIT,
    READERS_LIMITED,
    READERS_SLOWED,
    BUILD,
)
"""All metrics, except the process_ ones of prometheus-client."""
