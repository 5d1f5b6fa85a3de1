"""Deletes what a generation no longer needs: WAL segments that its snapshots cover, and what retention frees.

It deletes only while a recent PUT proves that the generation is still the owner's, and judges by the snapshots that
were durable before that PUT. Covered WAL segments are deleted one by one, oldest first: an owner that was suspended
then finds that its last WAL segment is gone, or that the slot after it is taken. The rules are in
litelog/shipping/README.md#deletions.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from litelog.errors import SourceError, StoreError
from litelog.events import fields
from litelog.retention.facts import SourceTrim
from litelog.retention.policy import first_kept, note_drop
from litelog.shipping.backoff import needs_help
from litelog.shipping.claiming import GRACE_SECONDS
from litelog.shipping.pruner import Pruner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.objects.claim import Claim
    from litelog.objects.position import Position
    from litelog.objects.snapshot import Snapshot
    from litelog.shipping.archive_state import ArchiveState, Covered
    from litelog.shipping.context import ReplicaContext
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)

DELETE_SECONDS = 60.0
"""How long after a successful WAL PUT objects may be deleted. The PUT proved that the generation is the owner's."""


class Change(Protocol):
    """Replaces fields of the saved state, from any thread."""

    def __call__(self, **changes: object) -> None: ...


class WalCleanup:
    """Deletes for one generation. Returns deletions as steps, which run in the background one at a time."""

    def __init__(
        self,
        context: ReplicaContext,
        claim: Claim,
        state: Callable[[], ArchiveState],
        change: Change,
        save: Callable[[], None],
        first_at_source: Callable[[Snapshot], int],
    ) -> None:
        """``state`` returns the saved state. ``change`` replaces fields of it, here only ``covered`` and ``drops``;
        ``save`` saves it. ``first_at_source`` returns the index of a snapshot's first log segment that the source still
        holds."""
        self._context = context
        self._state = state
        self._change = change
        self._save = save
        self._first_at_source = first_at_source
        self._pruner = Pruner(context, claim)
        self._lock = threading.Lock()
        self._put_at: float | None = None
        self._put_after: int | None = None
        self._proved: int | None = None
        self._refused = False
        self._stopped = False

    def put(self, snapshot: int | None) -> None:
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

    def next_deletion(self) -> Callable[[], None] | None:
        """Return the deletion of WAL segments that is due; None if none is."""
        covered = self._state().covered
        retention = self._context.settings.wal_retention
        due = covered and self._context.clock.monotonic() >= covered[0].since + retention
        return partial(self._delete, covered[0]) if due and self._may_delete() else None

    def next_pruning(self) -> Callable[[], None] | None:
        """Return the retention step that is due; None if none is."""
        due = self._pruner.due is not None and self._context.clock.monotonic() >= self._pruner.due
        return partial(self._prune, self._proved) if due and self._proved is not None and self._may_delete() else None

    def first_kept(self, made: Snapshot) -> int:
        """Return the first index that a snapshot must still name, by retention."""
        return first_kept(made, self._context.settings.retention, self._state().drops, self._pruner.now)

    def snapshot_written(self, made: Snapshot) -> None:
        """Record a durable snapshot, and what the source has dropped: retention keeps whatever any state in its window
        held. The snapshot may be old and only found now, so the drop counts from now.
        """
        policy = self._context.settings.retention
        if policy.limits:
            with suppress(SourceError):  # a missing folder does not mean that anything was dropped
                shipped = max((entry.shipped_last for entry in made.segments), default=0)
                first = self._first_at_source(made)
                drop = SourceTrim(max(made.created, shipped, self._context.clock.now()), first)
                self._change(drops=note_drop(self._state().drops, drop, policy))
        self._pruner.schedule_now()

    def _delete(self, covered: Covered) -> None:
        client, done = self._context.client, False
        try:
            deleted, done = delete_covered_wal(client, covered, self._may_delete)
            if deleted:
                extra = self._fields("covered-deleted", objects=deleted)
                _logger.debug("%s: deleted %d covered WAL segments", client.url, deleted, extra=extra)
        except StoreError as error:
            if not needs_help(error):
                raise
            if not self._refused:
                extra = self._fields("delete-refused")
                _logger.error("%s: covered WAL segments cannot be deleted: %s", client.url, error, extra=extra)
            self._refused = done = True
        if done:
            self._change(covered=self._state().covered[1:])
            self._save()
        else:
            self._await_proof()

    def _prune(self, upto: int) -> None:
        if not self._pruner.run(upto, self._state().drops, self._may_delete):
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

    def _fields(self, event: str, objects: int | None = None) -> dict[str, object]:
        return fields(event, log=self._context.source.folder, replica=self._context.client.url, objects=objects)


def delete_covered_wal(
    client: ReplicaClient, covered: Covered, should_continue: Callable[[], bool]
) -> tuple[int, bool]:
    """Delete WAL segments below ``covered.next``. Return how many were deleted, and whether all were.

    Stops early once ``should_continue()`` is false. The generation's last WAL segment and the terminal after it stay.
    StoreError.
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
    behind: deque[Position] = deque()
    for info in client.wal_segments(covered.generation):
        behind.append(info.position)
        if len(behind) > KEPT:
            position = behind.popleft()
            if position.index >= covered.next:
                return
            yield position


KEPT = 2
"""A generation's last WAL segment and the terminal that may follow it."""
