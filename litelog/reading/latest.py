"""Chooses the generation of a replica that a reader takes: a pure function, and the look-ups that it needs.

Specified in litelog/reading/README.md#which-generation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, NoReplicaError, NotFoundError, NothingToRestoreError, ReplicaGapError
from litelog.objects.chain import never_began
from litelog.objects.claim import Relation, Writer
from litelog.objects.layout import claim_key, wal_key
from litelog.objects.position import Generation, Position, epoch_of
from litelog.reading.contents import LISTINGS, PAGE, list_generation, list_pieces, read_base
from litelog.reading.generations import read_claim
from litelog.reading.index_mapping import SegmentNames, check_mapping
from litelog.reading.search import read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import ClaimName
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import GenerationContents, Listing
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class GenerationRange:
    """How far a generation has come."""

    start: Position
    """The start of the first index that it ships."""
    slot: Position
    """Its next slot; the terminal's position if it has ended."""
    successor: str | None = None
    """The key of the claim that its terminal names."""
    began: bool = True
    """False if it was ended before it began (``never_began``)."""
    last: WalHeader | None = None
    """The header of its last WAL segment, or of its terminal."""

    @property
    def has_data(self) -> bool:
        """Whether anything of the log was shipped."""
        return self.slot > self.start

    @property
    def is_settled(self) -> bool:
        """Whether it began and was ended. Without an end, it may hold bytes that its successor lacks."""
        return self.began and self.successor is not None


def latest(
    by_generation: Mapping[Generation, Claim],
    extent_of: Callable[[Claim], GenerationRange],
    holds_data: Callable[[Claim], bool] | None = None,
    check: Callable[[Claim, int, Claim, Claim], None] | None = None,
) -> Claim | None:
    """The claim of the latest generation; None if no generation holds anything.

    The latest generation is the one of the highest epoch that holds data and has reached the end of all that it
    continues: of its predecessor, of the predecessor's predecessor, and so on, no matter how far each of these had
    come. If several of one epoch qualify, because their owners are isolated, it is the one with the highest name.

    Args:
        by_generation: all claims.
        extent_of: returns how far a generation has come.
        holds_data: returns whether a generation holds data, if that is less work than ``extent_of``.
        check: called with each claim that continues another, the sum of the shifts from the older generation to the
            newer one, and the claims of these two.
    """
    for claim in sorted(by_generation.values(), key=lambda claim: claim.generation, reverse=True):
        held = extent_of(claim).has_data if holds_data is None else holds_data(claim)
        if held and _has_reached(claim, by_generation, extent_of, check):
            return claim
    return None


def _has_reached(
    claim: Claim,
    by_generation: Mapping[Generation, Claim],
    extent_of: Callable[[Claim], GenerationRange],
    check: Callable[[Claim, int, Claim, Claim], None] | None,
) -> bool:
    newest, shift = claim, 0
    while claim.relation is Relation.CONTINUES:
        older = _predecessor(claim, by_generation)
        shift += claim.shift
        if check is not None:
            check(claim, shift, newest, older)
        slot, end = extent_of(newest).slot, extent_of(older).slot
        if (slot.index, slot.offset) < (end.index + shift, end.offset):
            return False
        claim = older
    return True


def _predecessor(claim: Claim, by_generation: Mapping[Generation, Claim]) -> Claim:
    if claim.predecessor is None:
        raise CorruptObjectError(claim.key, "continues a generation that it does not name")
    epoch = epoch_of(claim.predecessor)
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


def find_latest(
    client: ReplicaClient, *, include_lost: bool = False, known: Callable[[Claim], GenerationRange | None] | None = None
) -> Claim:
    """Find the claim of a replica's latest generation.

    Makes a listing of claims and a GET for each claim; then a listing and a ranged GET for the newest generation and
    for each generation that it continues.

    Args:
        include_lost: Take a generation of which only sealed segments are left, rather than an earlier one.
        known: Returns how far a generation has come, if the caller knows; None otherwise.

    Raises:
        NothingToRestoreError: No generation holds anything.
        ReplicaGapError: A generation was ended for a successor whose claim is missing.
    """
    by_generation = read_claims(client)
    lookups = _GenerationRanges(client, by_generation, known=known)
    if include_lost and (lost := _find_lost(by_generation, lookups)) is not None:
        return lost
    claim = _choose(client, by_generation, lookups)
    lookups.extent(claim)
    return claim


def open_latest(client: ReplicaClient, keep: int | None = PAGE) -> GenerationContents:
    """Find the contents of a replica's latest generation. For readers that read to its end, and see how it ended.

    If it is the only generation, makes four requests: two listings (claims, and its objects) and two GETs (claim and
    snapshot).

    Args:
        client: the replica.
        keep: how many names a listing keeps. If that was not enough, the listing is made again. None keeps all, for
            callers that expect many.

    Raises:
        NothingToRestoreError, ReplicaGapError, CorruptObjectError, UnknownVersionError: as ``find_latest`` and
            ``list_pieces``.
    """
    by_generation = read_claims(client)
    lookups = _GenerationRanges(client, by_generation, keep)
    claim = _choose(client, by_generation, lookups)
    return lookups.pieces(claim)


def _find_lost(by_generation: Mapping[Generation, Claim], lookups: _GenerationRanges) -> Claim | None:
    """The claim of the newest generation that was begun, if only sealed segments are left of it."""
    for _, claim in sorted(by_generation.items(), reverse=True):
        if lookups.holds_data(claim):
            return None
        if lookups.is_lost(claim):
            return claim
    return None


def _choose(client: ReplicaClient, by_generation: Mapping[Generation, Claim], lookups: _GenerationRanges) -> Claim:
    claim = latest(by_generation, lookups.extent, lookups.holds_data, lookups.check_mapping)
    if claim is None:
        if not by_generation:
            raise NoReplicaError(client.url)
        raise NothingToRestoreError(f"{client.url}: holds claims, but nothing of the log yet")
    return claim


def find_claim(client: ReplicaClient, name: Generation) -> Claim:
    """Find the claim of a generation. If there is none, raises a NothingToRestoreError that names the existing ones."""
    by_generation = read_claims(client)
    if not by_generation:
        raise NoReplicaError(client.url)
    if name not in by_generation:
        known = ", ".join(sorted(by_generation))
        raise NothingToRestoreError(f"{client.url}: no generation {name} (there are: {known})")
    return by_generation[name]


def read_claims(client: ReplicaClient) -> dict[Generation, Claim]:
    """Read all claims, by generation. Raises ReplicaGapError if one is missing: claims are never deleted."""
    missing = ReplicaGapError("")
    for _ in range(LISTINGS):
        names = client.claims()
        try:
            read = [read_claim(client, name) for name in names]
        except NotFoundError as error:
            missing = ReplicaGapError(error.key)
            continue
        if (gap := _missing_claim(client, names, read)) is None:
            return {claim.generation: claim for claim in read}
        missing = gap
    raise missing


def _missing_claim(client: ReplicaClient, names: Sequence[ClaimName], read: Sequence[Claim]) -> ReplicaGapError | None:
    """Find a claim that is missing, and must exist because another object refers to it.

    A caller notices by itself that the newest claim is missing: the terminal before that generation names it. An
    isolated generation may have no terminal before it, but its objects show that it was claimed.
    """
    for before, after in pairwise(names):
        if after.epoch > before.epoch + 1:
            return ReplicaGapError(claim_key(before.epoch + 1), claim_key(*after))
    claimed = {claim.generation for claim in read}
    for claim in read:
        if claim.predecessor is not None and claim.predecessor not in claimed:
            missing = claim_key(epoch_of(claim.predecessor))
            return ReplicaGapError(missing, f"{claim.key}, which names {claim.predecessor}")
    for name in client.generations() if not names or any(claim.is_isolated for claim in read) else ():
        if name not in claimed:
            return ReplicaGapError(claim_key(epoch_of(name)), f"generation {name}, which no claim names")
    return None


def find_extent(client: ReplicaClient, claim: Claim, since: Position | None = None) -> GenerationRange:
    """Find how far a generation has come: a listing, from ``since`` on if it holds anything there, and the last header.

    If it holds nothing from its claim's first index on, its snapshot shows whether it holds anything before.
    """
    last: Position | None = None
    if since is not None:
        for info in client.wal_segments(claim.generation, since):
            last = info.position
    if last is None:
        return _extent_of(client, claim, list_generation(client, claim.generation, keep=1))
    return _extent_at(client, claim, last)


def _extent_of(client: ReplicaClient, claim: Claim, listing: Listing) -> GenerationRange:
    start = Position(claim.generation, claim.first, 0)
    extent = _extent_at(client, claim, listing.wal[-1].position) if listing.wal else GenerationRange(start, start)
    if extent.has_data or not extent.began or not claim.first or listing.newest is None:
        return extent
    return replace(extent, start=read_base(client, claim, listing.snapshots).first)


def _extent_at(client: ReplicaClient, claim: Claim, last: Position) -> GenerationRange:
    header = read_header(client, last)
    if header.successor is not None and header.length:
        raise CorruptObjectError(wal_key(last), "is a terminal, and not an empty one")
    start = Position(last.generation, claim.first, 0)
    slot = last if header.successor else header.next_slot
    return GenerationRange(start, slot, header.successor, not never_began(claim.first, header), header)


class _GenerationRanges:
    """Facts about each generation, looked up when they are first needed."""

    def __init__(
        self,
        client: ReplicaClient,
        by_generation: Mapping[Generation, Claim],
        keep: int | None = PAGE,
        known: Callable[[Claim], GenerationRange | None] | None = None,
    ) -> None:
        self._client = client
        self._keep = keep
        self._known = known
        self._by_generation = by_generation
        self._listings: dict[Generation, Listing] = {}
        self._pieces: dict[Generation, GenerationContents] = {}
        self._extents: dict[Generation, GenerationRange] = {}
        self._names: dict[Generation, SegmentNames] = {}
        ends = (claim.predecessor_end for claim in by_generation.values())
        self._seen = {at.generation: at for at in ends if at is not None}

    def listing(self, claim: Claim) -> Listing:
        if claim.generation not in self._listings:
            listing = list_generation(self._client, claim.generation, keep=self._keep)
            self._listings[claim.generation] = listing
        return self._listings[claim.generation]

    def pieces(self, claim: Claim) -> GenerationContents:
        if claim.generation not in self._pieces:
            self._pieces[claim.generation] = list_pieces(self._client, claim, self.listing(claim))
        return self._pieces[claim.generation]

    def holds_data(self, claim: Claim) -> bool:
        """Whether anything of the log was shipped. Names are enough, unless only the generation's first objects
        exist."""
        listing = self.listing(claim)
        wal = bool(listing.wal) and listing.wal[-1].position > Position(claim.generation, claim.first, 0)
        if wal or (listing.newest or 0) > claim.first:
            return True
        sealed = bool(claim.first) and listing.newest is not None and bool(self.pieces(claim).base.entries)
        return sealed or self.extent(claim).has_data

    def is_lost(self, claim: Claim) -> bool:
        """Whether it has sealed segments, but neither a snapshot nor a WAL segment, which were written first."""
        listing = self.listing(claim)
        if listing.snapshots or listing.wal or claim.writer is Writer.BATCH:
            return False
        return next(self._client.sealed_segments(claim.generation, claim.first), None) is not None

    def extent(self, claim: Claim) -> GenerationRange:
        if claim.generation not in self._extents:
            listing = self._listings.get(claim.generation)
            known = None if self._known is None else self._known(claim)
            if known is not None:
                extent = known
            elif listing is None:
                extent = find_extent(self._client, claim, self._seen.get(claim.generation))
            else:
                extent = _extent_of(self._client, claim, listing)
            if extent.successor is not None:
                self._check_successor(extent)
            self._extents[claim.generation] = extent
        return self._extents[claim.generation]

    def check_mapping(self, claim: Claim, shift: int, newer: Claim, older: Claim) -> None:
        """Check the shift of a claim against the contents of the two generations."""
        if self.extent(older).is_settled:
            check_mapping(claim, shift, self._names_of(newer), self._names_of(older))

    def _names_of(self, claim: Claim) -> SegmentNames:
        if claim.generation not in self._names:
            extent = self.extent(claim)
            find = partial(self.listing, claim)
            self._names[claim.generation] = SegmentNames(self._client, claim, extent.slot, extent.last, find)
        return self._names[claim.generation]

    def _check_successor(self, extent: GenerationRange) -> None:
        """Check that the claim which a terminal names exists. The claim is written first, so a missing one was
        deleted."""
        if any(claim.key == extent.successor for claim in self._by_generation.values()):
            return
        for _ in range(LISTINGS - 1):
            if any(claim_key(*name) == extent.successor for name in self._client.claims()):
                return
        raise ReplicaGapError(str(extent.successor), f"the terminal at {extent.slot}, which names it")
