"""Leads from a generation to its successor. Each claim on the way says how indexes map.

Specified in litelog/reading/README.md#from-one-generation-to-the-next.
"""

from __future__ import annotations

import shlex
from functools import cache, partial
from typing import TYPE_CHECKING, NoReturn

from litelog.errors import CorruptObjectError, DivergedError, NotFoundError, PrunedError, ReplicaGapError
from litelog.objects.chain import never_began
from litelog.objects.claim import Relation
from litelog.objects.layout import parse_claim, wal_key
from litelog.objects.position import Position
from litelog.reading.contents import list_generation
from litelog.reading.generations import find_newer, read_claim, read_claim_of
from litelog.reading.index_mapping import SegmentNames, check_mapping
from litelog.reading.latest import find_extent, find_latest
from litelog.reading.search import read_header

if TYPE_CHECKING:
    from litelog.objects.claim import Claim
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import GenerationContents
    from litelog.reading.latest import GenerationRange
    from litelog.stores.replica_client import ReplicaClient


def find_terminal(client: ReplicaClient, pieces: GenerationContents) -> WalHeader | None:
    """The terminal that ended the generation; None if the last listed WAL segment is not a terminal. A GET."""
    last = read_header(client, pieces.wal[-1].position) if pieces.wal else None
    return last if last is not None and last.successor else None


def read_successor(client: ReplicaClient, terminal: WalHeader) -> Claim:
    """Read the claim that a terminal names. Raises ReplicaGapError if it is missing."""
    key = terminal.successor or ""
    name = parse_claim(key)
    if name is None:
        raise CorruptObjectError(wal_key(terminal.position), f"names {key!r} as its successor's claim")
    try:
        return read_claim(client, name)
    except NotFoundError as error:
        raise ReplicaGapError(key, f"{terminal.position}, which names it") from error


def find_successor(
    client: ReplicaClient, claim: Claim, terminal: WalHeader, *, lists: bool = True, leaves_isolated: bool = True
) -> Claim | None:
    """Find the claim of the generation that follows ``claim``'s, which ``terminal`` ended. None if none has begun yet.

    The terminal names a claim. If the generation of that claim never began, its terminal names the next claim, and so
    on. An isolated owner's generation that never began may have no terminal: then the latest generation follows, unless
    ``leaves_isolated`` is false.

    Makes three GETs for each claim. ``lists`` replaces one of them with a listing, which also shows a generation whose
    first objects retention has deleted, and looks for the latest generation. Raises ReplicaGapError if a named claim is
    missing.
    """
    newest = claim.epoch
    while True:
        successor = read_successor(client, terminal)
        if successor.epoch <= newest:
            raise CorruptObjectError(
                wal_key(terminal.position), "successor's epoch", f"above {newest}", successor.epoch
            )
        newest = successor.epoch
        start = Position(successor.generation, successor.first, 0)
        if lists:
            listing = list_generation(client, start.generation, keep=1)
            if (listing.newest or 0) > successor.first or any(info.position > start for info in listing.wal):
                return successor
        has_snapshot = listing.newest is not None if lists else has_first_snapshot(client, successor)
        try:
            terminal = read_header(client, start)
        except ReplicaGapError:
            if has_snapshot and not may_be_late(client, successor):
                return successor
            return find_overtaking(client, claim) if lists and leaves_isolated and successor.is_isolated else None
        if not never_began(successor.first, terminal):
            return successor


def find_overtaking(client: ReplicaClient, claim: Claim) -> Claim | None:
    """Find the claim of the latest generation; None if that is ``claim``'s. Isolated owners do not end the generations
    of each other, so no terminal leads there. Costs one listing while no other claim exists."""
    if client.claims(claim.epoch) == [claim.name]:
        return None
    newest = find_latest(client)
    return None if newest.generation == claim.generation else newest


def may_be_late(client: ReplicaClient, claim: Claim) -> bool:
    """Whether the first snapshot of a generation may have come too late. The first slot of the generation is free. The
    owner of a newer claim may have looked before the snapshot existed, and its terminal will show that. A GET."""
    return not claim.is_isolated and find_newer(client, claim) is not None


def has_first_snapshot(client: ReplicaClient, claim: Claim) -> bool:
    """Whether a generation has its first snapshot, which its owner writes before any WAL segment. A GET."""
    try:
        client.read_snapshot(claim.generation, claim.first)
    except NotFoundError:
        return False
    return True


def find_shift(client: ReplicaClient, claim: Claim, successor: Claim, read_to: Position | None = None) -> int:
    """Find the number that, added to an index of ``claim``'s generation, gives the index in ``successor``'s.

    The successor continues that generation, in one step or several. Or both continue an older generation, and nothing
    was read of ``claim``'s generation after the end of the older one, or it held nothing.

    Args:
        client: the replica.
        claim: the claim of the generation that was read.
        successor: the claim of the generation to continue in.
        read_to: the position up to which ``claim``'s generation was read; None for its end.

    Raises:
        DivergedError: the log's history forks.
        PrunedError: ``read_to`` lies in log segments that were merged since.
        CorruptObjectError: the two claims have no generation in common, or the contents contradict a shift.
        ReplicaGapError: a claim is missing.
    """
    shift, newer, older = 0, successor, claim
    merges: list[tuple[Claim, int]] = []
    while newer.generation != older.generation:
        if newer.epoch > older.epoch:
            if newer.relation is Relation.DIVERGED:
                raise _forked(client, newer, newer.reason or "it does not continue the generation before")
            shift += newer.shift
            if newer.merges:
                merges.append((newer, shift))
            before = _read_predecessor(client, newer)
            if before is None and _is_empty_first(client, claim):
                return shift
            newer = before or _raise_forked(client, claim, successor)
        else:
            if older.relation is not Relation.CONTINUES or older.is_isolated or successor.is_isolated:
                _raise_forked(client, claim, successor)
            shift -= older.shift
            older = _read_predecessor(client, older) or _raise_forked(client, claim, successor)
    if older is not claim:
        _require_shared(client, claim, older, successor, read_to)
    elif successor is not claim and not merges:
        require_shift(client, claim, successor, shift)
    for merged, since in merges:
        _require_kept(client, merged, shift - since, read_to)
    return shift


def _require_kept(client: ReplicaClient, merged: Claim, shift: int, read_to: Position | None) -> None:
    """Raise PrunedError unless ``merged``, whose generation holds merged log segments, maps the place ``read_to``.

    ``shift``: added to an index of ``read_to``'s generation, gives that of ``merged``'s predecessor. The predecessor's
    end is mapped, and so is a log segment that has its own name at the mapped index.
    """
    end, before = merged.predecessor_end, _read_predecessor(client, merged)
    if read_to is None or before is None or end is None:
        return
    index = read_to.index + shift
    if (index, read_to.offset) >= (end.index, end.offset):
        return
    older, newer = (_names_of(client, held, find_extent(client, held)) for held in (before, merged))
    name = older.name(index)
    if name is None or newer.name(index + merged.shift) != name:
        raise PrunedError(str(read_to))


def require_shift(client: ReplicaClient, claim: Claim, successor: Claim, shift: int) -> None:
    """Raise CorruptObjectError if the contents of the two generations contradict ``shift``."""
    older, newer = find_extent(client, claim), find_extent(client, successor)
    if older.is_settled:
        check_mapping(successor, shift, _names_of(client, successor, newer), _names_of(client, claim, older))


def _names_of(client: ReplicaClient, claim: Claim, extent: GenerationRange) -> SegmentNames:
    find = partial(list_generation, client, claim.generation)
    return SegmentNames(client, claim, extent.slot, extent.last, cache(find))


def _read_predecessor(client: ReplicaClient, claim: Claim) -> Claim | None:
    if claim.predecessor is None:
        return None
    try:
        return read_claim_of(client, claim.predecessor, claim)
    except NotFoundError as error:
        raise ReplicaGapError(error.key, f"{claim.key}, which names it") from error


def _is_empty_first(client: ReplicaClient, claim: Claim) -> bool:
    """Whether a generation is the first one, and ended without data: the next one then counts as the first."""
    return claim.relation is Relation.FIRST and not find_extent(client, claim).has_data


def _require_shared(
    client: ReplicaClient, claim: Claim, older: Claim, successor: Claim, read_to: Position | None
) -> None:
    """Raise DivergedError if more was read of ``claim``'s generation than ``older``'s holds. ``claim`` and
    ``successor`` both continue ``older``."""
    extent = find_extent(client, claim)
    if not extent.began or not extent.has_data:
        return
    reached = read_to or extent.slot
    end = find_extent(client, older).slot
    shift = find_shift(client, older, claim)
    if (reached.index - shift, reached.offset) > (end.index, end.offset):
        what = f"continues generation {older.generation} at {end}, and not what {claim.generation} held after that"
        raise _forked(client, successor, what)


def find_begun(client: ReplicaClient, claim: Claim) -> Claim | None:
    """Find a newer claim whose owner has begun to write, after it ended ``claim``'s generation. One GET if there is no
    newer claim; a listing for each claim whose owner has not begun."""
    newer = find_newer(client, claim)
    while newer is not None and next(iter(client.snapshots(newer.generation)), None) is None:
        newer = find_newer(client, newer)
    return newer


def _forked(client: ReplicaClient, newer: Claim, reason: str) -> DivergedError:
    """The error of a history that forks at ``newer``. Its lines say what to do."""
    error = DivergedError(client.url, f"the log's history forks at {newer.key}: {reason}")
    error.lines = (
        str(error),
        "Begin again (a mirror: --on-fork new; a copy: restore to another folder; a consumer: litelog consumers move). "
        f"litelog generations {shlex.quote(client.url)} lists the histories",
    )
    return error


def _raise_forked(client: ReplicaClient, claim: Claim, newer: Claim) -> NoReturn:
    what = f"does not continue generation {claim.generation}"
    if newer.is_isolated or claim.is_isolated:
        raise _forked(client, newer, f"{what}: two isolated owners wrote at the same time")
    raise CorruptObjectError(newer.key, what)
