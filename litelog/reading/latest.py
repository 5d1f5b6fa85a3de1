"""Chooses the generation of a replica that a reader takes: a pure function, and the look-ups that it needs.

Specified in litelog/reading/README.md#which-generation.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import (
    ConfigError,
    CorruptionError,
    CorruptObjectError,
    EmptyLogError,
    NoReplicaError,
    NotFoundError,
    NothingToRestoreError,
    ReplicaGapError,
    UnknownVersionError,
)
from litelog.objects.chain import never_began
from litelog.objects.claim import Claim, Relation, Writer
from litelog.objects.layout import claim_key, wal_key
from litelog.objects.position import ClaimName, Generation, Position, epoch_of, generation
from litelog.reading.contents import LISTINGS, PAGE, list_generation, list_pieces, read_base
from litelog.reading.generations import read_claim
from litelog.reading.index_mapping import SegmentNames, check_mapping
from litelog.reading.search import read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import BaseSnapshot, GenerationContents, Listing
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

    The latest generation is the generation of the highest epoch that holds data and has reached the end of all that it
    continues: of its predecessor, of the predecessor's predecessor, and so on, no matter how far each of these had
    come. A diverged generation continues nothing, but has to reach the end of what the log still shares with its
    predecessor. If several of one epoch qualify, because their owners are isolated, it is the one with the highest
    name.

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
        if claim.merges:  # the predecessor itself names what it continues, not the merged names
            newest, shift = older, 0
        claim = older
    return _has_reached_shared_end(claim, extent_of, newest, shift)


def _has_reached_shared_end(
    claim: Claim, extent_of: Callable[[Claim], GenerationRange], newest: Claim, shift: int = 0
) -> bool:
    """Whether ``newest``, which continues ``claim`` or is it, has all that ``claim`` shares with its predecessor.

    ``shift``: added to an index of ``claim``'s generation, gives that of ``newest``'s.
    """
    shared = claim.shared_end
    if shared is None:
        return True
    slot = extent_of(newest).slot
    return (slot.index, slot.offset) >= (shared.index + shift, shared.offset)


def _predecessor(claim: Claim, by_generation: Mapping[Generation, Claim]) -> Claim:
    if claim.predecessor is None:
        raise CorruptObjectError(claim.key, "continues a generation that it does not name")
    epoch = epoch_of(claim.predecessor)
    if epoch >= claim.epoch:
        raise CorruptObjectError(
            claim.key, "predecessor", f"a generation of an epoch below {claim.epoch}", claim.predecessor
        )
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

    If the newest generation with data proves that it holds all that it continues, the number of generations does not
    matter: claims are listed, and its claim, names, snapshot and last header are read. Otherwise a GET for each claim;
    then a listing and a ranged GET for the newest generation and for each generation that it continues.

    Args:
        include_lost: Take a generation of which only sealed segments are left, rather than an earlier one.
        known: Returns how far a generation has come, if the caller knows; None otherwise.

    Raises:
        NothingToRestoreError: No generation holds anything.
        ReplicaGapError: A generation was ended for a successor whose claim is missing.
    """
    return _find_latest(client, _GenerationRanges(client, known=known), include_lost=include_lost)


def find_latest_contents(
    client: ReplicaClient,
    *,
    include_lost: bool = False,
    names: Sequence[ClaimName] | None = None,
    read: dict[ClaimName, Claim] | None = None,
) -> tuple[Claim, GenerationContents | None]:
    """Find what ``find_latest`` finds, and the generation's contents, if they were read for that and are whole.

    ``names``: a listing of the claims that was just made. ``read``: claims that were just read; takes those that this
    reads.
    """
    lookups = _GenerationRanges(client)
    claim = _find_latest(client, lookups, include_lost=include_lost, names=names, read=read)
    with suppress(CorruptionError, UnknownVersionError):  # the next reader finds that, and works around it
        held = lookups.listed_pieces(claim)
        if held is not None and held.gap is None and held.base.damage is None:
            return claim, held
    return claim, None


def _find_latest(
    client: ReplicaClient,
    lookups: _GenerationRanges,
    *,
    include_lost: bool,
    names: Sequence[ClaimName] | None = None,
    read: dict[ClaimName, Claim] | None = None,
) -> Claim:
    names = client.claims() if names is None else names
    read = {} if read is None else read
    claim = _find_proven(client, names, read, lookups, include_lost=include_lost)
    if claim is None:
        by_generation = lookups.take(read_claims(client, names, read))
        return _walk(client, by_generation, lookups, include_lost=include_lost)
    if lookups.holds_data(claim):
        lookups.extent(claim)
    return claim


def walk_to_latest(client: ReplicaClient, *, include_lost: bool = False) -> Claim:
    """Find what ``find_latest`` finds, from all claims and all that the latest generation continues."""
    lookups = _GenerationRanges(client)
    return _walk(client, lookups.take(read_claims(client)), lookups, include_lost=include_lost)


def _walk(
    client: ReplicaClient, by_generation: Mapping[Generation, Claim], lookups: _GenerationRanges, *, include_lost: bool
) -> Claim:
    if include_lost and (lost := _find_lost(by_generation, lookups)) is not None:
        return lost
    claim = _choose(client, by_generation, lookups)
    lookups.extent(claim)
    return claim


def open_latest(client: ReplicaClient, keep: int | None = PAGE) -> GenerationContents:
    """Find the contents of a replica's latest generation. For readers that read to its end, and see how it ended.

    If it continues nothing, makes four requests: two listings (claims, and its objects) and two GETs (claim and
    snapshot). Otherwise as ``find_latest``.

    Args:
        client: the replica.
        keep: how many names a listing keeps. If that was not enough, the listing is made again. None keeps all, for
            callers that expect many.

    Raises:
        NothingToRestoreError, ReplicaGapError, CorruptObjectError, UnknownVersionError: as ``find_latest`` and
            ``list_pieces``.
    """
    lookups = _GenerationRanges(client, keep)
    names, read = client.claims(), dict[ClaimName, Claim]()
    claim = _find_proven(client, names, read, lookups)
    if claim is None:
        claim = _choose(client, lookups.take(read_claims(client, names, read)), lookups)
    return lookups.pieces(claim)


def _find_proven(
    client: ReplicaClient,
    names: Sequence[ClaimName],
    read: dict[ClaimName, Claim],
    lookups: _GenerationRanges,
    *,
    include_lost: bool = False,
) -> Claim | None:
    """Find the claim that a walk through all claims would find, from the newest claims alone.

    Returns None if they do not prove it, for any reason: then the walk decides, and reports what is wrong. A generation
    holds all that it continues if it holds its predecessor's end: its owner made that same choice when it claimed, and
    ended every generation below the predecessor before that began.

    ``names``: of all claims, oldest first. ``read`` takes the claims that are read.
    """
    if [name.epoch for name in names] != list(range(1, len(names) + 1)) or any(name.isolated for name in names):
        return None
    lookups.keys = {claim_key(*name) for name in names}
    with suppress(CorruptionError, UnknownVersionError, NotFoundError):
        for name in reversed(names):
            claim = read[name] = read.get(name) or read_claim(client, name)
            if lookups.holds_data(claim):
                continues = claim.relation is Relation.CONTINUES
                held = lookups.holds_its_past if continues else partial(_has_reached_shared_end, claim, lookups.extent)
                return claim if held(claim) else None
            if include_lost and lookups.is_lost(claim):
                return claim
    return None


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
        is_begun = bool(lookups.listing(by_generation[max(by_generation)]).snapshots)
        lost = "; or what was shipped after its first snapshot is lost" if is_begun else ""
        raise EmptyLogError(f"{client.url}: holds claims, but nothing of the log yet{lost}")
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


def read_claims(
    client: ReplicaClient, names: Sequence[ClaimName] | None = None, known: Mapping[ClaimName, Claim] | None = None
) -> dict[Generation, Claim]:
    """Read all claims, by generation. Raises ReplicaGapError if one is missing: claims are never deleted.

    ``names``: a listing that was just made. ``known``: claims that were just read.
    """
    missing = ReplicaGapError("")
    held = known or {}
    for attempt in range(LISTINGS):
        if attempt or names is None:
            names = client.claims()
        try:
            read = [held.get(name) or read_claim(client, name) for name in names]
        except NotFoundError as error:
            missing = ReplicaGapError(error.key)
            continue
        if (gap := _missing_claim(client, names, read)) is None:
            return {claim.generation: claim for claim in read}
        missing = gap
    raise missing


def _missing_claim(client: ReplicaClient, names: Sequence[ClaimName], read: Sequence[Claim]) -> ReplicaGapError | None:
    """Find a claim that is missing, and must exist because another object refers to it.

    A caller notices without this check that the newest claim is missing: the terminal before that generation names it.
    An isolated generation may have no terminal before it, but its objects show that it was claimed.
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
        listing = list_generation(client, claim.generation, keep=1)
        return _extent_of(client, claim, listing, lambda: read_base(client, claim, listing.snapshots))
    return _extent_at(claim, read_header(client, last))


def _extent_of(
    client: ReplicaClient,
    claim: Claim,
    listing: Listing,
    read: Callable[[], BaseSnapshot],
    known: WalHeader | None = None,
) -> GenerationRange:
    """``known``: the header of the last WAL segment, if it was read."""
    start = Position(claim.generation, claim.first, 0)
    extent = GenerationRange(start, start)
    if listing.wal:
        last = listing.wal[-1].position
        extent = _extent_at(claim, known if known is not None and known.position == last else read_header(client, last))
    if extent.has_data or not extent.began or not claim.first or listing.newest is None:
        return extent
    return replace(extent, start=read().first)


def _extent_at(claim: Claim, header: WalHeader) -> GenerationRange:
    last = header.position
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
        keep: int | None = PAGE,
        known: Callable[[Claim], GenerationRange | None] | None = None,
    ) -> None:
        self._client = client
        self._keep = keep
        self._known = known
        self.keys: set[str] = set()
        """The keys of all claims."""
        self._listings: dict[Generation, Listing] = {}
        self._pieces: dict[Generation, GenerationContents] = {}
        self._extents: dict[Generation, GenerationRange] = {}
        self._names: dict[Generation, SegmentNames] = {}
        self._seen: dict[Generation, Position] = {}

    def take(self, by_generation: dict[Generation, Claim]) -> dict[Generation, Claim]:
        """Take note of all claims, and return them."""
        self.keys = {claim.key for claim in by_generation.values()}
        ends = (claim.predecessor_end for claim in by_generation.values())
        self._seen = {at.generation: at for at in ends if at is not None}
        return by_generation

    def listing(self, claim: Claim) -> Listing:
        if claim.generation not in self._listings:
            listing = list_generation(self._client, claim.generation, keep=self._keep)
            self._listings[claim.generation] = listing
        return self._listings[claim.generation]

    def pieces(self, claim: Claim) -> GenerationContents:
        if claim.generation not in self._pieces:
            self._pieces[claim.generation] = list_pieces(self._client, claim, self.listing(claim))
        return self._pieces[claim.generation]

    def listed_pieces(self, claim: Claim) -> GenerationContents | None:
        """The contents, with the last header if it was read; None if they must be listed again."""
        if claim.generation not in self._pieces and not self.listing(claim).whole:
            return None
        extent, pieces = self._extents.get(claim.generation), self.pieces(claim)
        return pieces if extent is None else replace(pieces, last=extent.last)

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
                pieces = self._pieces.get(claim.generation)
                last = None if pieces is None else pieces.last
                extent = _extent_of(self._client, claim, listing, partial(self._base, claim, listing), last)
            if extent.successor is not None:
                self._check_successor(extent)
            self._extents[claim.generation] = extent
        return self._extents[claim.generation]

    def holds_its_past(self, claim: Claim) -> bool:
        """Whether its own objects prove that a generation that continues another holds all that the other one shipped:
        its slot, the predecessor's end in its snapshot, and the log segment that its claim names for the shift. False
        if any of these is not known."""
        seen, file = claim.predecessor_end, claim.predecessor_file
        if seen is None or file is None:
            return False
        base = self._base(claim, self.listing(claim))
        end = None if base.snapshot is None else base.snapshot.predecessor_end
        if end is None or end.generation != claim.predecessor:
            return False
        slot = self.extent(claim).slot
        if (slot.index, slot.offset) < (end.index + claim.shift, end.offset):
            return False
        mapped = seen.index - (seen.offset == 0) + claim.shift
        if mapped < base.first.index:
            return mapped >= 0  # it was dropped since
        return mapped < slot.index + (slot.offset > 0) and self._names_of(claim).name(mapped) == file

    def check_mapping(self, claim: Claim, shift: int, newer: Claim, older: Claim) -> None:
        """Check the shift of a claim against the contents of the two generations."""
        if self.extent(older).is_settled:
            check_mapping(claim, shift, self._names_of(newer), self._names_of(older))

    def _base(self, claim: Claim, listing: Listing) -> BaseSnapshot:
        if listing.whole or claim.generation in self._pieces:
            return self.pieces(claim).base
        return read_base(self._client, claim, listing.snapshots)

    def _names_of(self, claim: Claim) -> SegmentNames:
        if claim.generation not in self._names:
            extent = self.extent(claim)
            find = partial(self.listing, claim)
            names = SegmentNames(self._client, claim, extent.slot, extent.last, find)
            if claim.generation in self._pieces:
                names.take(self._pieces[claim.generation].base.entries)
            self._names[claim.generation] = names
        return self._names[claim.generation]

    def _check_successor(self, extent: GenerationRange) -> None:
        """Check that the claim which a terminal names exists. The claim is written first, so a missing one was
        deleted."""
        if extent.successor in self.keys:
            return
        for _ in range(LISTINGS - 1):
            if any(claim_key(*name) == extent.successor for name in self._client.claims()):
                return
        raise ReplicaGapError(str(extent.successor), f"the terminal at {extent.slot}, which names it")


_GENERATION_DIGITS = 16


def expand_generation(prefix: str, clients: Iterable[ReplicaClient]) -> Generation:
    """Return the generation of the replicas whose name begins with ``prefix``, which may be the whole name.

    Raises ConfigError if several do, or if ``prefix`` is not hex; NothingToRestoreError if none does.
    """
    if re.fullmatch(r"[0-9a-f]{1,16}", prefix) is None:
        raise ConfigError(f"{prefix!r}: not a generation (16 hex digits, or its first ones)")
    if len(prefix) == _GENERATION_DIGITS:
        return generation(prefix)
    found = sorted({name for client in clients for name in read_claims(client) if name.startswith(prefix)})
    if len(found) > 1:
        raise ConfigError(f"generation {prefix} may be {' or '.join(found)}: write more digits")
    if not found:
        raise NothingToRestoreError(f"no generation begins with {prefix}")
    return found[0]
