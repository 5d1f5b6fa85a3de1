"""Plans what a restore reads of one generation, and up to where. Reads listings and headers, and changes nothing.

If no snapshot of the generation can be read, the plan is made from the footers of its sealed segments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.errors import (
    ConfigError,
    CorruptObjectError,
    NotFoundError,
    NothingToRestoreError,
    ReplicaGapError,
)
from litelog.formats import safe_segment_order, shown_lowest
from litelog.formats.capabilities import is_side_file
from litelog.objects.layout import snapshot_key
from litelog.objects.position import Position
from litelog.reading.contents import (
    BaseSnapshot,
    missing_piece,
    read_snapshot,
)
from litelog.restore.object_lookup import ReplicaLookup
from litelog.restore.plan import PlannedFile, RestorePlan, SealedSpan, Target, TooEarlyError
from litelog.restore.repair.repair import Repair
from litelog.restore.target_search import TargetSearch
from litelog.stores.replica_client import WalSegmentInfo
from litelog.units import format_iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import GenerationContents
    from litelog.restore.object_lookup import Lookup
    from litelog.restore.repair.fallbacks import FallbackReplicas
    from litelog.restore.target_search import RestoreEnd
    from litelog.stores.replica_client import ReplicaClient

UNKNOWN_SIZE = 0
"""The size of an object that no listing shows."""


def plan_generation(
    client: ReplicaClient,
    claim: Claim,
    target: Target,
    log_format: LogFormat,
    fallbacks: FallbackReplicas | None = None,
    *,
    dropped: bool = True,
    held: GenerationContents | None = None,
) -> RestorePlan:
    """Plan from one generation.

    Args:
        client: The replica.
        claim: The generation's claim.
        target: What to restore.
        log_format: The format that the claim names.
        fallbacks: Other replicas: the plan works around damage if they have the lost data.
        dropped: Whether to plan from an older snapshot for a target before all that the newest snapshot names.
        held: The generation's contents, if they were just read.

    Raises:
        ReplicaGapError: An object is missing from the listing, and cannot be read directly either.
        NothingToRestoreError: The generation does not hold the target.
        CorruptObjectError: An object that the plan needs is damaged.
    """
    if claim.format != log_format.name:
        raise ConfigError(f"{client.url}: holds a log of format {claim.format}, not {log_format.name}")
    repair = Repair(client, log_format, fallbacks)
    held, lost = repair.contents(claim, held)
    if not held.began:
        message = "never began: it was closed before its owner wrote the first snapshot"
        raise NothingToRestoreError(f"{client.url}: generation {claim.generation}: {message}")
    wal = list(held.wal)
    lookup = repair.repairing_lookup(ReplicaLookup(client, log_format, held.last), claim, wal)
    while True:
        try:
            gap = missing_piece(held.base.start, _needed_for(target, wal))
            if gap is not None:
                raise gap
            plan = plan_restore(client.url, held.base, wal, target, lookup, log_format)
            return replace(plan, lost=lost)
        except TooEarlyError as early:
            if held.base.snapshot is None and held.base.start.index > 0 and lost:
                raise lost[0] from None  # only the lost snapshot named the log segments before
            if not dropped:
                raise
            plan = _plan_dropped(client, held.base, target, lookup, log_format, early)
            return replace(plan, lost=(*lost, *plan.lost))
        except ReplicaGapError as gap:
            _fill_in(wal, gap, lookup, lost)


def _needed_for(target: Target, wal: Sequence[WalSegmentInfo]) -> Sequence[WalSegmentInfo]:
    """The WAL segments that must be whole: all, or those up to the index that ``target`` names."""
    if target.index is None:
        return wal
    return wal[: bisect_right(wal, target.index, key=lambda piece: piece.position.index)]


def plan_restore(
    replica: str,
    base: BaseSnapshot,
    wal: Sequence[WalSegmentInfo],
    target: Target,
    lookup: Lookup,
    log_format: LogFormat,
) -> RestorePlan:
    """Plan for ``target`` from a generation's base, and the WAL segments after it. Pure except for look-ups.

    Raises:
        NothingToRestoreError: The generation does not reach the target, or holds only later data. The error names the
            contents.
        CorruptObjectError: The base names files that are not log segments of the format.
    """
    claim = base.claim
    here = f"{replica}: generation {claim.generation}"
    if not wal and not base.entries:
        raise NothingToRestoreError(f"{here}: holds nothing yet")
    _check_entries(base, log_format)
    search = TargetSearch(here, base, wal, lookup)
    cut = search.cut(target, log_format)
    if cut.end is None or (cut.end.index, cut.end.offset) == (base.first.index, 0):
        raise _too_early(here, base, wal, target, search)
    if 0 < cut.pieces < len(wal):  # the target may lie in a missing part
        _require_next(lookup.headers([wal[cut.pieces - 1].position])[0], wal[cut.pieces].position)
    chosen = tuple(wal[: cut.pieces])
    sealed = _sealed_pieces(base, cut)
    files = [PlannedFile(piece.entry.index, piece.entry.file, piece.stop) for piece in sealed]
    for file, from_sealed in _wal_files(chosen, cut.end, lookup, search):
        files.append(file)
        sealed += [] if from_sealed is None else [from_sealed]
    shipped = lookup.headers([chosen[-1].position])[0].shipped if chosen else sealed[-1].entry.shipped_last
    return RestorePlan(replica, claim, chosen, cut.end, tuple(files), shipped, base, tuple(sealed))


def _plan_dropped(
    client: ReplicaClient,
    base: BaseSnapshot,
    target: Target,
    lookup: Lookup,
    log_format: LogFormat,
    early: TooEarlyError,
) -> RestorePlan:
    """Plan for ``target``, which precedes all that ``base`` names, from an older snapshot: the newest that names the
    target. If none does, raises TooEarlyError, or the damage of a snapshot."""
    indexes = [info.index for info in client.snapshots(base.start.generation) if info.index < base.start.index]
    plan: RestorePlan | None = None
    lost: list[CorruptObjectError] = []
    low, high = 0, len(indexes)  # snapshots below ``low`` reach back to the target, those from ``high`` on do not
    while low < high:
        middle = (low + high) // 2
        try:
            older = BaseSnapshot(base.claim, *read_snapshot(client, base.claim, indexes[middle]))
            found = _plan_within(client.url, older, target, lookup, log_format)
        except TooEarlyError as error:
            early, high = error, middle
        except (CorruptObjectError, NotFoundError) as error:  # damaged, or retention removed it meanwhile
            lost += [error] if isinstance(error, CorruptObjectError) else []
            del indexes[middle]
            high -= 1
        else:
            plan, low = found, middle + 1
    if plan is None or (plan.base.start.index < early.index and _may_end_after(plan, target)):
        raise lost[0] if lost else early
    return replace(plan, lost=tuple(lost))


def _may_end_after(plan: RestorePlan, target: Target) -> bool:
    """Whether ``target`` may lie after the contents that ``plan`` is made from."""
    start, last = plan.base.start, plan.base.entries[-1]
    if target.index is not None:
        return target.index >= start.index
    if target.sequence is not None:
        reached = plan.base.link().next
        return reached is None or target.sequence >= reached
    return plan.end == Position(start.generation, last.index, last.length)


def _plan_within(
    replica: str, older: BaseSnapshot, target: Target, lookup: Lookup, log_format: LogFormat
) -> RestorePlan | None:
    """Plan for ``target`` from the snapshot ``older``; None if that names nothing. The next snapshot names only later
    data."""
    if not older.entries:
        return None
    try:
        return plan_restore(replica, older, (), target, lookup, log_format)
    except TooEarlyError:
        raise
    except NothingToRestoreError:  # the target lies within the first commit that the next snapshot names
        return plan_restore(replica, older, (), Target(index=older.start.index - 1), lookup, log_format)


def _fill_in(
    wal: list[WalSegmentInfo], gap: ReplicaGapError, lookup: Lookup, lost: Sequence[CorruptObjectError]
) -> None:
    """Add to ``wal`` the object that a listing lacked, if it exists or can be reconstructed. Otherwise raise ``gap``,
    or the damage that caused it."""
    try:
        missed = WalSegmentInfo(Position.parse(gap.position), UNKNOWN_SIZE)
    except ValueError:
        raise gap from None
    at = bisect_left(wal, missed.position, key=lambda piece: piece.position)
    if at < len(wal) and wal[at].position == missed.position:
        raise gap
    try:
        lookup.headers([missed.position])
    except ReplicaGapError:
        raise (lost[0] if lost else gap) from None
    wal.insert(at, missed)


def _check_entries(base: BaseSnapshot, log_format: LogFormat) -> None:
    """Check that a snapshot names log segments, in order, and side files: their names become file names on this
    disk."""
    before = None
    key = snapshot_key(base.claim.generation, base.start.index)
    for entry in base.entries:
        order = safe_segment_order(log_format, entry.file)
        if order is None or (before is not None and order <= before):
            raise CorruptObjectError(
                key,
                f"file {entry.file!r} is not the name of a log segment of format {log_format.name}, or out of order",
            )
        before = order
    for file in () if base.snapshot is None else base.snapshot.side_files:
        if not is_side_file(log_format, file.name):
            raise CorruptObjectError(key, f"{file.name!r} is not the name of a side file of format {log_format.name}")


def _sealed_pieces(base: BaseSnapshot, cut: RestoreEnd) -> list[SealedSpan]:
    kept = base.entries[: cut.entries]
    pieces = [SealedSpan(entry, 0, entry.length) for entry in kept]
    if cut.pieces == 0 and pieces and cut.end is not None:
        pieces[-1] = SealedSpan(kept[-1], 0, cut.end.offset)
    return pieces


def _require_next(header: WalHeader, position: Position) -> None:
    if header.next_slot < position:
        raise ReplicaGapError(str(header.next_slot), str(position))


def _too_early(
    here: str, base: BaseSnapshot, wal: Sequence[WalSegmentInfo], target: Target, search: TargetSearch
) -> TooEarlyError:
    """The error for a target that precedes all that exists, or lies inside the first commit."""
    if base.entries:
        entry = base.entries[0]
        first, lowest, shipped = entry.first, entry.lowest, entry.shipped_first
    else:
        header = search.headers([wal[0].position])[0]
        first, lowest, shipped = header.first, header.lowest, header.shipped
    message = "holds no commit yet"
    if first is not None:
        stamp = shown_lowest(lowest)
        stamped = "" if stamp is None else f", stamped {format_iso(stamp)}"
        begins = f"it begins with sequence {first}{stamped}, shipped {format_iso(shipped)}"
        later = "time" if target.timestamp is not None else "sequence"
        message = f"nothing that early; {begins}: ask for a later {later}, or for all that it holds"
    inside = _inside_first_commit(target, first, search)
    return TooEarlyError(f"{here}: {inside or message}", base.first.index, first)


def _inside_first_commit(target: Target, first: int | None, search: TargetSearch) -> str:
    """A message if the target is a sequence inside the first commit, which is restored whole or not at all; else
    empty."""
    sequence = target.sequence
    if first is None or sequence is None or sequence < first or (commit := search.first_commit()) is None:
        return ""
    return (
        f"sequence {sequence} is inside the first commit, which holds the sequences {commit.first} to "
        f"{commit.next - 1}; a restore ends where a commit ends: the earliest possible end is {commit.next - 1}"
    )


def _wal_files(
    wal: Sequence[WalSegmentInfo], end: Position, lookup: Lookup, search: TargetSearch
) -> list[tuple[PlannedFile, SealedSpan | None]]:
    """The log segments that WAL segments form, each with the part to read of a sealed segment if its last WAL segment
    stands for one. Names and sizes come from the first and the last header."""
    groups = [list(group) for _, group in groupby((piece.position for piece in wal), key=lambda at: at.index)]
    edges = lookup.headers([at for group in groups for at in (group[0], group[-1])])
    found = []
    for number, (first, last) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        if number + 1 < len(groups):
            _require_next(last, groups[number + 1][0])
        if first.successor is not None:
            continue
        size = end.offset if last.index == end.index else search.reach(last)
        from_sealed = None
        if last.sealed is not None and size > last.offset:
            from_sealed = SealedSpan(lookup.entry(last), last.offset, size, last.crc_total)
        found.append((PlannedFile(first.index, first.file, size), from_sealed))
    return found
