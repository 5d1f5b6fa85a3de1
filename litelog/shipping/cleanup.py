"""Deletes what a generation no longer needs: WAL segments that its snapshots cover, and what retention frees.

It deletes only while a recent PUT proves that the generation is still the owner's, and considers only snapshots that
were durable before that PUT. Covered WAL segments are deleted one by one, oldest first: so a suspended owner finds
that its last WAL segment is gone, or that the slot after it is taken. The rules are in
litelog/shipping/README.md#deletions.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from litelog.errors import StoreError
from litelog.events import fields
from litelog.objects.wal_segment import LASTING_SEGMENTS
from litelog.retention.policy import GRACE_SECONDS, first_kept
from litelog.shipping.backoff import needs_help
from litelog.shipping.pruner import Pruner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Position
    from litelog.objects.snapshot import Snapshot
    from litelog.retention.facts import SourceTrim
    from litelog.shipping.archive_state import Covered
    from litelog.shipping.context import ReplicaContext
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)

DELETE_SECONDS = 60.0
"""How long after a successful WAL PUT objects may be deleted. The PUT proved that the generation is the owner's."""


class WalCleanup:
    """Deletes for one generation. Decides from the archive's state when something is due; the archiver runs it in the
    background, one deletion at a time, and keeps the state."""

    def __init__(self, context: ReplicaContext, claim: Claim) -> None:
        self._context = context
        self._pruner = Pruner(context, claim)
        self._lock = threading.Lock()
        self._put_at: float | None = None
        self._put_after: int | None = None
        self._proved: int | None = None
        self._refused = False
        self._stopped = False

    def note_put(self, snapshot: int | None) -> None:
        """Record that a WAL segment was put; ``snapshot``: the index of the newest snapshot at that time."""
        with self._lock:
            self._put_at = self._context.clock.monotonic()
            self._proved, self._put_after = self._put_after, snapshot

    def stop(self) -> None:
        """Delete nothing more."""
        self._stopped = True

    @property
    def checked_lately(self) -> bool:
        """Whether a put within half of the grace has proved that the generation is the owner's."""
        return self._was_put_within(GRACE_SECONDS / 2)

    def due_deletion(self, covered: Sequence[Covered]) -> Covered | None:
        """Return which of ``covered`` is to be deleted now; None if nothing is due."""
        if self._context.settings.no_delete:
            return None
        retention = self._context.settings.wal_retention
        due = covered and self._context.clock.monotonic() >= covered[0].since + retention
        return covered[0] if due and self._may_delete() else None

    def due_pruning(self) -> int | None:
        """Return the index of the newest snapshot that retention may consider, if it is due; else None."""
        if self._context.settings.no_delete:
            return None
        due = self._pruner.due is not None and self._context.clock.monotonic() >= self._pruner.due
        return self._proved if due and self._may_delete() else None

    def first_kept(self, made: Snapshot, drops: Sequence[SourceTrim]) -> int:
        """Return the first index that a snapshot must still name, by retention."""
        return first_kept(made, self._context.settings.retention, drops, self._pruner.now)

    def schedule_pruning(self) -> None:
        """Apply retention soon: a snapshot is durable, and may free objects."""
        self._pruner.schedule_now()

    def delete(self, covered: Covered) -> bool:
        """Delete covered WAL segments. Return True if all are deleted, or if the store refuses deletions; False if the
        next put must prove ownership first. Raises StoreError."""
        client = self._context.client
        try:
            deleted, done = delete_covered_wal(client, covered, self._may_delete)
            if deleted:
                extra = self._fields("covered-deleted", deleted_objects=deleted)
                _logger.debug("%s: deleted %d covered WAL segments", client.url, deleted, extra=extra)
        except StoreError as error:
            if not needs_help(error):
                raise
            if not self._refused:
                extra = self._fields("delete-refused")
                _logger.error("%s: covered WAL segments cannot be deleted: %s", client.url, error, extra=extra)
            self._refused = done = True
        if not done:
            self._await_proof()
        return done

    def prune(self, last_snapshot: int, drops: Sequence[SourceTrim]) -> None:
        """Delete what retention frees by the snapshots up to index ``last_snapshot``. Raises StoreError."""
        if not self._pruner.run(last_snapshot, drops, self._may_delete):
            self._await_proof()

    def _await_proof(self) -> None:
        """Wait for the next put, which proves again that the generation is the owner's."""
        with self._lock:
            self._put_at = None

    def _may_delete(self) -> bool:
        return not self._stopped and self._was_put_within(DELETE_SECONDS)

    def _was_put_within(self, seconds: float) -> bool:
        with self._lock:
            put_at = self._put_at
        return put_at is not None and self._context.clock.monotonic() - put_at <= seconds

    def _fields(self, event: str, deleted_objects: int | None = None) -> dict[str, object]:
        where = self._context.source.folder, self._context.client.url
        return fields(event, log=where[0], replica=where[1], deleted_objects=deleted_objects)


def delete_covered_wal(
    client: ReplicaClient, covered: Covered, should_continue: Callable[[], bool]
) -> tuple[int, bool]:
    """Delete WAL segments below ``covered.next``. Return how many were deleted, and whether all were.

    Stops early once ``should_continue()`` is false. The generation's last WAL segment and the terminal after it stay.
    Raises StoreError.
    """
    deleted = 0
    for position in _deletable(client, covered):
        if not should_continue():
            return deleted, False
        client.delete_wal_segments([position])
        deleted += 1
    return deleted, True


def _deletable(client: ReplicaClient, covered: Covered) -> Iterator[Position]:
    """Yield each WAL segment once two more follow it, so that the last one and a terminal are never deleted."""
    last: deque[Position] = deque()
    for info in client.wal_segments(covered.generation):
        last.append(info.position)
        if len(last) > LASTING_SEGMENTS:
            position = last.popleft()
            if position.index >= covered.next:
                return
            yield position
