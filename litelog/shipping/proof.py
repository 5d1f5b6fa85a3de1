"""Proof of ownership: before an owner continues after a start, a failure or a pause, it checks that its claim is there,
and every object that was acknowledged since the newest snapshot.

Specified in litelog/shipping/README.md#proof-of-ownership.
"""

from __future__ import annotations

import logging
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.errors import NotFoundError
from litelog.events import fields
from litelog.objects import snapshot as snapshots
from litelog.objects import wal_segment
from litelog.objects.claim import Relation
from litelog.objects.layout import snapshot_key, wal_key, wal_prefix
from litelog.objects.position import Position
from litelog.reading.contents import LISTINGS, list_generation
from litelog.reading.fetch import READ_ATTEMPTS
from litelog.reading.generations import read_claim
from litelog.shipping.catching_up import CatchingUp
from litelog.shipping.claiming import SucceededError, require_claim, require_newest
from litelog.shipping.state import IndexTally

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.log_identity import LogIdentity, ShippedEnd
    from litelog.shipping.state import Running
    from litelog.stores.object_store import Rooted
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo

_logger = logging.getLogger(__name__)

MAX_NAMED = 5
"""How many lost objects a message names."""


class OwnershipProof:
    """Shows an owner whether its generation is still its own, and whole."""

    def __init__(self, context: ReplicaContext, identity: LogIdentity, root: Rooted) -> None:
        """``root``: the store's root. Once the replica is found there, later puts go only to that root."""
        self._context = context
        self._client = context.client
        self._identity = identity
        self._root = root

    def find_lost(self, state: Running, snapshot: int | None, first: ReplicaClient | None = None) -> Sequence[str]:
        """Return which acknowledged objects of ``state`` the replica lost; empty if the generation can continue. For
        use after a start, a failure, a pause, or a long time without a successful put.

        ``snapshot``: the newest one's index. ``first``: a client that does not retry, so that a store that is down gets
        one request. Raises SucceededError, ReplicaUnavailableError, StoreError.
        """
        root = self._root.look_at_root()
        lost = _find_lost(self._client, state, snapshot, first)
        self._root.keep_to_root(root, state.claim.key)
        return lost

    def find_ahead(self, state: Running) -> Running | None:
        """Return ``state`` as it would have been saved after this owner's last object in the replica; None if the
        replica holds nothing after its position. Raises ReplicaUnavailableError, StoreError."""
        ahead = CatchingUp(self._context).find_ahead(state)
        if ahead is None:
            require_claim(self._client, state.claim)  # a root that is away seems to hold nothing
        if ahead is not None:
            log, replica = self._context.source.folder, self._client.url
            message = "%s: the saved state is older than %s: continues after %s, which this daemon put"
            extra = fields("state-caught-up", log=log, replica=replica, position=ahead.last)
            _logger.warning(message, log, replica, ahead.last, extra=extra)
        return ahead

    def look_for_newer(self, claim: Claim) -> None:
        """Raise SucceededError if a newer claim than ``claim`` exists."""
        require_newest(self._client, claim)

    def keeps(self, state: Running, promised: ShippedEnd) -> bool:
        """Whether the log still holds what the generation has promised of its predecessor: all of it, if it continues
        it.

        Its first log segments may have been truncated since the claim, which makes the shift smaller.
        """
        there = self._identity.find_shift_to(promised)
        if state.claim.relation is Relation.DIVERGED:  # it may begin with a later log segment than the log
            return there is not None
        return there is not None and there <= state.claim.shift - state.base


def _find_lost(
    client: ReplicaClient, state: Running, snapshot: int | None, first: ReplicaClient | None = None
) -> Sequence[str]:
    """Return which acknowledged objects of ``state`` the replica lacks, as text with keys; empty if it lacks none.

    ``snapshot``: the index of the newest snapshot; None if it is not known, and any counts. Three requests: a listing
    of claims, a GET of the last object, and a listing from the snapshot on. ``first``: a client for the first of them.

    Raises SucceededError if a newer claim exists, ReplicaUnavailableError if ours does not.
    """
    claim = state.claim
    check_claim_stands(first or client, claim)
    lost: list[str] = []
    for _ in range(LISTINGS):
        lost = [*_find_lost_last(client, state), *_find_lost_before(client, state, snapshot)]
        if not lost:
            return ()
    require_claim(client, claim)  # another replica may be mounted instead
    return tuple(dict.fromkeys(lost))


def describe_lost(lost: Sequence[str]) -> str:
    """Say why a generation that lost objects cannot continue."""
    more = f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
    return f"the replica lost acknowledged objects: {', '.join(lost[:MAX_NAMED])}{more}"


def check_claim_stands(client: ReplicaClient, claim: Claim) -> None:
    """Raise SucceededError if there is a newer claim, ReplicaUnavailableError if this one is not there. One listing."""
    names = client.claims(claim.epoch)
    newer = [name for name in names if name.epoch > claim.epoch]
    if newer:
        found = read_claim(client, newer[-1] if claim.is_isolated else newer[0])
        require_claim(client, claim)  # another replica's claims mean nothing
        raise SucceededError(client.url, claim.generation, found)
    if claim.name not in names:
        require_claim(client, claim)


def _find_lost_last(client: ReplicaClient, state: Running) -> Iterable[str]:
    """Check the object that ends at the owner's position, by its digest."""
    claim, last = state.claim, state.last
    name = claim.generation
    key = snapshot_key(name, claim.first) if last is None else wal_key(last)
    try:
        for _ in range(READ_ATTEMPTS):
            if last is None:
                found = snapshots.digest(client.read_snapshot(name, claim.first))
            else:
                found = wal_segment.digest([client.read_wal_segment(last)])
            if found == state.digest:
                return
    except NotFoundError:
        yield f"{key} is missing"
        return
    yield f"{key} holds other bytes than were put"


def _find_lost_before(client: ReplicaClient, state: Running, snapshot: int | None) -> Iterable[str]:
    """Check the newest snapshot, and the WAL segments since, by names and sizes."""
    claim, last = state.claim, state.last
    name = claim.generation
    listing = list_generation(client, name, since=snapshot or 0)
    if listing.newest is None:  # a generation begins with a snapshot, and keeps the newest one
        yield f"{snapshot_key(name, claim.first if snapshot is None else snapshot)} is missing"
    first = max(snapshot or 0, listing.newest or 0)  # covered WAL segments may have been deleted
    if last is None:
        if listing.wal and listing.wal[0].position != Position(name, claim.first, 0):
            yield f"{wal_key(Position(name, claim.first, 0))} is missing"
        return
    there = _count(info for info in listing.wal if info.position <= last)
    for tally in state.tallies:
        if tally.index < first:
            continue
        found = there.get(tally.index, IndexTally(tally.index, 0, 0))
        if found != tally:
            what = f"holds {found.count} WAL segments where {tally.count} were put"
            same = "holds WAL segments of other names or sizes than were put"
            yield f"{wal_prefix(name, tally.index)} {same if found.count == tally.count else what}"


def find_lost_indexes(client: ReplicaClient, name: Generation, tallies: Sequence[IndexTally]) -> list[int]:
    """Return the indexes whose WAL segments differ from the tallies. One listing; none without tallies."""
    if not tallies:
        return []
    listing = client.wal_segments(name, Position(name, tallies[0].index, 0))
    there = _count(takewhile(lambda info: info.position.index <= tallies[-1].index, listing))
    return [tally.index for tally in tallies if there.get(tally.index) != tally]


def _count(wal: Iterable[WalSegmentInfo]) -> dict[int, IndexTally]:
    """Return the tally of each index in a listing, in the listing's order."""
    there: dict[int, IndexTally] = {}
    for info in wal:
        position = info.position
        tally = there.get(position.index, IndexTally(position.index, 0, 0))
        there[position.index] = tally.add(position.offset, info.size)
    return there
