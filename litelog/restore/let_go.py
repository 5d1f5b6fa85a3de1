"""Tells a generation that retention took from one that is damaged: of the one there is nothing to restore."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from litelog.errors import NothingToRestoreError, StoreError
from litelog.position import Position, generation
from litelog.wal_segment import LASTING_SEGMENTS, may_be_remnant

if TYPE_CHECKING:
    from litelog.claim import Claim
    from litelog.errors import LitelogError
    from litelog.position import Generation
    from litelog.replica_client import ReplicaClient


class LetGoError(NothingToRestoreError):
    """Retention took a generation, but for what always stays of one."""

    def __init__(self, url: str, name: Generation, oldest: Generation) -> None:
        self.generation = name
        self.oldest = oldest
        super().__init__(
            f"{url}: generation {name}: nothing of it can be restored any more: retention let its snapshots go; the "
            f"oldest generation that has one is {oldest}"
        )


def explain(client: ReplicaClient, claim: Claim, damage: LitelogError) -> LitelogError:
    """LetGoError for a generation that looks as one that retention took, or is taking; else ``damage``.

    It has no snapshot, and no older generation has one, but a later one has: retention takes the oldest first. Its WAL
    segments are what that leaves.
    """
    name = generation(claim.generation)
    try:
        wal = list(islice(client.wal_segments(name), LASTING_SEGMENTS + 1))
        oldest = next((held for held in sorted(client.generations()) if client.newest_snapshots(held, 1)), name)
    except StoreError:
        return damage
    first = wal[0].position if wal else None
    is_remnant = may_be_remnant(first, Position(name, claim.first, 0), len(wal))
    return LetGoError(client.url, name, oldest) if name < oldest and is_remnant else damage
