"""What a replica holds, generation by generation, from its claims, its listings and a few headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import NothingToRestoreError
from litelog.position import epoch_of, generation
from litelog.reading.generation_choice import read_claims
from litelog.reading.wal_search import read_header

if TYPE_CHECKING:
    from litelog.claim import Claim
    from litelog.position import Generation, Position
    from litelog.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class GenerationFacts:
    """One generation. Times are microseconds since 1970, sizes bytes as stored; None where there is nothing to say."""

    generation: str
    epoch: int
    relation: str | None
    reason: str | None
    predecessor: str | None
    owner: str | None
    host: str | None
    fencing: str | None
    claimed: int | None
    first_index: int | None
    end: str | None
    """The position of its next slot, or of its terminal."""
    ended: bool
    snapshots: int
    wal_segments: int
    wal_bytes: int
    next_sequence: int | None
    first_shipped: int | None
    last_shipped: int | None


def describe_generations(client: ReplicaClient) -> list[GenerationFacts]:
    """All generations that are claimed or hold objects, oldest first. A listing and at most three small GETs each."""
    claims = {generation(name): claim for name, claim in read_claims(client).items()}
    names = sorted({*claims, *client.generations()})
    if not names:
        raise NothingToRestoreError(f"{client.url}: holds no generation")
    return [_describe(client, name, claims.get(name)) for name in names]


def _describe(client: ReplicaClient, name: Generation, claim: Claim | None) -> GenerationFacts:
    first: Position | None = None
    last: Position | None = None
    before_last: Position | None = None
    count = size = 0
    for info in client.wal_segments(name):
        first = first or info.position
        before_last, last = last, info.position
        count += 1
        size += info.size
    newest = read_header(client, last) if last else None
    ended = newest is not None and newest.successor is not None
    data = newest
    if ended:  # a terminal carries no data: what it ended is told by the one before it
        data = read_header(client, before_last) if before_last else None
    oldest = read_header(client, first) if first and data else None
    end = None if newest is None else newest.position if ended else newest.next_slot
    return GenerationFacts(
        generation=name,
        epoch=epoch_of(name),
        relation=claim.relation.value if claim else None,
        reason=claim.reason if claim else None,
        predecessor=claim.predecessor if claim else None,
        owner=claim.owner if claim else None,
        host=claim.host if claim else None,
        fencing=claim.fencing if claim else None,
        claimed=claim.time if claim else None,
        first_index=claim.first if claim else first.index if first else None,
        end=str(end) if end else None,
        ended=ended,
        snapshots=sum(1 for _ in client.snapshots(name)),
        wal_segments=count,
        wal_bytes=size,
        next_sequence=data.next if data else None,
        first_shipped=oldest.shipped if oldest else None,
        last_shipped=data.shipped if data else None,
    )
