"""Finishes a write in the driver: creates one generation that names the existing log and all objects of the tasks.

Its snapshot is written last. Until then nothing changes for readers, so a failure has no effect on them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ExistsError, StoreError
from litelog.formats.litelog import LitelogFormat, segment_name
from litelog.objects import snapshot as snapshots
from litelog.objects.claim import Relation, add_transaction
from litelog.objects.position import Position
from litelog.objects.sealed_decoding import decode_run
from litelog.objects.snapshot import Snapshot
from litelog.reading.generations import GenerationEnd, find_newer, find_tip
from litelog.reading.sealed_reader import open_sealed
from litelog.shipping.claiming import close_below
from litelog.spark.sink.plan import NothingToOverwriteError, OvertakenError, claim_first
from litelog.spark.sink.segments import put_sealed, renumbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
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
    client: ReplicaClient,
    plan: WritePlan,
    written: Sequence[Sequence[SnapshotEntry]],
    clock: Clock,
    transaction: tuple[str, int] | None = None,
) -> Published | None:
    """Make the objects of the tasks readable. ``written``: their entries by partition, in order.

    ``transaction``: id of the application and version of the write, which the claim states. Returns None if they wrote
    nothing.

    Raises:
        NothingToOverwriteError: no records would replace a log.
        OvertakenError: another owner has claimed the replica meanwhile.
        StoreError: a request to the store failed.
        CorruptionError: an object of the existing log is damaged.
    """
    entries = [entry for partition in written for entry in partition]
    if not entries:
        if plan.draft.relation is Relation.DIVERGED:
            raise NothingToOverwriteError(client.url)
        return None
    end = None if plan.continued is None else plan.continued.tip.slot
    first_index = 0 if end is None else end.index + (end.offset > 0)
    older = [] if plan.continued is None else plan.continued.read_entries(client)
    # If the tasks' generation never begins, this one follows its predecessor: a reader looks at only one of the two.
    claim = replace(plan.draft, first=first_index + len(entries), time=max(clock.now(), plan.draft.time))
    if transaction is not None:
        claim = replace(claim, transactions=add_transaction(claim.transactions, *transaction))
    claim_first(client, claim, refuses=plan.is_claimed)
    _end_staging(client, plan, claim, clock)
    numbered, moved = _number(client, plan, claim, entries, first_index, clock)
    begin_with(client, claim, [*older, *numbered], clock)
    _clean(client, plan, {(entry.generation, entry.sealed_index) for entry in numbered})
    return Published(claim.generation, plan.next, numbered[-1].next or 0, len(numbered), moved)


def _end_staging(client: ReplicaClient, plan: WritePlan, claim: Claim, clock: Clock) -> None:
    """End the generation into which the tasks wrote. Its slot is known: no WAL segment is put into it, and any other
    terminal would be of the owner of a newer claim."""
    staging = plan.staging.claim
    tip = GenerationEnd(Position(staging.generation, staging.first, 0), None, "")
    if plan.predecessor is not None and not plan.is_claimed:
        tip = plan.predecessor.tip
    ended = close_below(client, claim, [staging], clock, lambda _: tip)[staging.generation]
    if ended.terminal is None or ended.terminal.successor != claim.key:
        raise OvertakenError(client.url)


def begin_with(client: ReplicaClient, claim: Claim, entries: Sequence[SnapshotEntry], clock: Clock) -> None:
    """Put the first snapshot of ``claim``'s generation, which names the whole log: from then on readers see it. Raises
    OvertakenError."""
    made = Snapshot(
        log=claim.log,
        format=claim.format,
        generation=claim.generation,
        owner=claim.owner,
        first=entries[0].index,
        next=claim.first,
        created=max(clock.now(), *(entry.shipped_last for entry in entries)),
        predecessor_end=claim.predecessor_end,
        segments=tuple(entries),
    )
    require_begun(client, claim, before=True)
    with suppress(ExistsError):  # our own put, whose answer was lost: no other owner writes to this generation
        client.write_snapshot(claim.generation, claim.first, [snapshots.encode(made)])
    require_begun(client, claim)


def require_begun(client: ReplicaClient, claim: Claim, *, before: bool = False) -> None:
    """Raise OvertakenError if the owner of a newer claim may have missed the snapshot.

    ``before``: it is not put yet, so any newer claim counts. Otherwise the terminal may show that the owner saw it.
    """
    if find_newer(client, claim) is None:
        return
    tip = None if before else find_tip(client, claim)
    if tip is None or tip.terminal is None or not tip.started:
        raise OvertakenError(client.url, is_put=tip is not None and tip.terminal is None)


def discard(client: ReplicaClient, plan: WritePlan) -> int:
    """Delete the objects that a failed write left. Returns their number.

    Deletes nothing if the write made its last claim, since a snapshot may name the objects. They only cost storage.
    """
    later = find_newer(client, plan.staging.claim)
    if later is not None and later.generation == plan.draft.generation:
        return 0
    left = _find_staged(client, plan, since=0 if plan.is_claimed else None)
    client.delete_sealed_segments(left)
    return len(left)


def _clean(client: ReplicaClient, plan: WritePlan, named: set[tuple[str, int]]) -> None:
    """Delete leftovers of failed attempts and of renumbering. Objects that cannot be deleted only cost storage."""
    with suppress(StoreError):
        client.delete_sealed_segments(place for place in _find_staged(client, plan) if place not in named)


def _find_staged(client: ReplicaClient, plan: WritePlan, since: int | None = None) -> list[tuple[Generation, int]]:
    """The sealed segments of the write's tasks, and those before from index ``since`` on."""
    indexes = plan.staging.indexes
    wanted = indexes if since is None else range(since, indexes.stop)
    return find_sealed(client, plan.staging.claim.generation, wanted)


def find_sealed(client: ReplicaClient, generation: Generation, indexes: range) -> list[tuple[Generation, int]]:
    """The sealed segments of a generation that have these indexes. One listing."""
    listed = client.sealed_segments(generation, indexes.start)
    return [(generation, info.index) for info in takewhile(lambda info: info.index < indexes.stop, listed)]


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
        name, compression = segment_name(first), plan.staging.compression
        return put_sealed(client, claim, number, name, data, clock, compression=compression)

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
