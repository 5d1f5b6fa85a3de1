"""A generation's first snapshot, with which its chain begins, and the log segments that are sealed before it.

Specified in litelog/shipping/README.md#which-generations-began.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, CorruptObjectError, ExistsError, NotFoundError, UnknownVersionError
from litelog.log.source_position import SourcePosition
from litelog.objects import snapshot
from litelog.objects.claim import Relation
from litelog.objects.position import Position
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import make_entry
from litelog.reading.contents import find_snapshot
from litelog.reading.fetch import read_verified
from litelog.reading.sealed_reader import read_listed_footer
from litelog.reading.search import read_header
from litelog.reading.wal_cursor import describe
from litelog.shipping.finished_segments import NotSealableError
from litelog.shipping.proof import find_lost_indexes
from litelog.shipping.stages import BacklogSealed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.side_files import SideFile
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.shipping.backlog import BacklogSealer
    from litelog.shipping.stages import ClosedBelow
    from litelog.shipping.state import Running
    from litelog.stores.replica_client import ReplicaClient


class SnapshotConflictError(Exception):
    """An earlier try put the first snapshot, and what it named has changed since: the log, or the sealed segments of
    the predecessor, whose former owner may still have put one."""


@dataclass(frozen=True, slots=True)
class Known:
    """The sealed segments of a generation, in the order of its indexes."""

    entries: Sequence[SnapshotEntry] = ()
    """Those that the replica holds, with the right size."""
    lost: Sequence[SnapshotEntry] = ()
    """Those that it does not hold."""


def find_known(client: ReplicaClient, claim: Claim, damaged: Collection[str] = ()) -> Known:
    """Return what the newest snapshot of the claim's generation names, and which of it the replica holds. If its
    snapshots are lost, returns what its own sealed segments state. A listing and a GET, and a listing of each
    generation that holds sealed segments.

    ``damaged``: the keys of sealed segments that exist but cannot be read.
    """
    found = find_snapshot(client, claim)
    if found is None:
        own = _read_entries(client, claim.generation)
        return Known([entry for entry in own if entry.key not in damaged])
    holders = dict.fromkeys(entry.generation for entry in found.segments)
    sizes = {(holder, info.index): info.size for holder in holders for info in client.sealed_segments(holder)}
    kept: list[SnapshotEntry] = []
    lost: list[SnapshotEntry] = []
    for entry in found.segments:
        there = sizes.get((entry.generation, entry.sealed_index)) == entry.size and entry.key not in damaged
        (kept if there else lost).append(entry)
    return Known(kept, lost)


def find_hole(client: ReplicaClient, known: Known, state: Running | None, stop: int) -> int | None:
    """Return the highest index below ``stop`` of which the replica is known to have lost something; None if nothing is
    lost.

    ``state`` belongs to the generation whose sealed segments are ``known``, if that is the owner's. Log segments that
    only WAL segments hold are compared with the owner's tallies.
    """
    holes = [entry.index for entry in known.lost if entry.index < stop]
    if state is not None:
        sealed = known.entries[-1].index + 1 if known.entries else 0
        tallies = [tally for tally in state.tallies if sealed <= tally.index < stop]
        holes += find_lost_indexes(client, state.claim.generation, tallies)
    return max(holes, default=None)


def count_kept(known: Known, stop: int) -> int:
    """Return how many consecutive sealed segments directly precede index ``stop``."""
    indexes = {entry.index for entry in known.entries}
    return next((count for count in range(stop) if stop - 1 - count not in indexes), stop)


def _read_entries(client: ReplicaClient, name: Generation) -> Iterator[SnapshotEntry]:
    """Yield an entry from the footer of each sealed segment of a generation. A listing, and a ranged GET or two for
    each."""
    for info in client.sealed_segments(name):
        with suppress(CorruptObjectError, UnknownVersionError, NotFoundError):  # it is sealed again
            yield make_entry(read_listed_footer(client, info), info.size)


def find_number(client: ReplicaClient, claim: Claim, base: int) -> int | None:
    """Return the number of the first record of the log segment with index ``base``, from the first WAL segment that
    the claim's predecessor shipped of it, or the sealed segment that this one stands for. None if it does not exist
    (any more). A GET; for a sealed segment one more GET and a listing."""
    index = base - claim.shift
    if claim.predecessor is None or claim.relation is not Relation.CONTINUES or index < 0:
        return None
    try:
        return describe(client, read_header(client, Position(claim.predecessor, index, 0))).first
    except (CorruptionError, UnknownVersionError):
        return None


def seal_first(backlog_sealer: BacklogSealer | None, closed: ClosedBelow) -> BacklogSealed | None:
    """Seal the log segments before the claim's first index. Return what the first snapshot names; None while sealing
    runs.

    Log segments that the source has dropped come first, as the predecessor's snapshot names them, if it reaches that
    far. Raises what ``BacklogSealer.seal`` raises, and NotSealableError.
    """
    claim, state = closed.claim, closed.state
    older = _find_older(closed) if backlog_sealer is not None else []
    place = state.place
    if backlog_sealer is not None:
        place = backlog_sealer.continue_numbers(place, older, closed.number)
    if backlog_sealer is None or claim.first == state.base:
        return BacklogSealed(closed, tuple(older), place)
    count, start_file = claim.first - state.base, place.file

    def find_files() -> Sequence[str]:
        names = backlog_sealer.files.non_empty_from(start_file)[:count]
        if len(names) < count or names[0] != start_file:
            raise NotSealableError(start_file)  # it does not exist any more
        return names

    start = SourcePosition(state.base, "", sequence=place.sequence)
    result = backlog_sealer.seal(claim, start, find_files, closed.known)
    if result is None:
        return None
    if result.unfit is not None:
        raise result.unfit
    entries = (*older, *(segment.entry for segment in result.sealed))
    return BacklogSealed(closed, entries, result.sealed[-1].after)


def _find_older(closed: ClosedBelow) -> list[SnapshotEntry]:
    """Return the entries that directly precede the log's first log segment, by the indexes of the new generation."""
    claim, state = closed.claim, closed.state
    if claim.relation is Relation.CONTINUES:
        shift = claim.shift
    elif state.salvaged is not None:
        shift = -state.salvaged
    else:
        return []
    mapped = [replace(entry, index=entry.index + shift) for entry in closed.known]
    mapped = [entry for entry in mapped if 0 <= entry.index < state.base]
    kept = count_kept(Known(mapped), state.base)
    return mapped[len(mapped) - kept :]


def write_first_snapshot(
    client: ReplicaClient,
    claim: Claim,
    segments: tuple[SnapshotEntry, ...],
    predecessor_end: Position | None,
    side_files: tuple[SideFile, ...],
) -> str:
    """Write the first snapshot, or adopt the existing one. Return its SHA-256, hex. Raises SnapshotConflictError
    if it names something else."""
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
        side_files=side_files,
    )
    body = snapshot.encode(first)
    name = claim.generation
    try:
        client.write_snapshot(name, claim.first, [body])
    except ExistsError:  # from an earlier try: the same, except for its compression after an upgrade
        return read_verified(lambda: client.read_snapshot(name, claim.first), partial(_own_digest, first))
    return snapshot.digest(body)


def _own_digest(written: Snapshot, body: bytes) -> str:
    """Return the digest of ``body``, if it encodes the snapshot ``written``, perhaps with other side files, which may
    change at any time. Raises SnapshotConflictError."""
    existing = snapshot.decode(written.key, body)
    if replace(existing, side_files=written.side_files) != written:
        raise SnapshotConflictError
    return snapshot.digest(body)
