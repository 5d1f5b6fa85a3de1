"""A generation's first snapshot: what goes up sealed before it, and the object that its chain begins with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from litelog import snapshot
from litelog.claim import Relation
from litelog.errors import CorruptionError, CorruptObjectError, ExistsError
from litelog.log.place import Place
from litelog.position import Position, generation
from litelog.reading.checked_read import read_checked
from litelog.reading.wal_cursor import describe
from litelog.reading.wal_search import read_header
from litelog.shipping.finished_files import UnfitError
from litelog.shipping.snapshots import find_snapshot
from litelog.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.claim import Claim
    from litelog.reading.lineage import Tip
    from litelog.replica_client import ReplicaClient
    from litelog.shipping.first_contact import FirstContact
    from litelog.shipping.replica_state import ReplicaState
    from litelog.snapshot_entries import SnapshotEntry


@dataclass(frozen=True, slots=True)
class Opened:
    """A generation that is claimed, with all below it closed: what is left to do is to seal, and the first snapshot."""

    state: ReplicaState
    claim: Claim
    predecessor: Tip | None
    known: Sequence[SnapshotEntry]
    """What the predecessor's newest snapshot names."""
    number: int | None = None
    """That of the log's first record, where the predecessor's WAL segments tell it and the source does not."""


def find_known(client: ReplicaClient, claim: Claim) -> Sequence[SnapshotEntry]:
    """What the newest snapshot of a claim's predecessor names: a listing and a GET."""
    found = find_snapshot(client, generation(claim.predecessor)) if claim.predecessor is not None else None
    return found.segments if found is not None else ()


def find_number(client: ReplicaClient, claim: Claim, base: int) -> int | None:
    """The number of the first record of the log segment that has index ``base``, as the first WAL segment that the
    claim's predecessor shipped of it says, or the sealed segment that it stands for; None where that is not there (any
    more): a GET, for a sealed segment a listing and a GET more."""
    index = base - claim.shift
    if claim.predecessor is None or claim.relation is not Relation.CONTINUES or index < 0:
        return None
    try:
        return describe(client, read_header(client, Position(generation(claim.predecessor), index, 0))).first
    except CorruptionError:
        return None


def seal_first(contact: FirstContact | None, opened: Opened) -> tuple[tuple[SnapshotEntry, ...], Place]:
    """Seal what is finished before the claim's first index; what the first snapshot names, and the place behind it.

    What the source has dropped comes first, as the predecessor's snapshot names it, if that reaches so far. Raises what
    ``FirstContact.seal`` raises, and UnfitError.
    """
    claim, state = opened.claim, opened.state
    older: list[SnapshotEntry] = []
    if contact is not None and claim.relation is Relation.CONTINUES:
        mapped = (replace(entry, index=entry.index + claim.shift) for entry in opened.known)
        older = [entry for entry in mapped if entry.index < state.base]
    if older and older[-1].index != state.base - 1:
        older = []
    place = state.place if contact is None else contact.number_on(state.place, older, opened.number)
    if contact is None or claim.first == state.base:
        return tuple(older), place
    count, start_file = claim.first - state.base, place.file

    def find_files() -> Sequence[str]:
        names = contact.files.held(start_file)[:count]
        if len(names) < count or names[0] != start_file:
            raise UnfitError(start_file)  # it is not there any more
        return names

    sealing = contact.seal(claim, Place(state.base, "", sequence=place.sequence), find_files, opened.known)
    if sealing.unfit is not None:
        raise sealing.unfit
    return (*older, *(one.entry for one in sealing.sealed)), sealing.sealed[-1].after


def write_first_snapshot(
    client: ReplicaClient, claim: Claim, segments: tuple[SnapshotEntry, ...], predecessor_end: str | None
) -> str:
    """Write it, or adopt the one that is there; its SHA-256, hex. CorruptObjectError where that is another one."""
    first = Snapshot(
        log=claim.log,
        format=claim.format,
        generation=claim.generation,
        owner=claim.owner,
        first=segments[0].index if segments else claim.first,
        next=claim.first,
        created=max(claim.time, *(entry.shipped_last for entry in segments), 0),
        predecessor_end=predecessor_end,
        segments=segments,
    )
    body = snapshot.encode(first)
    name = generation(claim.generation)
    try:
        client.write_snapshot(name, claim.first, [body])
    except ExistsError:  # from an earlier try: the same in all but, after an upgrade, its compression
        return read_checked(lambda: client.read_snapshot(name, claim.first), partial(_own_digest, first))
    return snapshot.digest(body)


def _own_digest(written: Snapshot, body: bytes) -> str:
    """The digest of a snapshot's bytes, if they are the one that was written."""
    if snapshot.decode(written.key, body) != written:
        raise CorruptObjectError(written.key, "the snapshot there is not the one that was written")
    return snapshot.digest(body)
