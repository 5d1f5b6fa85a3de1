"""Deletes what retention frees in a replica, step by step, while ownership is proved.

The owner prunes in its daemon. Without a daemon, the owner that the state folder names prunes under its lock. A pruner
has its own credentials and no state: it prunes while a daemon with ``no-delete`` runs.

Specified in litelog/shipping/README.md#deletions.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import FencedError, LitelogError, StoreError
from litelog.events import fields
from litelog.retention.deletion import delete_planned
from litelog.retention.facts import Gathering
from litelog.retention.plan import RetentionPlan, plan_retention
from litelog.shipping.archive_state import resume_archive
from litelog.shipping.backoff import needs_help
from litelog.shipping.claiming import check_ownership
from litelog.shipping.state import Running, StateFolder, Unclaimed, read_state
from litelog.units import MICROSECONDS, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import ClaimName
    from litelog.retention.facts import Removal, SourceTrim
    from litelog.retention.policy import RetentionPolicy
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.state import ReplicaState
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

PRUNE_SECONDS = 3600.0
"""How often retention is applied, in seconds."""


class CautiousTime:
    """The time from which ages are computed: the wall clock's, but never ahead of the steady clock.

    Setting the clock forward makes nothing older. Setting it back makes objects younger.
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
    """Prunes one replica, for one generation's owner. One thread at a time uses it, except for ``due``."""

    def __init__(self, context: ReplicaContext, claim: Claim) -> None:
        self._client = context.client
        self._claim = claim
        self._policy = context.settings.retention
        self._clock = context.clock
        self._time = CautiousTime(context.clock)
        self._gathering = Gathering(context.client)
        self._left: list[Removal] = []
        self._reported = ""
        self._due = self._clock.monotonic() + PRUNE_SECONDS

    @property
    def now(self) -> int:
        """The time from which ages are computed, in microseconds since 1970."""
        return self._time.now()

    @property
    def due(self) -> float | None:
        """When to ``run`` next, in monotonic seconds; None if the policy has no limits."""
        return self._due if self._policy.limits else None

    def schedule_now(self) -> None:
        """Apply retention soon: a new snapshot may free objects."""
        self._due = self._clock.monotonic()

    def run(self, last_snapshot: int, drops: Sequence[SourceTrim], should_continue: Callable[[], bool]) -> bool:
        """Delete the objects that retention frees now, by the snapshots of the newest generation up to index
        ``last_snapshot``: these were durable before the last WAL segment was put.

        Returns whether all were deleted; stops early once ``should_continue()`` is false. An error that only a person
        can fix (a missing permission, a snapshot of a newer litelog) is logged once, and retried in an hour. StoreError
        for an error that may pass: run it again.
        """
        try:
            if not self._left:
                facts = self._gathering.gather(drops, last_snapshot, self._claim)
                if facts is not None:
                    self._left = list(plan_retention(facts, self._policy, self.now).removals)
            self._delete(should_continue)
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
            _logger.error("%s: retention cannot delete: %s", self._client.url, error, extra=extra)
        self._reported = reason

    def _delete(self, should_continue: Callable[[], bool]) -> None:
        deleted = freed = 0
        try:
            for step in delete_planned(self._client, tuple(self._left), should_continue):
                del self._left[: len(step)]
                deleted += len(step)
                freed += sum(removal.size for removal in step)
        finally:
            if deleted:
                message = "%s: retention deleted %d objects, %s"
                extra = fields("pruned", replica=self._client.url, deleted_objects=deleted, removed_bytes=freed)
                _logger.info(message, self._client.url, deleted, format_size(freed), extra=extra)


PROOF_SECONDS = 30.0
"""How long a proof of ownership stays valid, in seconds."""


class NotOwnerError(FencedError):
    """The state folder holds no owner's state, and nothing can be pruned without it."""

    def __init__(self, replica: str, reason: str) -> None:
        super().__init__(f"{replica}: {reason}; only its owner deletes: run this where its daemon keeps its state")


class NewClaimError(FencedError):
    """A generation began while a pruner worked."""

    def __init__(self, replica: str) -> None:
        super().__init__(f"{replica}: a generation began meanwhile: run this again")


@dataclass(frozen=True, slots=True)
class Pruned:
    """The retention plan, and how much of it was carried out."""

    plan: RetentionPlan
    deleted: int = 0
    freed: int = 0


class PruningSession:
    """Plans what retention deletes in one replica, and deletes it on request."""

    def __init__(
        self,
        client: ReplicaClient,
        policy: RetentionPolicy,
        clock: Clock,
        folder: str | None,
        walk: Callable[[int], None] | None = None,
        wal_retention: float | None = None,
    ) -> None:
        """``folder``: the state folder of the replica's owner, if known; without it, only planning works.
        ``walk`` is called with the number of generations before any of them is read. ``wal_retention``: prune next to a
        daemon that deletes nothing, without its state, also the WAL segments that a snapshot has covered for that many
        seconds. None: prune as the owner."""
        self._client = client
        self._policy = policy
        self._clock = clock
        self._folder = folder
        self._walk = walk
        self._wal_retention = wal_retention

    def plan(self) -> RetentionPlan | None:
        """Return what would be deleted; None if no generation can be restored. Changes nothing."""
        has_state = self._folder is not None and self._wal_retention is None
        return self._plan(read_state(self._folder) if has_state and self._folder is not None else None)

    def prune(
        self,
        on_plan: Callable[[RetentionPlan], None] = lambda _: None,
        progress: Callable[[int, int], None] = lambda _done, _whole: None,
    ) -> Pruned | None:
        """Delete planned objects. None if no generation can be restored.

        ``on_plan`` is called first, with the plan. ``progress(freed, total)`` is called after each step, in bytes.

        ReplicaLockedError while a daemon has the replica, FencedError if this is not its owner (any more). A pruner
        raises only NewClaimError, if a generation begins meanwhile.
        """
        if self._wal_retention is not None:
            claims = self._client.claims()  # before the plan: a generation that begins later names what is named now
            return self._carry_out(self._plan(None), self._prove_unchanged(claims), on_plan, progress)
        if self._folder is None or not os.path.isdir(self._folder):
            raise NotOwnerError(self._client.url, "no owner's state for it is kept here")
        with StateFolder(self._folder, f"pruning {self._client.url}: its state") as folder:
            state = folder.load()
            proof = self._prove(state)
            return self._carry_out(self._plan(state), proof, on_plan, progress)

    def _carry_out(
        self,
        plan: RetentionPlan | None,
        proof: Callable[[], bool],
        on_plan: Callable[[RetentionPlan], None],
        progress: Callable[[int, int], None],
    ) -> Pruned | None:
        """Delete what a plan lists, step by step. ``proof`` is called before each step."""
        if plan is None:
            return None
        on_plan(plan)
        deleted = freed = 0
        for step in delete_planned(self._client, plan.removals, proof):
            deleted += len(step)
            freed += sum(removal.size for removal in step)
            progress(freed, plan.freed)
        return Pruned(plan, deleted, freed)

    def _plan(self, state: ReplicaState | None) -> RetentionPlan | None:
        drops: Sequence[SourceTrim] = ()
        if isinstance(state, Running):
            drops = resume_archive(state.archive, state.claim.generation, "", 0.0).drops
        mine = None if state is None or isinstance(state, Unclaimed) else state.claim
        facts = Gathering(self._client).gather(drops, mine=mine, walk=self._walk)
        if facts is None:
            return None
        return plan_retention(facts, self._policy, self._clock.now(), self._wal_retention)

    def _prove(self, state: ReplicaState | None) -> Callable[[], bool]:
        """Prove ownership now. Return a function that proves it again when the proof has become too old."""
        if not isinstance(state, Running):
            raise NotOwnerError(self._client.url, "the state kept here is of no generation that was begun")
        claim, last, digest = state.claim, state.last, state.digest

        def prove() -> None:
            if not check_ownership(self._client, claim, last, digest):
                raise NotOwnerError(
                    self._client.url, "it does not hold the last WAL segment that the state kept here names"
                )

        proof = self._repeated(prove)
        proof()
        return proof

    def _prove_unchanged(self, claims: Sequence[ClaimName]) -> Callable[[], bool]:
        """Return a function that checks, now and then, that the replica has these claims and no other one.

        A snapshot of another owner names only what snapshots named when that owner claimed. If it claims after the
        first check, it sees the snapshots by which the plan was made, so it names nothing that the plan deletes.
        """

        def prove() -> None:
            if self._client.claims() != claims:
                raise NewClaimError(self._client.url)

        return self._repeated(prove)

    def _repeated(self, prove: Callable[[], None]) -> Callable[[], bool]:
        """Return a function that calls ``prove`` at its first call, and when the last proof has become too old."""
        proved_at: float | None = None

        def proof() -> bool:
            nonlocal proved_at
            now = self._clock.monotonic()
            if proved_at is None or now - proved_at > PROOF_SECONDS:
                prove()
                proved_at = now
            return True

        return proof
