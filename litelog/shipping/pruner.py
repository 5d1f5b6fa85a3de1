"""Deletes what retention lets go of a replica, as its owner: judged by a plan, in steps, while ownership is proved."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from litelog.errors import LitelogError, StoreError
from litelog.events import fields
from litelog.retention.deletion import delete_planned
from litelog.retention.gathering import Gathering
from litelog.retention.plan import plan_retention
from litelog.shipping.backoff import needs_help
from litelog.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.objects.claim import Claim
    from litelog.retention.facts import Drop
    from litelog.retention.policy import RetentionPolicy
    from litelog.retention.removal import Removal
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

PRUNE_SECONDS = 3600.0
"""How often it is looked what may go."""

MICROSECONDS = 1_000_000


class CautiousTime:
    """The time that ages are told by: the wall clock's, but never ahead of where the steady clock says that it must be.

    A clock that is set forward makes nothing older; one that is set back makes what is there younger.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self._started_at = clock.monotonic()

    def now(self) -> int:
        """Microseconds since 1970."""
        steady = self._started + int((self._clock.monotonic() - self._started_at) * MICROSECONDS)
        return min(self._clock.now(), steady)


class Pruner:
    """Prunes one replica, for one generation's owner. Used by one thread at a time, but for ``due``."""

    def __init__(self, client: ReplicaClient, policy: RetentionPolicy, clock: Clock, claim: Claim) -> None:
        self._client = client
        self._claim = claim
        self._policy = policy
        self._clock = clock
        self._time = CautiousTime(clock)
        self._gathering = Gathering(client)
        self._left: list[Removal] = []
        self._reported = ""
        self._due = clock.monotonic() + PRUNE_SECONDS

    @property
    def now(self) -> int:
        """The time that ages are told by, microseconds since 1970."""
        return self._time.now()

    @property
    def due(self) -> float | None:
        """When to ``run`` next, in monotonic seconds; None where nothing limits what is kept."""
        return self._due if self._policy.limits else None

    def hasten(self) -> None:
        """A snapshot was written: something may go by it."""
        self._due = self._clock.monotonic()

    def run(self, upto: int, drops: Sequence[Drop], may_go_on: Callable[[], bool]) -> bool:
        """Delete what may go now, judged by snapshots up to index ``upto`` of the newest generation: they were durable
        before the last WAL segment was put. Whether that was all; ends early once ``may_go_on()`` is false.

        What only somebody's help can mend (a permission that is missing, a snapshot of a newer litelog) is reported
        once, and tried again in an hour. StoreError for what may pass: run it again.
        """
        try:
            if not self._left:
                facts = self._gathering.gather(drops, upto, self._claim)
                if facts is not None:
                    self._left = list(plan_retention(facts, self._policy, self.now).removals)
            self._delete(may_go_on)
        except LitelogError as error:
            if isinstance(error, StoreError) and not needs_help(error):
                raise
            self._report(error)
            self._left = []
        if self._left:
            return False
        self._due = self._clock.monotonic() + PRUNE_SECONDS
        return True

    def _report(self, error: LitelogError) -> None:
        reason = error.reason if isinstance(error, StoreError) else str(error)
        if reason != self._reported:
            extra = fields("prune-failed", replica=self._client.url)
            _logger.error("%s: what retention lets go stays there: %s", self._client.url, error, extra=extra)
        self._reported = reason

    def _delete(self, may_go_on: Callable[[], bool]) -> None:
        deleted = freed = 0
        try:
            for step in delete_planned(self._client, tuple(self._left), may_go_on):
                del self._left[: len(step)]
                deleted += len(step)
                freed += sum(removal.size for removal in step)
        finally:
            if deleted:
                said = "%s: retention deleted %d objects, %s"
                extra = fields("pruned", replica=self._client.url, objects=deleted, bytes=freed)
                _logger.info(said, self._client.url, deleted, format_size(freed), extra=extra)
