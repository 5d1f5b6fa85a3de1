"""Distinguishes a pruned generation from a damaged one: a pruned one has nothing to restore."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from litelog.errors import NothingToRestoreError, StoreError
from litelog.objects.position import Position
from litelog.objects.wal_segment import LASTING_SEGMENTS, may_be_remnant

if TYPE_CHECKING:
    from litelog.errors import LitelogError
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.stores.replica_client import ReplicaClient


class GenerationPrunedError(NothingToRestoreError):
    """Retention pruned a generation; only the objects that are never deleted remain."""

    def __init__(self, url: str, name: Generation, oldest: Generation) -> None:
        self.generation = name
        self.oldest = oldest
        super().__init__(
            f"{url}: generation {name}: nothing can be restored from it any more: retention deleted its snapshots; the "
            f"oldest generation that has one is {oldest}"
        )


def looks_pruned(client: ReplicaClient, claim: Claim) -> bool:
    """Whether a generation looks like one that retention has pruned, or is pruning. Raises StoreError.

    It has no snapshot, and neither has any older generation (of the same owner, if isolated): retention deletes the
    oldest first. Its WAL segments are those that retention leaves.
    """
    name = claim.generation
    if client.newest_snapshots(name, 1):
        return False
    older = (held for held in client.generations() if held < name and not claim.is_isolated)
    if any(client.newest_snapshots(held, 1) for held in older):
        return False
    wal = list(islice(client.wal_segments(name), LASTING_SEGMENTS + 1))
    return may_be_remnant(wal[0].position if wal else None, Position(name, claim.first, 0), len(wal))


def explain(client: ReplicaClient, claim: Claim, damage: LitelogError) -> LitelogError:
    """A GenerationPrunedError if the generation looks pruned, and a later generation has a snapshot; otherwise
    ``damage``."""
    name = claim.generation
    try:
        if not looks_pruned(client, claim):
            return damage
        later = (held for held in sorted(client.generations()) if held > name)
        oldest = next((held for held in later if client.newest_snapshots(held, 1)), None)
    except StoreError:
        return damage
    return damage if oldest is None else GenerationPrunedError(client.url, name, oldest)
