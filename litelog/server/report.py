"""The status as JSON: the contract with all who read it, field by field. ``reference`` makes a document of it.

Fields are added within a version; none goes, and none changes its meaning. Times are ISO 8601 in UTC. Nothing here is
secret: URLs are without credentials.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

VERSION: Literal[1] = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _escape_names(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Escape what UTF-8 cannot hold: a message may name a file whose name is not UTF-8."""
        return {name: escape(value) if isinstance(value, str) else value for name, value in fields.items()}


class Reason(_Part):
    """Why the daemon is not healthy, or not ready."""

    kind: str = Field(
        description="lag, failing, lost, frozen, fenced, refused, failed, not_replicated, not_synced, loop_stopped, "
        "status_stalled or measuring_stalled."
    )
    log: str | None = Field(default=None, description="The log's folder, where it is about one.")
    replica: str | None = Field(default=None, description="The replica's URL, where it is about one.")
    message: str = Field(description="For people.")


class WrittenReport(_Part):
    """What became durable in a replica since the daemon started."""

    objects: int = Field(description="How many objects.")
    log_bytes: int = Field(description="Bytes of the log that they carry, uncompressed.")
    object_bytes: int = Field(description="Bytes of the objects.")


class RequestCount(_Part):
    """Requests of a replica's store since the daemon started."""

    kind: str = Field(description="put, get, list or delete.")
    result: str = Field(description="ok, exists, not_found, not_offered or error.")
    count: int = Field(description="How many.")


class FailureReport(_Part):
    """An error that shipping met."""

    time: str = Field(description="When it came last.")
    kind: str = Field(description="store, source, source_missing, diverged, fenced, corruption, config or other.")
    message: str = Field(description="What happened, where, and what to do.")
    count: int = Field(description="How often it came in a row.")


class GenerationReport(_Part):
    """A generation that became this daemon's to write."""

    time: str = Field(description="When this daemon began to write it.")
    generation: str = Field(description="16 hex digits.")
    relation: str = Field(description="To its predecessor: first, continues, diverged; resumed: it is no new one.")
    predecessor: str | None = Field(description="The generation before it.")
    reason: str | None = Field(description="Why it diverged.")


class LagSample(_Part):
    """The lag at one moment."""

    seconds_ago: float = Field(description="How long ago.")
    lag_seconds: float = Field(description="As the replica's, then.")
    lag_bytes: int = Field(description="As the replica's, then.")


class ReplicaReport(_Part):
    """One replica of one log."""

    replica: str = Field(description="Its URL, without credentials.")
    phase: str = Field(
        description="idle, syncing, sealing (finished log segments go up first), spacing (the sync interval is not "
        "over), backing off, fenced, frozen, refused, done or failed; with source state or replica: unknown."
    )
    fencing: str = Field(description="required, or isolated: then nothing stops a second daemon that writes there.")
    generation: str | None = Field(default=None, description="The generation that is written; null before the first.")
    position: str | None = Field(
        default=None, description="generation/index/offset in hex: every byte before it is in the replica."
    )
    sequence: int | None = Field(default=None, description="The sequence behind the last record there.")
    lag_seconds: float | None = Field(
        default=None,
        description="How long the oldest byte that the replica lacks has been seen in the log; 0 where there is none; "
        "null where that is not known.",
    )
    lag_bytes: int | None = Field(
        default=None, description="Bytes that the log's folder holds behind the position, whole commits or not."
    )
    synced: bool = Field(
        default=False, description="Whether it has had all that the log held, at some time since the daemon started."
    )
    queued_segments: int = Field(default=0, description="WAL segments that are made, and not acknowledged.")
    unsealed_segments: int = Field(default=0, description="Log segments that are finished, and not sealed yet.")
    failures: int = Field(default=0, description="How many syncs in a row have failed.")
    failing_seconds: float = Field(default=0.0, description="For how long.")
    error: str | None = Field(default=None, description="Why the last one failed; null where it did not.")
    archive_failures: int = Field(
        default=0, description="How often in a row sealing, snapshots or deletions failed; shipping goes on."
    )
    archive_error: str | None = Field(default=None, description="Why the last of these failed.")
    source_error: str | None = Field(default=None, description="Why the log's folder cannot be looked at.")
    snapshot: str | None = Field(default=None, description="The newest snapshot's key.")
    last_snapshot: str | None = Field(default=None, description="When the last snapshot since the start was written.")
    last_shipped: str | None = Field(default=None, description="When the last WAL segment was acknowledged.")
    last_verified: str | None = Field(default=None, description="When all of the replica was verified last.")
    anomalies: int = Field(default=0, description="What was found then.")
    lost: str | None = Field(
        default=None, description="What it lost for good: a default restore begins after that. Until it is forgotten."
    )
    verify_error: str | None = Field(default=None, description="Why the last attempt to verify it failed.")
    wal: WrittenReport | None = Field(default=None, description="WAL segments that were written.")
    sealed: WrittenReport | None = Field(default=None, description="Sealed segments that were written.")
    snapshots: int = Field(default=0, description="Snapshots that were written since the daemon started.")
    requests: list[RequestCount] = Field(default_factory=list, description="Requests by kind and result.")
    errors: dict[str, int] = Field(default_factory=dict, description="Errors by kind since the daemon started.")
    recent_errors: list[FailureReport] = Field(default_factory=list, description="The last 10, the newest last.")
    generation_changes: dict[str, int] = Field(
        default_factory=dict, description="Generations that began since the daemon started, by relation."
    )
    generations: list[GenerationReport] = Field(default_factory=list, description="The last 20, the newest last.")
    lag_history: list[LagSample] | None = Field(
        default=None,
        description="With ?history=1: the last hour, the oldest first: one sample in 10 s, in 30 s of an idle log.",
    )


class LogReport(_Part):
    """One log."""

    log: str = Field(description="Its folder.")
    replicas: list[ReplicaReport] = Field(description="Its replicas.")


class NotReplicatedReport(_Part):
    """A log that the configuration means, or a folder of logs, that is not replicated as things are. It is tried again;
    after max-lag the daemon is not healthy."""

    log: str = Field(description="Its folder.")
    replica: str | None = Field(default=None, description="The replica's URL, where it is one that cannot be opened.")
    reason: str = Field(description="Why, and what to do.")
    seconds: float = Field(description="For how long.")


class HeartbeatReport(_Part):
    """The calls of the heartbeat URL."""

    succeeded: int = Field(description="How many were answered with success.")
    failed: int = Field(description="How many were not.")
    withheld: int = Field(description="How many were left out as the daemon was not healthy.")
    last_success: str | None = Field(description="When the last one succeeded.")


class StatusReport(_Part):
    """The whole."""

    version: Literal[1] = Field(default=VERSION, description="Of this document.")
    source: str = Field(
        description="daemon: asked of it; state: read from a state folder, no daemon answered; replica: read from the "
        "replica."
    )
    litelog: str = Field(description="The version of litelog.")
    time: str = Field(description="When this was so.")
    started: str | None = Field(default=None, description="When the daemon started.")
    healthy: bool | None = Field(default=None, description="As /healthz says; null without a daemon.")
    ready: bool | None = Field(default=None, description="As /readyz says.")
    reasons: list[Reason] = Field(default_factory=list, description="Why it is not healthy or not ready.")
    max_lag_seconds: float | None = Field(default=None, description="The configuration's max-lag.")
    last_turn_seconds: float | None = Field(default=None, description="How long ago the main loop took its last turn.")
    measured_seconds: float | None = Field(
        default=None, description="How long ago the logs' folders were looked at last, for the lag."
    )
    heartbeat: HeartbeatReport | None = Field(default=None, description="null where no heartbeat URL is configured.")
    logs: list[LogReport] = Field(description="The logs, in the configuration's order.")
    not_replicated: list[NotReplicatedReport] = Field(
        default_factory=list, description="What the configuration means, and cannot be replicated as things are."
    )


class UnreachedReport(_Part):
    """A replica that a sync did not reach in time."""

    log: str = Field(description="The log's folder; empty where all are meant.")
    replica: str = Field(description="Its URL; empty where all of the log's are meant.")
    phase: str = Field(
        description="As the replica's in the status; opening, where logs were still being opened, or opened again; "
        "not replicated, where it cannot be opened."
    )
    error: str | None = Field(default=None, description="Why its last sync failed, if it did; why it is not open.")


class SyncReport(_Part):
    """The answer of POST /sync: with status 200 where all was reached, 504 where not."""

    version: Literal[1] = Field(default=VERSION, description="Of this document.")
    reached: bool = Field(description="Whether all that the logs held at the call is durable in the replicas.")
    replicas: int = Field(description="How many replicas were waited for.")
    waited_seconds: float = Field(description="How long that took.")
    unreached: list[UnreachedReport] = Field(description="Those that were not reached in time.")


PARTS: tuple[type[_Part], ...] = (
    StatusReport,
    Reason,
    HeartbeatReport,
    LogReport,
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
"""All parts, the whole first."""


def escape(text: str) -> str:
    """``text`` as UTF-8 can hold it: what a name has that is not Unicode is escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
