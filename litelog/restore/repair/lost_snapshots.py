"""Finds the contents of a generation that has lost its snapshots, from its other objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, CorruptObjectError
from litelog.objects.layout import sealed_key, snapshot_key
from litelog.objects.position import Position
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import make_entry
from litelog.reading.contents import BaseSnapshot, GenerationContents, list_pieces, missing_piece, missing_snapshot
from litelog.reading.sealed_reader import read_listed_footer
from litelog.reading.search import read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo


def find_contents(
    client: ReplicaClient, claim: Claim, *, around: bool, held: GenerationContents | None = None
) -> tuple[GenerationContents, tuple[CorruptObjectError, ...]]:
    """Find the generation's contents, and the damage to them, even if no readable snapshot is left.

    ``around``: whether to return contents even if the sealed segments do not show all that a lost snapshot described.
    Raises CorruptObjectError and ReplicaGapError.
    """
    try:
        held = held or list_pieces(client, claim)
    except CorruptObjectError as error:
        try:
            return _rebuild(client, claim, error), (error,)
        except CorruptObjectError:
            if not around:
                raise
        base = BaseSnapshot(claim, None, "")
        return GenerationContents(base, tuple(client.wal_segments(base.start.generation, base.start)), None, None), (
            error,
        )
    if held.began and (lost := _lost_snapshot(client, held)) is not None:
        try:
            return _rebuild(client, claim, lost), (lost,)
        except CorruptObjectError:
            if not around:
                raise
    if not around and held.began and (gap := missing_snapshot(held.base, held.wal)) is not None:
        raise gap
    damage = held.base.damage
    return held, () if damage is None else (damage,)


def _lost_snapshot(client: ReplicaClient, held: GenerationContents) -> CorruptObjectError | None:
    """Return an error if the sealed segments show that the generation had a snapshot, and none is left; else None.

    Owners put sealed segments before their claim's first index before the first snapshot, so these alone show nothing.
    """
    claim = held.base.claim
    if held.base.snapshot is not None:
        return None
    indexes = [info.index for info in client.sealed_segments(claim.generation)]
    if not indexes or (missing_snapshot(held.base, held.wal) is None and len(indexes) < claim.first):
        return None
    return CorruptObjectError(snapshot_key(claim.generation, claim.first), "is missing")


def _rebuild(client: ReplicaClient, claim: Claim, damage: CorruptObjectError) -> GenerationContents:
    """Find the contents of a generation without a snapshot: sealed segments from index 0 on without a hole, and the WAL
    segments after them. ``damage``: of its newest snapshot.

    Index 0 is the log's beginning, so nothing before it can be missing. The last WAL segment is never deleted, so
    nothing after it can be missing. This checks each footer against its key and the claim. A restore checks the rest,
    except for the digests that a snapshot repeats, and the digest that the first WAL segment names. Raises
    CorruptObjectError, with the contents and advice, if an object is missing.
    """
    name = claim.generation
    sealed = [info.index for info in client.sealed_segments(name)]
    wal = tuple(client.wal_segments(name, Position(name, 0, 0)))
    count = next((at for at, index in enumerate(sealed) if at != index), len(sealed))
    start = None if _lacks_end(claim, sealed, wal) else _start(name, claim, count, wal)
    if start is None:
        raise _unplannable(damage, claim, sealed, wal)
    entries = _read_entries(client, claim, start)
    facts = (claim.log, claim.format, claim.generation, claim.owner)
    after = tuple(info for info in wal if info.position >= Position(name, start, 0))
    digest = _digest_before(client, after)
    base = BaseSnapshot(claim, Snapshot(*facts, first=0, next=start, created=0, segments=entries), digest, damage)
    return GenerationContents(base, after, None, None)


def _digest_before(client: ReplicaClient, wal: Sequence[WalSegmentInfo]) -> str:
    """The digest of the object before the first WAL segment, which only that WAL segment still states; empty if its
    header is lost as well."""
    try:
        return read_header(client, wal[0].position).previous if wal else ""
    except CorruptionError:
        return ""


def _lacks_end(claim: Claim, sealed: Sequence[int], wal: Sequence[WalSegmentInfo]) -> bool:
    """Whether sealed segments show that WAL segments were shipped, of which none is left."""
    return not wal and bool(sealed) and sealed[-1] >= claim.first


def _start(name: Generation, claim: Claim, sealed: int, wal: Sequence[WalSegmentInfo]) -> int | None:
    """The lowest index at which WAL segments continue the sealed ones; None if they do not.

    It is the lowest because a crash may have left a sealed segment that no object names: such a one does not count if
    its WAL segments exist. Sealed segments without WAL segments were in a snapshot: otherwise their WAL segments would
    still exist.
    """
    for start in range(sealed + 1):
        after = [info for info in wal if info.position.index >= start]
        if after and missing_piece(Position(name, start, 0), after) is None:
            return start
    reached = wal[-1].position.index + 1 if wal else claim.first
    return reached if 0 < reached <= sealed else None


def _read_entries(client: ReplicaClient, claim: Claim, stop: int) -> tuple[SnapshotEntry, ...]:
    name = claim.generation
    entries: list[SnapshotEntry] = []
    for info in client.sealed_segments(name):
        if info.index >= stop:
            break
        key = sealed_key(name, info.index)
        footer = read_listed_footer(client, info)
        for what in ("log", "format", "owner"):
            if getattr(footer, what) != getattr(claim, what):
                raise CorruptObjectError(key, what, getattr(claim, what), getattr(footer, what))
        before = entries[-1].next if entries else None
        if before is not None and footer.first is not None and footer.first < before:
            raise CorruptObjectError(key, "first sequence", f"{before} or above", footer.first)
        entries.append(make_entry(footer, info.size))
    return tuple(entries)


def _unplannable(
    damage: CorruptObjectError, claim: Claim, sealed: Sequence[int], wal: Sequence[WalSegmentInfo]
) -> CorruptObjectError:
    reason = str(damage).removeprefix(f"{damage.key}: ")
    there = f"sealed segments of {_render(sealed)}" if sealed else "no sealed segments"
    there += f" and WAL segments from {wal[0].position} on" if wal else " and no WAL segments"
    return CorruptObjectError(
        damage.key,
        f"{reason}; and no other snapshot of generation {claim.generation} can be read. It holds {there}, which is not "
        "all from index 0 on: the rest is not known. Restore from another replica (give its URL, too), or an earlier "
        "generation (--generation)",
    )


def _render(indexes: Sequence[int]) -> str:
    holes = "" if len(indexes) == indexes[-1] - indexes[0] + 1 else f" ({len(indexes)} of them)"
    return f"index {indexes[0]:x}" if len(indexes) == 1 else f"indexes {indexes[0]:x} to {indexes[-1]:x}{holes}"
