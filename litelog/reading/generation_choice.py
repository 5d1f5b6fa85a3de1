"""Which generation of a replica a reader takes: the choice as a pure function, and the look-ups that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.claim import Relation
from litelog.errors import CorruptObjectError, NotFoundError, NothingToRestoreError, ReplicaGapError
from litelog.layout import claim_key, wal_key
from litelog.position import Generation, Position, epoch_of, generation
from litelog.reading.lineage import read_claim
from litelog.reading.wal_search import read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litelog.claim import Claim
    from litelog.replica_client import ReplicaClient

LISTINGS = 2
"""How often a listing is made before what it lacks is called missing: a store may list a moment behind."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a generation has come."""

    start: Position
    """The start of the first index that it ships."""
    slot: Position
    """Its next slot; the terminal's place if it has ended."""
    successor: str | None = None
    """The key of the claim that its terminal names."""

    @property
    def has_data(self) -> bool:
        """Whether anything of the log was shipped."""
        return self.slot > self.start


def place_in(claim: Claim, position: Position) -> Position:
    """Where a position of the predecessor lies in a generation that continues it."""
    return Position(generation(claim.generation), position.index + claim.shift, position.offset)


def latest(by_generation: Mapping[str, Claim], extent_of: Callable[[Claim], Extent]) -> Claim | None:
    """The claim of the latest generation; None if no generation holds anything.

    That is the one of the highest epoch that holds data and has reached the end of all that it continues: of its
    predecessor, and of what that one continues in turn, however far the predecessor itself had come.
    """
    for claim in sorted(by_generation.values(), key=lambda claim: claim.epoch, reverse=True):
        extent = extent_of(claim)
        if extent.has_data and _has_reached(claim, extent.slot, by_generation, extent_of):
            return claim
    return None


def _has_reached(
    claim: Claim, slot: Position, by_generation: Mapping[str, Claim], extent_of: Callable[[Claim], Extent]
) -> bool:
    shift = 0
    while claim.relation is Relation.CONTINUES:
        older = _predecessor(claim, by_generation)
        shift += claim.shift
        end = extent_of(older).slot
        if (slot.index, slot.offset) < (end.index + shift, end.offset):
            return False
        claim = older
    return True


def _predecessor(claim: Claim, by_generation: Mapping[str, Claim]) -> Claim:
    if claim.predecessor is None:
        raise CorruptObjectError(claim.key, "continues a generation that it does not name")
    epoch = epoch_of(generation(claim.predecessor))
    if epoch >= claim.epoch:
        raise CorruptObjectError(claim.key, "predecessor", f"one of an epoch below {claim.epoch}", claim.predecessor)
    older = by_generation.get(claim.predecessor)
    if older is None:
        raise ReplicaGapError(claim_key(epoch), f"{claim.key}, which continues {claim.predecessor}")
    if (older.log, older.format) != (claim.log, claim.format):
        raise CorruptObjectError(
            claim.key, "log and format", f"{older.log} {older.format}", f"{claim.log} {claim.format}"
        )
    return older


def find_latest(client: ReplicaClient) -> Claim:
    """The claim of a replica's latest generation. NothingToRestoreError if it holds none.

    Requests: one listing of claims, a short one for each generation, a GET for each claim; then a listing and a ranged
    GET for the newest generation and for each that it continues.
    """
    claim = latest(by_generation := read_claims(client), _Extents(client, by_generation))
    if claim is None:
        held = "holds no claim" if not by_generation else "holds claims, but nothing of the log yet"
        raise NothingToRestoreError(f"{client.url}: {held}")
    return claim


def find_claim(client: ReplicaClient, name: Generation) -> Claim:
    """The claim of the generation of that name. NothingToRestoreError says which there are."""
    by_generation = read_claims(client)
    if name not in by_generation:
        known = ", ".join(sorted(by_generation)) or "none"
        raise NothingToRestoreError(f"{client.url}: no generation {name} (there are: {known})")
    return by_generation[name]


def read_claims(client: ReplicaClient) -> dict[str, Claim]:
    """All claims, by generation. ReplicaGapError if one is missing: claims are never deleted, epochs have no holes."""
    missing = ReplicaGapError("")
    for _ in range(LISTINGS):
        epochs = client.epochs()
        try:
            read = [read_claim(client, epoch) for epoch in epochs]
        except NotFoundError as error:
            missing = ReplicaGapError(error.key)
            continue
        by_generation = {claim.generation: claim for claim in read}
        if (gap := _missing_claim(epochs, by_generation, client.generations())) is None:
            return by_generation
        missing = gap
    raise missing


def _missing_claim(
    epochs: list[int], by_generation: Mapping[str, Claim], held: list[Generation]
) -> ReplicaGapError | None:
    for before, epoch in pairwise(epochs):
        if epoch != before + 1:
            return ReplicaGapError(claim_key(before + 1), claim_key(epoch))
    for name in held:
        if name not in by_generation:
            return ReplicaGapError(claim_key(epoch_of(name)), f"generation {name}, which nobody claims")
    return None


def find_extent(client: ReplicaClient, claim: Claim, since: Position | None = None) -> Extent:
    """How far a generation has come: a listing, from ``since`` on if it holds anything there, and the last header."""
    name = generation(claim.generation)
    start = Position(name, claim.first, 0)
    last: Position | None = None
    for info in client.wal_segments(name, since):
        last = info.position
    if last is None:
        return Extent(start, start) if since is None else find_extent(client, claim)
    header = read_header(client, last)
    if header.successor is not None and header.length:
        raise CorruptObjectError(wal_key(last), "is a terminal, and not an empty one")
    return Extent(start, last if header.successor else header.next_slot, header.successor)


class _Extents:
    """The extent of each generation, looked up when it is first asked for."""

    def __init__(self, client: ReplicaClient, by_generation: Mapping[str, Claim]) -> None:
        self._client = client
        self._by_generation = by_generation
        self._known: dict[str, Extent] = {}
        ends = (claim.predecessor_end for claim in by_generation.values())
        self._seen = {at.generation: at for at in map(Position.parse, filter(None, ends))}

    def __call__(self, claim: Claim) -> Extent:
        if claim.generation not in self._known:
            since = self._seen.get(generation(claim.generation))
            extent = find_extent(self._client, claim, since)
            if extent.successor is not None:
                self._check_successor(extent)
            self._known[claim.generation] = extent
        return self._known[claim.generation]

    def _check_successor(self, extent: Extent) -> None:
        """A terminal is written after the claim that it names: a claim that is not there was deleted."""
        if any(claim.key == extent.successor for claim in self._by_generation.values()):
            return
        for _ in range(LISTINGS - 1):
            if any(claim_key(epoch) == extent.successor for epoch in self._client.epochs()):
                return
        raise ReplicaGapError(str(extent.successor), f"the terminal at {extent.slot}, which names it")
