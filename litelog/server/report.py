"""The status as JSON: the contract with its readers, field by field. ``reference`` makes a document from it.

Within a version, fields are only added. None is removed or changes its meaning. Times are ISO 8601 in UTC. Nothing here
is secret: URLs have no credentials.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from litelog.server.found_reason import escape

VERSION: Literal[1] = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _escape_names(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Escape characters that UTF-8 cannot hold: a message may name a file whose name is not UTF-8."""
        return {name: escape(value) if isinstance(value, str) else value for name, value in fields.items()}


class Reason(_Part):
    """Why a log is not safe, or not known to be safe; or a warning."""

    kind: str = Field(
        description="Unsafe: frozen, fenced, refused, failed (the final sync), damaged, lost, never_synced, "
        "unreadable, loop_stopped, status_stalled or measuring_stalled. Late: lag, failing or not_synced_for_long. "
        "Unknown: waiting (for the log's folder), not_synced or no_daemon. Warnings: diverged, archive_failing, "
        "checkpoint_failing, verify_failing, locks_failing or source_unreadable. not_replicated is unknown at first, "
        "and unsafe after max-lag."
    )
    verdict: str = Field(
        default="unknown", description="The resulting verdict: unsafe, late, unknown, or safe for a warning."
    )
    log: str | None = Field(default=None, description="The log's folder, if the reason is about one log.")
    replica: str | None = Field(default=None, description="The replica's URL, if the reason is about one replica.")
    message: str = Field(description="The reason, as text for people.")
    since: str | None = Field(default=None, description="Since when it holds; null if that is not known.")
    object: str | None = Field(
        default=None,
        description="The subject: the first damaged object's key, a generation, a folder or the replica's URL.",
    )
    action: str | None = Field(default=None, description="What to do, as text for people.")
    command: str | None = Field(default=None, description="The command to begin with, quoted for a shell.")


class WrittenReport(_Part):
    """Objects that became durable in a replica since the daemon started."""

    objects: int = Field(description="Number of objects.")
    log_bytes: int = Field(description="Bytes of the log in them, uncompressed.")
    stored_bytes: int = Field(description="Bytes of the objects.")


class RequestCount(_Part):
    """Requests of a replica's store since the daemon started."""

    kind: str = Field(description="put, get, list, delete or lock (extends the lock of an object).")
    result: str = Field(description="ok, exists, not_found, not_offered or error.")
    count: int = Field(description="Number of requests.")


class FailureReport(_Part):
    """An error during shipping."""

    time: str = Field(description="When it last happened.")
    kind: str = Field(description="store, source, source_missing, diverged, fenced, corruption, config or other.")
    message: str = Field(description="What happened, where, and what to do.")
    count: int = Field(description="How many times in a row it happened.")


class GenerationReport(_Part):
    """A generation that this daemon began or resumed."""

    time: str = Field(description="When this daemon began to write it.")
    generation: str = Field(description="16 hex digits.")
    relation: str = Field(
        description="Relation to its predecessor: first, continues or diverged. resumed: not a new generation."
    )
    predecessor: str | None = Field(description="The generation before it.")
    reason: str | None = Field(description="Why it diverged.")


class LagSample(_Part):
    """The lag at one moment."""

    seconds_ago: float = Field(description="How long ago.")
    lag_seconds: float = Field(description="The replica's lag_seconds at that time.")
    lag_bytes: int = Field(description="The replica's lag_bytes at that time.")


class ReplicaReport(_Part):
    """One replica of one log."""

    replica: str = Field(description="Its URL, without credentials.")
    verdict: str = Field(default="unknown", description="safe, late, unsafe or unknown.")
    condition: str = Field(
        default="unknown",
        description="The verdict in a word. Unsafe: frozen, fenced, refused, failed, damaged, unreadable, never "
        "synced or stalled. Late: late or failing. Unknown: waiting, starting or unknown. Safe: safe, or with "
        "a warning diverged or troubled.",
    )
    phase: str = Field(
        description="idle, syncing, sealing (finished log segments are uploaded first), spacing (the sync interval is "
        "not over), backing off, fenced, frozen, refused, done or failed. With source state or replica: unknown."
    )
    fencing: str = Field(
        description="required or isolated. With isolated, nothing stops a second daemon that writes there."
    )
    no_delete: bool = Field(default=False, description="Whether the daemon leaves every deletion to litelog prune.")
    generation: str | None = Field(default=None, description="The current generation; null before the first one.")
    position: str | None = Field(
        default=None, description="generation/index/offset in hex: every byte before it is in the replica."
    )
    next: int | None = Field(default=None, description="The sequence after the last record in the replica.")
    lag_seconds: float | None = Field(
        default=None,
        description="Seconds for which the oldest byte that the replica lacks has been in the log; 0 if it lacks none; "
        "null if that is not known.",
    )
    lag_bytes: int | None = Field(
        default=None, description="Bytes in the log's folder after the position, including an incomplete commit."
    )
    lag_records: int | None = Field(
        default=None,
        description="How many sequences of whole commits are in these bytes; null if that is not known: too many bytes "
        "follow, or the format's sequences count bytes.",
    )
    synced: bool = Field(
        default=False, description="Whether it has held everything in the log at some time since the daemon started."
    )
    queued_segments: int = Field(default=0, description="WAL segments that are encoded and not yet acknowledged.")
    unsealed_segments: int = Field(default=0, description="Log segments that are finished and not yet sealed.")
    consecutive_failures: int = Field(default=0, description="How many syncs in a row have failed.")
    failing_seconds: float = Field(default=0.0, description="Seconds for which every sync has failed.")
    sync_error: str | None = Field(default=None, description="Why the last sync failed; null if it succeeded.")
    archive_consecutive_failures: int = Field(
        default=0, description="How many times in a row sealing, snapshots or deletions failed. Shipping continues."
    )
    archive_error: str | None = Field(default=None, description="Why the last of these failed.")
    checkpoint_number: int | None = Field(default=None, description="Number of the newest signed checkpoint.")
    last_checkpoint: str | None = Field(default=None, description="When it was made.")
    checkpoint_consecutive_failures: int = Field(
        default=0, description="How many times in a row writing a checkpoint failed. Shipping continues."
    )
    checkpoint_error: str | None = Field(default=None, description="Why the last of these failed.")
    source_error: str | None = Field(default=None, description="Why the log's folder cannot be read.")
    snapshot: str | None = Field(default=None, description="The newest snapshot's key.")
    last_snapshot: str | None = Field(
        default=None, description="When the last snapshot was written, since the daemon started."
    )
    last_shipped: str | None = Field(
        default=None, description="When the last WAL segment was acknowledged, since the daemon started."
    )
    last_verified: str | None = Field(default=None, description="When the replica was last verified or checked.")
    anomaly_count: int = Field(default=0, description="Number of anomalies that this verification found.")
    damaged: list[str] = Field(
        default_factory=list, description="The keys of the objects with these anomalies, at most 100."
    )
    damaged_since: str | None = Field(default=None, description="When the first of these anomalies was found.")
    stored_bytes: int | None = Field(
        default=None, description="Bytes of all objects in the replica when it was last verified or checked."
    )
    diverged_since: str | None = Field(
        default=None, description="When the log was last rewound or rewritten, until a user dismisses it."
    )
    lost: str | None = Field(
        default=None,
        description="The data that the replica lost for good, until a user forgets the replica. A restore to the end "
        "begins after the loss.",
    )
    verify_error: str | None = Field(default=None, description="Why the last attempt to verify the replica failed.")
    lock_error: str | None = Field(default=None, description="Why locks of its objects could not be extended.")
    locks_extended: str | None = Field(
        default=None, description="When all locks that were due were last extended; null if none ever were."
    )
    wal: WrittenReport | None = Field(default=None, description="WAL segments that were written.")
    sealed: WrittenReport | None = Field(default=None, description="Sealed segments that were written.")
    snapshots: int = Field(default=0, description="Snapshots that were written since the daemon started.")
    requests: list[RequestCount] = Field(default_factory=list, description="Requests by kind and result.")
    errors: dict[str, int] = Field(default_factory=dict, description="Errors by kind since the daemon started.")
    recent_errors: list[FailureReport] = Field(
        default_factory=list, description="The last 10 errors, the newest one last."
    )
    generation_changes: dict[str, int] = Field(
        default_factory=dict, description="Generations that began since the daemon started, by relation."
    )
    recent_generations: list[GenerationReport] = Field(
        default_factory=list, description="The last 20 generations, the newest one last."
    )
    lag_history: list[LagSample] | None = Field(
        default=None,
        description="With ?history=1: the last hour, oldest sample first. One sample every 10 s; every 30 s if the log "
        "is idle.",
    )


class MirrorReport(_Part):
    """A mirror of a served log, as its last request stated it."""

    mirror: str = Field(description="Its name: the machine, and the folder there.")
    position: str = Field(description="The end of what is durable there.")
    next: int | None = Field(description="The sequence after the last record that is durable there; null: not known.")
    lag_seconds: float = Field(
        description="For how long it may have lacked something; 0 while it has all that is durable in the log's folder."
    )
    seen_seconds: float = Field(description="How long ago its last request began.")


class ServingReport(_Part):
    """The readers of served logs, their limits, and what these did since the daemon started."""

    readers: int = Field(description="How many read now.")
    max_readers: int = Field(description="How many may read at a time.")
    max_reader_rate: int | None = Field(description="Bytes in a second that one reader gets at most; null: no limit.")
    max_reader_bytes: int | None = Field(description="Bytes of one stream, which then ends; null: no limit.")
    refused_readers: int = Field(description="Readers that were refused, as there were too many.")
    slowed_seconds: float = Field(description="How long streams waited to keep to max_reader_rate, in total.")
    ended_streams: int = Field(description="Streams that ended at max_reader_bytes.")


class LogReport(_Part):
    """One log."""

    log: str = Field(description="Its folder.")
    replicas: list[ReplicaReport] = Field(description="Its replicas.")
    mirrors: list[MirrorReport] = Field(
        default=[], description="Its mirrors since the daemon started, if it is served."
    )
    mirror_wait_seconds: float | None = Field(
        default=None,
        description="How old a log segment may become while truncation keeps it for a mirror (wait-for-mirrors); null: "
        "truncation does not wait for mirrors, or there are none.",
    )
    readers: int = Field(default=0, description="How many read it over HTTP now.")
    sent_bytes: int = Field(default=0, description="Bytes that its readers got since the daemon started.")


class NotReplicatedReport(_Part):
    """A configured log, or folder of logs, that cannot be replicated now. The daemon tries again. After max-lag, the
    daemon is not healthy."""

    log: str = Field(description="Its folder.")
    replica: str | None = Field(default=None, description="The replica's URL, if the replica cannot be opened.")
    reason: str = Field(description="Why, and what to do.")
    failing_seconds: float = Field(description="Seconds for which it has not been replicated.")


class HeartbeatReport(_Part):
    """The calls of the heartbeat URL."""

    succeeded: int = Field(description="Number of calls that were answered with success.")
    failed: int = Field(description="Number of calls that failed.")
    withheld: int = Field(description="Number of calls that were not made because the verdict was not safe.")
    last_success: str | None = Field(description="When the last call succeeded.")


class StatusReport(_Part):
    """The status of the daemon, or of replicas without a daemon."""

    version: Literal[1] = Field(default=VERSION, description="The version of this document.")
    source: str = Field(
        description="Where the status comes from. daemon: the daemon answered; state: a state folder, as no daemon "
        "answered; replica: the replica itself."
    )
    litelog: str = Field(description="The version of litelog.")
    time: str = Field(description="When the status was collected.")
    started: str | None = Field(default=None, description="When the daemon started.")
    host: str | None = Field(default=None, description="The name of the daemon's host.")
    config: str | None = Field(default=None, description="The daemon's configuration file.")
    state_dir: str | None = Field(default=None, description="The daemon's state folder.")
    pid: int | None = Field(default=None, description="The daemon's process.")
    verdict: str = Field(
        default="unknown", description="The worst verdict on any replica: unsafe, late, unknown or safe."
    )
    words: str = Field(default="", description="The verdict as a line for people.")
    healthy: bool | None = Field(
        default=None, description="The answer of /healthz: whether nothing is late or unsafe; null without a daemon."
    )
    ready: bool | None = Field(default=None, description="The answer of /readyz; null without a daemon.")
    reasons: list[Reason] = Field(
        default_factory=list,
        description="Why the verdict is not safe, and all warnings, the worst first.",
    )
    max_lag_seconds: float | None = Field(default=None, description="The configuration's max-lag.")
    last_turn_seconds: float | None = Field(default=None, description="Seconds since the main loop took its last turn.")
    measured_seconds: float | None = Field(
        default=None, description="Seconds since the logs' folders were last read to measure the lag."
    )
    heartbeat: HeartbeatReport | None = Field(
        default=None, description="The heartbeat; null if no heartbeat URL is configured."
    )
    serving: ServingReport | None = Field(
        default=None, description="The readers of served logs, and their limits; null if no log is served."
    )
    logs: list[LogReport] = Field(description="The logs, in the configuration's order.")
    not_replicated: list[NotReplicatedReport] = Field(
        default_factory=list, description="Configured logs and folders of logs that cannot be replicated now."
    )


class UnreachedReport(_Part):
    """A replica that a sync did not reach in time."""

    log: str = Field(description="The log's folder; empty for all logs.")
    replica: str = Field(description="Its URL; empty for all replicas of the log.")
    phase: str = Field(
        description="The replica's phase in the status; or opening, if the daemon was still opening logs; or not "
        "replicated, if the replica cannot be opened."
    )
    sync_error: str | None = Field(default=None, description="Why its last sync failed, or why it cannot be opened.")


class SyncReport(_Part):
    """The answer of POST /sync: with status 200 if all replicas were reached, else 504."""

    version: Literal[1] = Field(default=VERSION, description="The version of this document.")
    reached: bool = Field(description="Whether everything that the logs held at the call is durable in the replicas.")
    replica_count: int = Field(description="Number of replicas that the call waited for.")
    seconds: float = Field(description="How long the call took.")
    unreached: list[UnreachedReport] = Field(description="The replicas that were not reached in time.")


PARTS: tuple[type[_Part], ...] = (
    StatusReport,
    Reason,
    HeartbeatReport,
    LogReport,
    MirrorReport,
    ServingReport,
    NotReplicatedReport,
    ReplicaReport,
    WrittenReport,
    RequestCount,
    FailureReport,
    GenerationReport,
    LagSample,
    SyncReport,
    UnreachedReport,
)
"""All parts of the documents."""
