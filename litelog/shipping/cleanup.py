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
from litelog.objects.position import Position, generation
from litelog.retention.facts import Drop
from litelog.retention.policy import first_kept, note_drop
from litelog.shipping.backoff import needs_help
from litelog.shipping.claiming import GRACE_SECONDS
from litelog.shipping.pruner import Pruner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.objects.claim import Claim
    from litelog.objects.snapshot import Snapshot
    from litelog.shipping.archive_state import ArchiveState, Covered
    from litelog.shipping.context import Pair
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)

DELETE_SECONDS = 60.0
"""How long after a successful WAL PUT, which proved whose generation it is, anything is deleted."""


class Change(Protocol):
    """Replaces fields of the state that is kept, from any thread."""

    def __call__(self, **changes: object) -> None: ...


class Clearing:
    """Deletes for one generation. What it returns to be done is done in the background, a step at a time."""

    def __init__(
        self,
        pair: Pair,
        claim: Claim,
        state: Callable[[], ArchiveState],
        change: Change,
        save: Callable[[], None],
        first_at_source: Callable[[Snapshot], int],
    ) -> None:
        """``state``: what is kept; ``change``: of that, here, what is covered and the drops alone; ``save`` has
        it kept. ``first_at_source``: the index of the first log segment of a snapshot that the source still holds."""
        self._pair = pair
        self._state = state
        self._change = change
        self._save = save
        self._first_at_source = first_at_source
        self._pruner = Pruner(pair.client, pair.settings.retention, pair.clock, claim)
        self._lock = threading.Lock()
        self._put_at: float | None = None
        self._put_after: int | None = None
        self._proved: int | None = None
        self._refused = False
        self._stopped = False

    def put(self, snapshot: int | None) -> None:
        """A WAL segment was put; ``snapshot``: the index of the newest snapshot then."""
        with self._lock:
            self._put_at = self._pair.clock.monotonic()
            self._proved, self._put_after = self._put_after, snapshot

    def stop(self) -> None:
        """Delete nothing more."""
        self._stopped = True

    @property
    def proved_lately(self) -> bool:
        """Whether a put has proved whose generation it is within half of the grace."""
        return self._was_put_within(GRACE_SECONDS / 2)

    def next_deletion(self) -> Callable[[], None] | None:
        """The deletion of WAL segments that is due, if any."""
        covered = self._state().covered
        retention = self._pair.settings.wal_retention
        due = covered and self._pair.clock.monotonic() >= covered[0].since + retention
        return partial(self._delete, covered[0]) if due and self._may_delete() else None

    def next_pruning(self) -> Callable[[], None] | None:
        """What retention has to look at now, if anything."""
        due = self._pruner.due is not None and self._pair.clock.monotonic() >= self._pruner.due
        return partial(self._prune, self._proved) if due and self._proved is not None and self._may_delete() else None

    def first_kept(self, made: Snapshot) -> int:
        """The first index that a snapshot still has to name, by retention."""
        return first_kept(made, self._pair.settings.retention, self._state().drops, self._pruner.now)

    def snapped(self, made: Snapshot) -> None:
        """A snapshot is durable. Takes note of what the source has dropped: retention lets nothing go that any state in
        its window held. A snapshot may have been made long before, and be found only now: a drop is of now.
        """
        policy = self._pair.settings.retention
        if policy.limits:
            with suppress(SourceError):  # a folder that is missing tells nothing
                shipped = max((entry.shipped_last for entry in made.segments), default=0)
                first = self._first_at_source(made)
                drop = Drop(max(made.created, shipped, self._pair.clock.now()), first)
                self._change(drops=note_drop(self._state().drops, drop, policy))
        self._pruner.hasten()

    def _delete(self, covered: Covered) -> None:
        client, done = self._pair.client, False
        try:
            deleted, done = delete_covered(client, covered, self._may_delete)
            if deleted:
                extra = self._fields("covered-deleted", objects=deleted)
                _logger.debug("%s: deleted %d covered WAL segments", client.url, deleted, extra=extra)
        except StoreError as error:
            if not needs_help(error):
                raise
            if not self._refused:
                extra = self._fields("delete-refused")
                _logger.error("%s: covered WAL segments stay there: %s", client.url, error, extra=extra)
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
        """The next put proves anew whose generation it is."""
        with self._lock:
            self._put_at = None

    def _may_delete(self) -> bool:
        return not self._stopped and self._was_put_within(DELETE_SECONDS)

    def _was_put_within(self, seconds: float) -> bool:
        with self._lock:
            put_at = self._put_at
        return put_at is not None and self._pair.clock.monotonic() - put_at <= seconds

    def _fields(self, event: str, objects: int | None = None) -> dict[str, object]:
        return fields(event, log=self._pair.source.folder, replica=self._pair.client.url, objects=objects)


def delete_covered(client: ReplicaClient, covered: Covered, may_go_on: Callable[[], bool]) -> tuple[int, bool]:
    """Delete WAL segments below ``covered.next``; how many, and whether that was all. Ends early once ``may_go_on()``
    is false.

    The generation's last WAL segment stays, and the terminal behind it. StoreError.
    """
    deleted = 0
    for position in _deletable(client, covered):
        if not may_go_on():
            return deleted, False
        client.delete_wal_segments([position])
        deleted += 1
    return deleted, True


def _deletable(client: ReplicaClient, covered: Covered) -> Iterator[Position]:
    """Each once two more are seen behind it: the last one, and a terminal, are never among them."""
    behind: deque[Position] = deque()
    for info in client.wal_segments(generation(covered.generation)):
        behind.append(info.position)
        if len(behind) > KEPT:
            position = behind.popleft()
            if position.index >= covered.next:
                return
            yield position


KEPT = 2
"""A generation's last WAL segment and the terminal that may lie behind it."""
