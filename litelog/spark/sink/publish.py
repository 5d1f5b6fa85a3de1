"""Finishes a write in the driver: creates one generation that names the existing log and all objects of the tasks.

Its snapshot is written last. Until then nothing changes for readers, so a failure has no effect on them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, CorruptObjectError, ExistsError, StoreError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat, segment_name
from litelog.objects import snapshot as snapshots
from litelog.objects.claim import Relation
from litelog.objects.frame_table import ShipTimes
from litelog.objects.sealed_decoding import decode_run
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import SnapshotEntry, make_entry
from litelog.reading.contents import list_index, list_pieces
from litelog.reading.generations import find_newer, find_tip, newest_claims, read_claim_of
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import read_segment
from litelog.shipping.claiming import close_below
from litelog.shipping.sealer import WalBytes, read_sealed_footer
from litelog.spark.sink.plan import NothingToOverwriteError, OvertakenError, claim_first
from litelog.spark.sink.segments import put_sealed, renumbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.reading.generations import GenerationEnd
    from litelog.spark.sink.plan import WritePlan
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

PARALLELISM = 4
"""Log segments that are renumbered in parallel; each is held in memory."""


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a write."""

    generation: Generation
    first: int
    """The first sequence that was written."""
    next: int
    segments: int
    renumbered: int
    """Log segments that were written twice, because their first sequence was not known before."""


def publish(
    client: ReplicaClient, plan: WritePlan, written: Sequence[Sequence[SnapshotEntry]], clock: Clock
) -> Published | None:
    """Make the objects of the tasks readable. ``written``: their entries by partition, in order.

    Returns None if they wrote nothing.

    Raises:
        NothingToOverwriteError: no records would replace a log.
        OvertakenError: another owner has claimed the replica meanwhile.
        StoreError: a request to the store failed.
        CorruptionError: an object of the existing log is damaged.
    """
    entries = [entry for partition in written for entry in partition]
    if not entries:
        if plan.claim.relation is Relation.DIVERGED:
            raise NothingToOverwriteError(client.url)
        return None
    end = _find_end(client, plan)
    first_index = end.slot.index + (end.slot.offset > 0) if end is not None and plan.predecessor is not None else 0
    # It follows what the tasks' generation follows, as that one never begins: a reader looks at one of the two.
    claim = replace(
        plan.claim,
        generation=plan.published,
        first=first_index + len(entries),
        time=max(clock.now(), plan.claim.time),
    )
    if end is not None:
        claim = replace(claim, predecessor_end=end.slot, predecessor_file=end.file)
    claim_first(client, claim)
    names = [name for name in client.claims(plan.claim.epoch) if name.epoch < claim.epoch]
    close_below(client, claim, newest_claims(client, names), clock)
    older = [] if plan.predecessor is None else _older_entries(client, plan.predecessor, claim, clock)
    numbered, moved = _number(client, plan, claim, entries, first_index, clock)
    made = Snapshot(
        log=claim.log,
        format=claim.format,
        generation=claim.generation,
        owner=claim.owner,
        first=older[0].index if older else first_index,
        next=claim.first,
        created=max(clock.now(), *(entry.shipped_last for entry in (*older, *numbered))),
        predecessor_end=claim.predecessor_end,
        segments=(*older, *numbered),
    )
    _require_begun(client, claim, before=True)
    with suppress(ExistsError):  # our own put, whose answer was lost: no other owner writes to this generation
        client.write_snapshot(claim.generation, claim.first, [snapshots.encode(made)])
    _require_begun(client, claim)
    _clean(client, plan, {(entry.generation, entry.sealed_index) for entry in numbered})
    return Published(claim.generation, plan.next, numbered[-1].next or 0, len(numbered), moved)


def _find_end(client: ReplicaClient, plan: WritePlan) -> GenerationEnd | None:
    """Where the generation ended that the write continues or replaces; None without one. The plan's claim ended it."""
    if plan.claim.predecessor is None:
        return None
    return find_tip(client, plan.predecessor or read_claim_of(client, plan.claim.predecessor, plan.claim))


def _require_begun(client: ReplicaClient, claim: Claim, *, before: bool = False) -> None:
    """Raise OvertakenError if the owner of a newer claim may have missed the snapshot.

    ``before``: it is not put yet, so any newer claim counts. Otherwise the terminal may show that the owner saw it.
    """
    if find_newer(client, claim) is None:
        return
    tip = None if before else find_tip(client, claim)
    if tip is None or tip.terminal is None or not tip.started:
        raise OvertakenError(client.url)


def discard(client: ReplicaClient, plan: WritePlan) -> int:
    """Delete the objects that the tasks of a failed write left. Returns their number.

    Deletes nothing if the write made its last claim, since a snapshot may name the objects. They only cost storage.
    """
    later = find_newer(client, plan.claim)
    if later is not None and later.generation == plan.published:
        return 0
    name = plan.claim.generation
    left = [(name, info.index) for info in client.sealed_segments(name)]
    client.delete_sealed_segments(left)
    return len(left)


def _clean(client: ReplicaClient, plan: WritePlan, named: set[tuple[str, int]]) -> None:
    """Delete leftovers of failed attempts and of renumbering. Objects that cannot be deleted only cost storage."""
    name = plan.claim.generation
    with suppress(StoreError):
        left = [info.index for info in client.sealed_segments(name) if (str(name), info.index) not in named]
        client.delete_sealed_segments((name, index) for index in left)


def _number(
    client: ReplicaClient,
    plan: WritePlan,
    claim: Claim,
    entries: Sequence[SnapshotEntry],
    index: int,
    clock: Clock,
) -> tuple[list[SnapshotEntry], int]:
    """The entries, with indexes from ``index`` on and dense sequences, and how many had to be rewritten for that."""

    def settle(place: tuple[int, int, SnapshotEntry]) -> SnapshotEntry:
        number, first, entry = place
        if entry.first == first:
            return replace(entry, index=number)
        data = renumbered(entry.file, _read_whole(client, entry), first)
        return put_sealed(client, claim, number, segment_name(first), data, clock)

    places, following = [], plan.next
    for number, entry in enumerate(entries, index):
        places.append((number, following, entry))
        following += entry.records
    with ThreadPoolExecutor(PARALLELISM, "number") as pool:
        settled = list(pool.map(settle, places))
    return settled, sum(entry.generation == claim.generation for entry in settled)


def _read_whole(client: ReplicaClient, entry: SnapshotEntry) -> bytes:
    """Read a whole log segment, and check it."""
    sealed = open_sealed(client, entry)
    footer, frames = sealed.footer, range(len(sealed.footer.frames))

    def decode(body: memoryview) -> bytes:
        parts = ((run, footer.frames.stored_part(body, frames, run)) for run in footer.frames.runs())
        return b"".join(decode_run(entry.key, footer, run, part, LitelogFormat()).data for run, part in parts)

    return sealed.read_verified(frames, decode)


# --- the log before the write


def _older_entries(client: ReplicaClient, older: Claim, claim: Claim, clock: Clock) -> list[SnapshotEntry]:
    """An entry for each log segment of the generation to continue. Seals those that are in WAL segments, into the
    generation of ``claim``. ``older``: the claim of the generation to continue."""
    pieces = list_pieces(client, older)
    if pieces.gap is not None:
        raise pieces.gap
    entries = list(pieces.base.entries)
    for index, _ in groupby(info.position.index for info in pieces.wal):
        entry = _seal_shipped(client, older, claim, index, entries[-1].next if entries else None, clock)
        if entry is not None:
            entries.append(entry)
    if entries and entries[0].index + len(entries) - 1 != entries[-1].index:
        raise CorruptionError(f"{client.url}: generation {older.generation} lacks a log segment")
    return entries


def _seal_shipped(
    client: ReplicaClient, older: Claim, claim: Claim, index: int, follows: int | None, clock: Clock
) -> SnapshotEntry | None:
    """The entry of a log segment that ``older``'s owner shipped as WAL segments; None if there is only the terminal."""
    name = older.generation
    headers = [read_segment(client, position).header for position in list_index(client, name, index)]
    shipped = [header for header in headers if header.successor is None]
    if not shipped:
        return None
    last = shipped[-1]
    if last.sealed is not None:
        footer, size = read_sealed_footer(client, name, index)
        if footer.digest != last.sealed:
            raise CorruptObjectError(footer.key, "digest", last.sealed, footer.digest)
        return make_entry(footer, size)
    grown = [header for header in shipped if header.length]
    segment = FinishedSegment(
        claim=claim,
        index=index,
        file=last.file,
        length=last.end,
        crc=last.crc_total,
        shipped=clock.now(),
        marks=ShipTimes(tuple(header.end for header in grown), tuple(header.shipped for header in grown)),
        expect=Expectation(follows),
    )
    sealing = Sealing(segment, WalBytes(client, name, index).read, LitelogFormat())
    with suppress(ExistsError):
        client.write_sealed_segment(claim.generation, index, sealing)
    return make_entry(sealing.footer, sealing.size)
