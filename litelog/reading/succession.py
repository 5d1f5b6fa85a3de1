"""From one generation to the one that continues it: through claims, each of which says how indexes map."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from litelog.claim import Relation
from litelog.errors import CorruptObjectError, DivergedError, NotFoundError, ReplicaGapError
from litelog.layout import parse_claim, wal_key
from litelog.position import epoch_of, generation
from litelog.reading.lineage import find_newer, read_claim, read_claim_of
from litelog.reading.wal_search import read_header

if TYPE_CHECKING:
    from litelog.claim import Claim
    from litelog.reading.pieces import Pieces
    from litelog.replica_client import ReplicaClient
    from litelog.wal_segment import WalHeader


def find_terminal(client: ReplicaClient, pieces: Pieces) -> WalHeader | None:
    """The terminal that ended the generation, if its names go up to one. A GET."""
    last = read_header(client, pieces.wal[-1].position) if pieces.wal else None
    return last if last is not None and last.successor else None


def read_successor(client: ReplicaClient, terminal: WalHeader) -> Claim:
    """The claim that a terminal names. ReplicaGapError if it is missing."""
    key = terminal.successor or ""
    name = parse_claim(key)
    if name is None:
        raise CorruptObjectError(wal_key(terminal.position), f"names {key!r} as its successor's claim")
    try:
        return read_claim(client, name)
    except NotFoundError as error:
        raise ReplicaGapError(key, f"{terminal.position}, which names it") from error


def find_shift(client: ReplicaClient, claim: Claim, successor: Claim) -> int:
    """What to add to an index of ``claim``'s generation to get that of ``successor``'s, which continues it, in one step
    or several. DivergedError where it does not."""
    shift, newer = 0, successor
    while True:
        if newer.relation is Relation.DIVERGED:
            raise DivergedError(client.url, f"{newer.key}: {newer.reason or 'the history forks'}")
        older = newer.predecessor
        if older is None or (older != claim.generation and epoch_of(generation(older)) <= claim.epoch):
            _say_forked(client, claim, newer)
        shift += newer.shift
        if older == claim.generation:
            return shift
        try:
            newer = read_claim_of(client, generation(older), newer)
        except NotFoundError as error:
            raise ReplicaGapError(error.key, f"{newer.key}, which names it") from error


def find_begun(client: ReplicaClient, claim: Claim) -> Claim | None:
    """A newer claim whose owner has begun to write: then it ended ``claim``'s generation first. One GET while there is
    none."""
    newer = find_newer(client, claim)
    if newer is None or next(iter(client.snapshots(generation(newer.generation))), None) is None:
        return None
    return newer


def _say_forked(client: ReplicaClient, claim: Claim, newer: Claim) -> NoReturn:
    what = f"does not continue generation {claim.generation}"
    if newer.is_isolated or claim.is_isolated:
        raise DivergedError(client.url, f"{newer.key}: {what}: two isolated owners wrote at the same time")
    raise CorruptObjectError(newer.key, what)
