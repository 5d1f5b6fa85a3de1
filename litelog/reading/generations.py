"""The generations of a replica, one at a time: their claims, and how far each has come."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NotFoundError, StoreError, UnknownVersionError
from litelog.objects import claim as claims
from litelog.objects import snapshot, wal_segment
from litelog.objects.chain import never_began
from litelog.objects.layout import CLAIMS, claim_key, snapshot_key, wal_key
from litelog.objects.position import ClaimName, Position, epoch_of
from litelog.reading.contents import list_generation, read_base
from litelog.reading.fetch import read_verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader, WalSegment
    from litelog.reading.contents import GenerationContents
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class GenerationEnd:
    """How far a generation has come."""

    slot: Position
    """Its next slot; the terminal's position if it has ended."""
    last: WalHeader | None
    """The last WAL segment before the slot; None if there is none, or it is gone."""
    digest: str
    """SHA-256 of the object before the slot: that WAL segment, or the snapshot. Empty if neither exists, or if the
    generation never began (``never_began``)."""
    terminal: WalHeader | None = None
    sealed: SnapshotEntry | None = None
    """If ``last`` is None: the last log segment before the slot, as a snapshot names it; None without one."""

    @property
    def file(self) -> str | None:
        """The file name of the last log segment before the slot; None if nothing states it."""
        index = self.slot.index - (self.slot.offset == 0)
        held = self.last or self.sealed
        return (held.file or None) if held is not None and held.index == index else None

    @property
    def started(self) -> bool:
        """Whether its owner wrote anything after the claim. If so, all older generations have ended."""
        return bool(self.digest)

    def ended_by(self, terminal: WalHeader) -> GenerationEnd:
        """The same with the terminal that is in the slot."""
        if self.last is None and not terminal.previous:  # it never began: a snapshot that exists came too late
            return GenerationEnd(terminal.position, None, "", terminal)
        return replace(self, slot=terminal.position, digest=self.digest or terminal.previous, terminal=terminal)


def read_claim(client: ReplicaClient, name: ClaimName) -> Claim:
    """Read the claim of that name. Raises NotFoundError."""
    return read_verified(lambda: client.read_claim(name), partial(claims.decode, claim_key(*name)))


def require_replica(client: ReplicaClient, lack: Exception | None = None) -> None:
    """Raise StoreError if the replica, in which a claim was found before, has none now: claims are kept, so its root is
    away, and says nothing about its objects. One listing.

    ``lack``: the error about what seemed to be missing.
    """
    if not client.claims():
        raise away() from lack


def away() -> StoreError:
    """The error about a replica whose root is away."""
    return StoreError("list", CLAIMS, "no claim is there now: the replica is not mounted, or was deleted")


def newest_claims(client: ReplicaClient, names: Sequence[ClaimName]) -> Iterator[Claim]:
    """Yield the claims of ``names``, which are oldest first, in reverse. Each takes a GET when it is requested."""
    return (read_claim(client, name) for name in reversed(names))


def read_claim_of(client: ReplicaClient, name: Generation, named_by: Claim) -> Claim:
    """Read the claim of a generation that another claim names. One GET, and a second GET if only one of the two claims
    is isolated. Raises NotFoundError."""
    spellings = [ClaimName(epoch_of(name)), ClaimName(epoch_of(name), name)]
    for spelling in reversed(spellings) if named_by.is_isolated else spellings:
        try:
            claim = read_claim(client, spelling)
        except NotFoundError:
            continue
        if claim.generation == name:
            return claim
    raise NotFoundError(claim_key(epoch_of(name)))


def find_newer(client: ReplicaClient, claim: Claim) -> Claim | None:
    """Find a claim of a later epoch; None if there is none. The name of the next claim is known, so this costs one GET.

    The names of claims after an isolated one are unknown, so a listing finds the newest one. (An isolated owner that
    follows a claim that is not isolated ends that generation, so the terminal there names its claim.)
    """
    if claim.is_isolated:
        names = client.claims(claim.epoch + 1)
        return read_claim(client, names[-1]) if names else None
    try:
        return read_claim(client, ClaimName(claim.epoch + 1))
    except NotFoundError:
        return None


def find_tip(client: ReplicaClient, claim: Claim) -> GenerationEnd:
    """Find how far a generation has come: a listing, its last two objects, and the objects that followed since.

    Also reads a snapshot if no WAL segment shows how far it has come: there is none yet, or all were pruned. Raises
    CorruptObjectError if the last object cannot be read, or if the object before a terminal contradicts it.
    """
    listing = list_generation(client, claim.generation, keep=2)
    start = Position(claim.generation, claim.first, 0)
    tip = GenerationEnd(start, None, "" if listing.wal else _snapshot_digest(client, claim))
    damage: CorruptObjectError | None = None
    for info in listing.wal:
        try:
            segment = _read(client, info.position)
        except CorruptObjectError as error:
            if info == listing.wal[-1]:
                raise
            damage = error
        else:
            tip = _step(tip, segment)
    tip = read_forward(client, tip)
    if damage is not None and tip.last is None:
        tip = _take_from_terminal(tip, damage)
    ended_unbegun = tip.terminal is not None and never_began(claim.first, tip.terminal)
    # A snapshot that is known but not listed is the first one, and was written after the listing.
    snapshots = listing.snapshots or ((claim.first,) if tip.started else ())
    if tip.last is None and snapshots and tip.slot.index > 0 and not ended_unbegun:
        tip = replace(tip, sealed=_last_sealed(client, claim, snapshots))
    return tip


def tip_of(
    client: ReplicaClient, contents: GenerationContents, read: Callable[[Position], WalSegment]
) -> GenerationEnd:
    """How far a generation had come when its contents were read: a GET of its last WAL segment (with ``read``), and
    none if it holds only its first snapshot.

    A caller that puts a terminal into the slot learns whether more followed. As ``find_tip`` if it was ended, or if
    the last WAL segment is damaged.
    """
    claim, base = contents.base.claim, contents.base
    start = Position(claim.generation, claim.first, 0)
    if not contents.wal and base.snapshot is not None and base.start == start:
        return GenerationEnd(start, None, base.digest, sealed=base.entries[-1] if base.entries else None)
    with suppress(CorruptObjectError):
        if contents.wal and (segment := read(contents.wal[-1].position)).header.successor is None:
            return _step(GenerationEnd(start, None, ""), segment)
    return find_tip(client, claim)


def read_forward(client: ReplicaClient, tip: GenerationEnd) -> GenerationEnd:
    """Move ``tip`` past all objects that follow it: a GET for each, until the next slot is free or holds a terminal."""
    while tip.terminal is None:
        try:
            segment = _read(client, tip.slot)
        except NotFoundError:
            break
        tip = _step(tip, segment)
    return tip


def _read(client: ReplicaClient, position: Position) -> WalSegment:
    """Read the WAL segment at ``position``. Ignores damage to its bytes in the store: an owner can end, continue or
    leave a damaged generation, and readers report the damage."""
    key = wal_key(position)

    def read() -> bytes:
        return client.read_wal_segment(position)

    try:
        return read_verified(read, partial(wal_segment.decode_checked, key))
    except CorruptObjectError:
        body = read()
        try:
            return wal_segment.decode(key, body)
        except CorruptObjectError:  # the header has its own checksum
            header = wal_segment.decode_header(key, body)
            return wal_segment.WalSegment(header, wal_segment.digest([body]), memoryview(body))


def _step(tip: GenerationEnd, segment: WalSegment) -> GenerationEnd:
    header = segment.header
    if header.successor is not None:
        return tip.ended_by(header)
    return GenerationEnd(header.next_slot, header, segment.digest)


def _take_from_terminal(tip: GenerationEnd, damage: CorruptObjectError) -> GenerationEnd:
    """Complete ``tip`` with the facts about the last WAL segment, which cannot be read, that its terminal repeats."""
    if tip.terminal is None or not tip.terminal.file:
        raise damage
    return replace(tip, last=replace(tip.terminal, successor=None), digest=tip.terminal.previous)


def _snapshot_digest(client: ReplicaClient, claim: Claim) -> str:
    name = claim.generation
    key = snapshot_key(name, claim.first)

    def read() -> bytes:
        return client.read_snapshot(name, claim.first)

    def check(body: bytes) -> str:
        snapshot.decode(key, body)
        return snapshot.digest(body)

    try:
        return read_verified(read, check)
    except (CorruptObjectError, UnknownVersionError):
        return snapshot.digest(read())
    except NotFoundError:
        return ""


def _last_sealed(client: ReplicaClient, claim: Claim, indexes: Sequence[int]) -> SnapshotEntry | None:
    entries = read_base(client, claim, indexes).entries
    return entries[-1] if entries else None
