"""The checks before each PUT in one generation: is it still the owner's, and does the log hold what it continues.

Specified in litelog/shipping/README.md#proof-of-ownership.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from litelog.errors import DivergedError, LitelogError
from litelog.log.source import SegmentFolder
from litelog.objects.claim import Relation
from litelog.retention.policy import GRACE_SECONDS
from litelog.shipping.proof import describe_lost

if TYPE_CHECKING:
    from litelog.errors import CorruptObjectError
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.proof import OwnershipProof
    from litelog.shipping.state_keeper import StateKeeper
    from litelog.shipping.wal_encoder import EncodedWalSegment

LOOK_SECONDS = 60.0
"""How often an isolated owner that ships looks for a newer claim, in seconds. One listing. (The store refuses none of
its puts.)"""


class LostSegmentError(DivergedError):
    """The replica lacks something that the log still holds: a new generation may continue this one."""


class LostObjectsError(LostSegmentError):
    """The replica lost acknowledged objects."""


class OwnershipGuard:
    """The checks before each put in one generation. Used by one thread at a time."""

    def __init__(self, context: ReplicaContext, proof: OwnershipProof, keeper: StateKeeper, proved_at: float) -> None:
        """``proved_at``: before the generation began, or before it was proved to be ours, in monotonic seconds."""
        self._folder = context.source.folder
        self._format = context.source.format
        self._claim = keeper.state.claim
        self._proof = proof
        self._keeper = keeper
        self._clock = context.clock
        self._client = context.client
        self._proved_at = self._looked_at = self._checked_at = proved_at
        self._in_doubt = False

    def check(self, encoded: EncodedWalSegment) -> None:
        """Check ownership before ``encoded`` is put. Raises FencedError, DivergedError and StoreError."""
        self._checked_at = self._clock.monotonic()
        self._check_if_due()
        self._look_if_due()
        self._check_predecessor_end(encoded)

    def doubt(self) -> None:
        """Prove before the next put that acknowledged objects are there. To be called after a failed request, and after
        a pause of the process. Any thread may call it."""
        self._in_doubt = True

    def succeeded(self) -> None:
        """Record a successful put before it is acknowledged. Raises FencedError, DivergedError and StoreError.

        A put proves that the generation is ours, unless it was late.
        """
        if not self._prove_if_late():
            self._proved_at = self._checked_at

    def adopts(self) -> None:
        """Record that the slot of a put holds our own object, before it is acknowledged. Raises FencedError,
        DivergedError and StoreError.

        An earlier try of the same put may have left it: if that was late, ownership is proved.
        """
        self._prove_if_late()

    def check_ownership(self) -> None:
        """Prove now that the replica holds all acknowledged objects. Raises FencedError, DivergedError, StoreError."""
        self._in_doubt = True
        self._check_if_due()

    def _prove_if_late(self) -> bool:
        """Prove ownership if the put that was checked last took too long. Return whether it did. If the state is older
        than the replica, a successor's retention may have emptied the slot meanwhile."""
        is_late = self._clock.monotonic() - self._checked_at > GRACE_SECONDS / 2
        if is_late:
            self.check_ownership()
        return is_late

    def leave_slot(self, damage: CorruptObjectError) -> NoReturn:
        """Raise the error for a next slot with an object that cannot be read: this owner put it before its state was
        saved, or a successor did. FencedError if there is a newer claim, else LostObjectsError: no owner can continue
        this generation."""
        self._proof.look_for_newer(self._claim)
        reason = f"the replica holds an object that cannot be read where the next WAL segment goes: {damage}"
        raise LostObjectsError(self._folder, reason)

    def _check_if_due(self) -> None:
        if not self._in_doubt and self._clock.monotonic() - self._proved_at <= GRACE_SECONDS / 2:
            return
        self._in_doubt = False  # a failure meanwhile sets it again
        began = self._clock.monotonic()
        try:
            lost = self._proof.find_lost(self._keeper.state, self._keeper.newest_snapshot, self._client)
        except LitelogError:
            self._in_doubt = True
            raise
        if lost:
            raise LostObjectsError(self._folder, describe_lost(lost))
        self._proved_at = began

    def _look_if_due(self) -> None:
        if self._claim.is_isolated and self._clock.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._proof.look_for_newer(self._claim)
            self._looked_at = self._clock.monotonic()

    def _check_predecessor_end(self, encoded: EncodedWalSegment) -> None:
        """Until a generation has reached the end of its predecessor, check that the log is not shorter. When it reaches
        it, check that the log still holds that end.

        The log may have been rewound since the claim. Until then readers stay with the predecessor.
        """
        state = self._keeper.state
        promised, header = state.promised, encoded.header
        if promised is None:
            return
        index = promised.index + self._claim.shift
        continues = self._claim.relation is Relation.CONTINUES
        missed = continues and header.file == promised.file and header.index != index
        reached = (header.index, encoded.end) >= (index, promised.end)
        path = os.path.join(self._folder, promised.file)
        keeps = self._proof.keeps(state, promised) if reached else not self._is_shorter(promised.file, promised.end)
        if missed or not keeps:
            raise DivergedError(path, "was rewound before the end of the predecessor was reached")
        if reached:
            self._keeper.state = replace(state, promised=None)

    def _is_shorter(self, name: str, length: int) -> bool:
        """Whether a log segment is there, and has fewer bytes than ``length``."""
        try:
            with SegmentFolder(self._folder, self._format, self._clock, reports=False).open(name) as segment:
                return segment.size() < length
        except FileNotFoundError:  # truncated, or the follower reports it
            return False
