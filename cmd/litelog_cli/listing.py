"""Describes a replica generation by generation, from its claims, listings and a few headers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NoReplicaError, ReplicaGapError, UnknownVersionError
from litelog.objects.chain import never_began
from litelog.objects.position import epoch_of
from litelog.reading.contents import read_base
from litelog.reading.generations import read_claim
from litelog.reading.latest import read_claims
from litelog.reading.search import read_header
from litelog.stores.replica_client import IndexedInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation, Position
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class ListedGeneration:
    """One generation. Times are microseconds since 1970, sizes are stored bytes; None: unknown."""

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
    position: Position | None
    """The position of its next slot, or of its terminal."""
    ended: bool
    began: bool
    """False if another owner ended it before it began: no history includes it."""
    snapshots: int
    snapshot_index: int | None
    """Index of the newest snapshot: log segments before it are sealed."""
    sealed_segments: int
    """Sealed segments that the newest snapshot names, in any generation. The next three fields are about them, too."""
    sealed_stored_bytes: int
    sealed_log_bytes: int
    """Bytes of the log in them."""
    ratio: float | None
    """Bytes of the log for each stored byte."""
    wal_segments: int
    wal_stored_bytes: int
    first: int | None
    next: int | None
    first_shipped: int | None
    last_shipped: int | None
    lag_seconds: float | None = None
    """Seconds between its last shipped bytes and the newest shipped bytes of all generations."""
    damage: str | None = None
    """The damage of its snapshots."""


def describe_generations(client: ReplicaClient) -> list[ListedGeneration]:
    """Describe all generations that are claimed or hold objects, oldest first.

    Makes a listing and at most four small GETs for each.
    """
    claims = read_claims(client)
    names = sorted({*claims, *client.generations()})
    if not names:
        raise NoReplicaError(client.url)
    found = [_describe(client, name, claims.get(name)) for name in names]
    newest = max((facts.last_shipped for facts in found if facts.last_shipped is not None), default=0)
    return [
        facts if facts.last_shipped is None else replace(facts, lag_seconds=(newest - facts.last_shipped) / 1e6)
        for facts in found
    ]


def describe_newest(client: ReplicaClient) -> ListedGeneration:
    """Describe the newest generation, without its oldest WAL segment. Makes two listings and at most four small GETs,
    for any number of generations. If a claim may be missing, it works as ``describe_generations``."""
    names = client.claims()
    if names and names[-1].epoch == len(names) and names[-1].isolated is None:
        claim = read_claim(client, names[-1])
        facts = _describe(client, claim.generation, claim, whole=False)
        if not facts.ended:
            return facts
    return describe_generations(client)[-1]


def ratio(length: int, size: int) -> float | None:
    """Bytes of the log for each stored byte, with two decimals; None if nothing is stored."""
    return round(length / size, 2) if size else None


def _describe(client: ReplicaClient, name: Generation, claim: Claim | None, *, whole: bool = True) -> ListedGeneration:
    first: Position | None = None
    last: Position | None = None
    before_last: Position | None = None
    count = size = 0
    snapshots: list[int] = []
    for info in client.snapshots_and_wal_segments(name):
        if isinstance(info, IndexedInfo):
            snapshots.append(info.index)
            continue
        first = first or info.position
        before_last, last = last, info.position
        count += 1
        size += info.size
    newest = read_header(client, last) if last else None
    ended = newest is not None and newest.successor is not None
    began = newest is None or claim is None or not never_began(claim.first, newest)
    data = newest
    if ended:  # a terminal carries no data: the WAL segment before it has the facts
        data = read_header(client, before_last) if before_last else None
    oldest = read_header(client, first) if first and data and whole else None
    end = None if newest is None else newest.position if ended else newest.next_slot
    entries, damage = _read_entries(client, claim, snapshots if began else [])
    sequences = [entry.first for entry in entries if entry.first is not None]
    reached = [entry.next for entry in entries if entry.next is not None]
    stored, length = sum(entry.size for entry in entries), sum(entry.length for entry in entries)
    return ListedGeneration(
        generation=name,
        epoch=epoch_of(name),
        relation=claim.relation.value if claim else None,
        reason=claim.reason if claim else None,
        predecessor=claim.predecessor if claim else None,
        owner=claim.owner if claim else None,
        host=claim.host if claim else None,
        fencing=claim.fencing if claim else None,
        claimed=claim.time if claim else None,
        first_index=entries[0].index if entries else claim.first if claim else first.index if first else None,
        position=end,
        ended=ended,
        began=began,
        snapshots=len(snapshots),
        snapshot_index=snapshots[-1] if snapshots else None,
        sealed_segments=len(entries),
        sealed_stored_bytes=stored,
        sealed_log_bytes=length,
        ratio=ratio(length, stored),
        wal_segments=count,
        wal_stored_bytes=size,
        first=sequences[0] if sequences else oldest.first if oldest else None,
        next=data.next if data and data.next is not None else reached[-1] if reached else None,
        first_shipped=entries[0].shipped_first if entries else oldest.shipped if oldest else None,
        last_shipped=data.shipped if data else entries[-1].shipped_last if entries else None,
        damage=damage,
    )


def _read_entries(
    client: ReplicaClient, claim: Claim | None, indexes: list[int]
) -> tuple[Sequence[SnapshotEntry], str | None]:
    """The entries of the newest snapshot, and what is wrong with it."""
    if claim is None:
        return (), None
    try:
        base = read_base(client, claim, indexes)
    except (CorruptObjectError, UnknownVersionError, ReplicaGapError) as error:
        return (), str(error)
    return base.entries, str(base.damage) if base.damage else None
