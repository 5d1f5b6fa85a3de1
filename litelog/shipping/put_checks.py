"""What an owner sees to before it puts a WAL segment."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from litelog.errors import DivergedError, LitelogError
from litelog.shipping.claiming import GRACE_SECONDS
from litelog.shipping.proof import describe_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.errors import CorruptObjectError
    from litelog.objects.claim import Claim
    from litelog.shipping.ownership import Owner
    from litelog.shipping.state_keeper import StateKeeper
    from litelog.shipping.wal_encoder import Prepared
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

LOOK_SECONDS = 60.0
"""How often an isolated owner that ships looks for a newer claim: one listing. No put of its own is refused."""


class LostSegmentError(DivergedError):
    """It is the replica that lacks something, and not the log: a new generation may continue this one."""


class LostObjectsError(LostSegmentError):
    """The replica lost what was acknowledged."""


class PutChecks:
    """One generation's. Used by one thread at a time."""

    def __init__(
        self,
        folder: str,
        claim: Claim,
        owner: Owner,
        keeper: StateKeeper,
        clock: Clock,
        client: ReplicaClient,
        newest_snapshot: Callable[[], int | None],
    ) -> None:
        """``folder``: the log's; the generation has just been begun or proved to be ours. ``newest_snapshot``: its
        index, None where it is not known."""
        self._folder = folder
        self._claim = claim
        self._owner = owner
        self._keeper = keeper
        self._clock = clock
        self._client = client
        self._newest_snapshot = newest_snapshot
        self._proved_at = self._looked_at = clock.monotonic()
        self._in_doubt = False

    def check(self, prepared: Prepared) -> None:
        """Before ``prepared`` is put. FencedError, DivergedError, StoreError."""
        self._prove_if_due()
        self._look_if_due()
        self._keep_promise(prepared)

    def doubt(self) -> None:
        """A request failed, or the process stood still: have what was acknowledged proved before the next put. From any
        thread."""
        self._in_doubt = True

    def succeeded(self) -> None:
        """A put has succeeded, which proves whose generation it is."""
        self._proved_at = self._clock.monotonic()

    def prove(self) -> None:
        """Prove at once that the replica holds what was acknowledged. FencedError, DivergedError, StoreError."""
        self._in_doubt = True
        self._prove_if_due()

    def leave_slot(self, damage: CorruptObjectError) -> NoReturn:
        """The next slot holds an object that cannot be read, which this owner put before its state was saved, or a
        successor. FencedError for a newer claim, else LostObjectsError: nobody can continue this generation."""
        state = self._keeper.state
        assert state is not None
        self._owner.look_for_newer(state)
        reason = f"the replica holds an object that cannot be read where the next WAL segment goes: {damage}"
        raise LostObjectsError(self._folder, reason)

    def _prove_if_due(self) -> None:
        if not self._in_doubt and self._clock.monotonic() - self._proved_at <= GRACE_SECONDS / 2:
            return
        state = self._keeper.state
        assert state is not None
        self._in_doubt = False  # a failure meanwhile raises a new one
        try:
            lost = self._owner.prove(state, self._newest_snapshot(), self._client)
        except LitelogError:
            self._in_doubt = True
            raise
        if lost:
            raise LostObjectsError(self._folder, describe_lost(lost))
        self._proved_at = self._clock.monotonic()

    def _look_if_due(self) -> None:
        if self._claim.is_isolated and self._clock.monotonic() - self._looked_at >= LOOK_SECONDS:
            state = self._keeper.state
            assert state is not None
            self._owner.look_for_newer(state)
            self._looked_at = self._clock.monotonic()

    def _keep_promise(self, prepared: Prepared) -> None:
        """Before a generation comes to where its predecessor ended, see that the log still holds that.

        It may have been rewound since the claim. Until then readers stay with the predecessor.
        """
        state = self._keeper.state
        assert state is not None
        promised, header = state.promised, prepared.header
        if promised is None:
            return
        index = promised.index + self._claim.shift
        missed = header.file == promised.file and header.index != index
        if (header.index, prepared.end) < (index, promised.end) and not missed:
            return
        if missed or not self._owner.keeps(state):
            path = os.path.join(self._folder, promised.file)
            raise DivergedError(path, "was rewound before all was shipped that it continues")
        self._keeper.state = replace(state, promised=None)
