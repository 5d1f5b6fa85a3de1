"""Prints the output of ``litelog replicate --json``: one JSON line for each event, from a separate thread."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from queue import Full, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from litelog_cli.output import json_time, print_json

if TYPE_CHECKING:
    from types import TracebackType

    from litelog.objects.claim import Claim
    from litelog.replicator.status import ReplicaStatus
    from litelog.shipping.events import ScrubFinished, SegmentSealed, SnapshotWritten, WalSegmentShipped

PATIENCE_SECONDS = 1.0
"""How many seconds a stalled reader of standard output may delay the exit once the process is stopping."""

MAX_QUEUED_EVENTS = 10_000
"""The most events that wait for a slow reader. Further ones are counted and dropped: replication does not wait."""


_JUDGED = ("verdict", "condition", "lag_history")
"""The facts about a replica that only a running daemon prints."""


class EventLines:
    """A listener that prints. What a printed line reports is durable, no matter what happens to this process later."""

    def __init__(self) -> None:
        self._queue: Queue[dict[str, Any] | None] = Queue(MAX_QUEUED_EVENTS)
        self._left_out = 0
        self._failure: OSError | None = None
        """Why printing has stopped: the reader is gone, or the destination is full."""
        self.patience: float | None = None
        """Seconds that the end waits for the reader to take the last lines; None: no limit."""
        self._thread = Thread(target=self._print_all, name="events")  # may hang: main() does not wait for it

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None:
        """This daemon started a generation."""
        facts = {"event": "began", "log": log, "replica": replica}
        self._put(facts | {"generation": claim.generation, "fencing": claim.fencing})

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        """A WAL segment is durable in the replica."""
        facts = {"event": "shipped", "log": event.log, "replica": event.replica, "position": str(event.end)}
        header = event.header
        self._put(facts | {"next": header.next, "log_bytes": header.length, "stored_bytes": event.size})

    def on_segment_sealed(self, event: SegmentSealed) -> None:
        """A sealed segment is durable in the replica."""
        entry = event.entry
        facts = {"event": "sealed", "log": event.log, "replica": event.replica, "index": entry.index}
        sizes = {"object": entry.key, "file": entry.file, "log_bytes": entry.length, "stored_bytes": entry.size}
        self._put({**facts, **sizes, "unsealed_segments": event.left})

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        """A snapshot is durable in the replica."""
        facts = {"event": "snapshot", "log": event.log, "replica": event.replica, "object": event.key}
        self._put({**facts, "first_index": event.first, "next_index": event.next})

    def on_scrub_finished(self, event: ScrubFinished) -> None:
        """A replica was verified."""
        facts = {"event": "verified", "log": event.log, "replica": event.replica}
        result = event.verified
        counts = {"anomaly_count": result.anomalies, "unreadable_count": result.unread}
        ages = {"time": json_time(result.time), "damaged_since": json_time(result.damaged_since or None)}
        read = {"objects": result.objects, "stored_bytes": result.bytes, "seconds": result.seconds}
        found = {
            "verify_error": result.error,
            "damaged": result.damaged,
            "anomalies": [each.as_json() for each in event.new],
        }
        self._put({**facts, **ages, **read, **counts, **found})

    def ended(self, status: ReplicaStatus) -> None:
        """The final state of a replica."""
        from litelog.server.make_report import make_replica  # its models take 20 ms, and few runs print this

        with suppress(Full):
            report = make_replica(status).model_dump(exclude=set(_JUDGED))
            self._queue.put({"event": "status", "log": status.log, **report}, timeout=self.patience)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(Full):
            self._queue.put(None, timeout=self.patience)
        self._thread.join(self.patience)
        if self._thread.is_alive():
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - to flush the old one would hang
        if self._failure is not None and kind is None:
            raise self._failure

    def _put(self, facts: dict[str, Any]) -> None:
        try:
            self._queue.put_nowait(facts)
        except Full:
            self._left_out += 1

    def _print_all(self) -> None:
        while (facts := self._queue.get()) is not None:
            if self._left_out:
                facts["left_out_events"], self._left_out = self._left_out, 0
            try:
                if self._failure is None:
                    print_json(facts)
                    sys.stdout.flush()
            except OSError as error:
                self._failure = error  # replication continues without it
