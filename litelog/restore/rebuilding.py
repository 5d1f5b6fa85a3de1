"""Planning where no snapshot of a generation can be read: what it described, told by the sealed segments themselves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError
from litelog.objects.layout import sealed_key
from litelog.objects.position import Position, generation
from litelog.objects.sealed_segment import read_footer
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import make_entry
from litelog.reading.contents import Base
from litelog.reading.fetch import read_checked
from litelog.reading.pieces import Pieces, missing_piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.replica_client import IndexedInfo, ReplicaClient, WalSegmentInfo


def rebuild(client: ReplicaClient, claim: Claim, damage: CorruptObjectError) -> Pieces:
    """The pieces of a generation without a snapshot: sealed segments from index 0 on without a hole, and the WAL
    segments behind them. ``damage``: of its newest snapshot.

    Index 0 is the log's beginning, so nothing can lack before it; the last WAL segment is never deleted, so nothing
    lacks behind. Each footer is checked against its key and the claim; a restore checks the rest, but for the digests
    that a snapshot states a second time, and the one that the first WAL segment names. CorruptObjectError, with what is
    there and what to do, where some of it is not.
    """
    name = generation(claim.generation)
    sealed = [info.index for info in client.sealed_segments(name)]
    wal = tuple(client.wal_segments(name, Position(name, 0, 0)))
    count = next((at for at, index in enumerate(sealed) if at != index), len(sealed))
    start = None if _lacks_end(claim, sealed, wal) else _start(name, claim, count, wal)
    if start is None:
        raise _unplannable(damage, claim, sealed, wal)
    entries = _read_entries(client, claim, start)
    facts = (claim.log, claim.format, claim.generation, claim.owner)
    base = Base(claim, Snapshot(*facts, first=0, next=start, created=0, segments=entries), "", damage)
    return Pieces(base, tuple(info for info in wal if info.position >= base.start), None, None)


def _lacks_end(claim: Claim, sealed: Sequence[int], wal: Sequence[WalSegmentInfo]) -> bool:
    """Whether sealed segments show that WAL segments were shipped, of which none is there."""
    return not wal and bool(sealed) and sealed[-1] >= claim.first


def _start(name: Generation, claim: Claim, sealed: int, wal: Sequence[WalSegmentInfo]) -> int | None:
    """The index at which WAL segments go on where sealed ones end, the lowest one; None where they do not.

    The lowest: a sealed segment that nothing names, left by a crash, does not count beside its WAL segments. Those that
    count without them were in a snapshot, or WAL segments would still be there.
    """
    for start in range(sealed + 1):
        behind = [info for info in wal if info.position.index >= start]
        if behind and missing_piece(Position(name, start, 0), behind) is None:
            return start
    reached = wal[-1].position.index + 1 if wal else claim.first
    return reached if 0 < reached <= sealed else None


def _read_entries(client: ReplicaClient, claim: Claim, upto: int) -> tuple[SnapshotEntry, ...]:
    name = generation(claim.generation)
    entries: list[SnapshotEntry] = []
    for info in client.sealed_segments(name):
        if info.index >= upto:
            break
        key = sealed_key(name, info.index)
        footer = _read_footer(client, name, info)
        for what in ("log", "format", "owner"):
            if getattr(footer, what) != getattr(claim, what):
                raise CorruptObjectError(key, what, getattr(claim, what), getattr(footer, what))
        before = entries[-1].next if entries else None
        if before is not None and footer.first is not None and footer.first < before:
            raise CorruptObjectError(key, "first sequence", f"{before} or above", footer.first)
        entries.append(make_entry(footer, info.size))
    return tuple(entries)


def _read_footer(client: ReplicaClient, name: Generation, info: IndexedInfo) -> SealedFooter:
    read = partial(client.read_sealed_segment, name, info.index)
    return read_checked(lambda: None, lambda _: read_footer(sealed_key(name, info.index), read, info.size))


def _unplannable(
    damage: CorruptObjectError, claim: Claim, sealed: Sequence[int], wal: Sequence[WalSegmentInfo]
) -> CorruptObjectError:
    reason = str(damage).removeprefix(f"{damage.key}: ")
    there = f"sealed segments of {_spell(sealed)}" if sealed else "no sealed segments"
    there += f" and WAL segments from {wal[0].position} on" if wal else " and no WAL segments"
    return CorruptObjectError(
        damage.key,
        f"{reason}; and no other snapshot of generation {claim.generation} can be read. It holds {there}, which is not "
        "all from index 0 on: what lay before or between is not known. Restore from another replica (give its URL, "
        "too), or an earlier generation (--generation)",
    )


def _spell(indexes: Sequence[int]) -> str:
    holes = "" if len(indexes) == indexes[-1] - indexes[0] + 1 else f" ({len(indexes)} of them)"
    return f"index {indexes[0]:x}" if len(indexes) == 1 else f"indexes {indexes[0]:x} to {indexes[-1]:x}{holes}"
