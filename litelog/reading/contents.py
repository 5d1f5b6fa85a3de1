"""The contents of a generation: its base snapshot, the sealed segments that it names, and the WAL segments after them.

A reader never lists or reads anything before the base.

Specified in litelog/reading/README.md#what-a-generation-holds.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    NotFoundError,
    ReplicaGapError,
)
from litelog.events import fields
from litelog.formats.capabilities import was_truncated
from litelog.objects import snapshot as snapshots
from litelog.objects.chain import ChainState, Identity, never_began
from litelog.objects.layout import snapshot_key
from litelog.objects.position import Position
from litelog.reading.fetch import read_verified
from litelog.reading.search import read_header
from litelog.reading.wal_names import WalNames
from litelog.stores.replica_client import IndexedInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot import Snapshot
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo

_logger = logging.getLogger(__name__)

PAGE = 1000
"""Names: as many as S3 lists per request. After a page, a new listing that starts nearer to the end is cheaper."""

MOST_TRIED = 16
"""How many of the newest snapshots an owner tries until it finds an undamaged one."""

LISTINGS = 2
"""How often a generation is listed before a missing object is reported: a store's listing may lag for a moment."""


@dataclass(frozen=True, slots=True)
class BaseSnapshot:
    """The start of reading a generation: its claim's first index, or a snapshot."""

    claim: Claim
    snapshot: Snapshot | None
    """None without a snapshot."""
    digest: str
    """SHA-256, hex, of the snapshot's object; empty without one."""
    damage: CorruptObjectError | None = None
    """The damage of the newest snapshot, if an older one replaces it."""

    @property
    def start(self) -> Position:
        """The start of its WAL segments."""
        index = self.claim.first if self.snapshot is None else self.snapshot.next
        return Position(self.claim.generation, index, 0)

    @property
    def entries(self) -> Sequence[SnapshotEntry]:
        """The log segments before ``start``, all sealed. Any others were dropped or pruned."""
        return () if self.snapshot is None else self.snapshot.segments

    @property
    def first(self) -> Position:
        """The start of the first log segment that exists."""
        index = self.start.index if self.snapshot is None else self.snapshot.first
        return Position(self.claim.generation, index, 0)

    def was_truncated(self, log_format: LogFormat) -> bool:
        """Whether records before the first one may have been removed: from this generation, or, as the snapshot's side
        files say, from the log by its writer."""
        if self.snapshot is None or self.snapshot.first > 0:
            return True
        files = (*(entry.file for entry in self.entries), *(file.name for file in self.snapshot.side_files))
        return was_truncated(log_format, files)

    def link(self) -> ChainState:
        """The state of the chain at ``start``. Raises ReplicaGapError without a snapshot."""
        if self.snapshot is None:
            raise ReplicaGapError(snapshot_key(self.claim.generation, self.claim.first))
        reached = (entry.next for entry in reversed(self.entries) if entry.next is not None)
        return ChainState(
            Identity.of(self.claim),
            self.claim.first,
            self.start,
            self.snapshot.chain or self.digest,
            next=next(reached, None),
            file_before=self.entries[-1].file if self.entries else "",
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a generation, as its names show them."""

    snapshots: tuple[int, ...]
    """The indexes of its snapshots, ascending."""
    wal: WalNames
    """The last WAL segments, in order. If ``whole``: all that the newest snapshot does not cover, the last WAL segment
    that it covers, and maybe some before that."""
    whole: bool = True

    @property
    def newest(self) -> int | None:
        """The index of the newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None


def list_generation(client: ReplicaClient, name: Generation, keep: int | None = None, since: int = 0) -> Listing:
    """List a generation's snapshots from index ``since`` on, and the last ``keep`` names of its WAL (None: all).

    Makes one listing, and a second one if the newest snapshot covers more than a page of WAL segments.
    """
    found: list[int] = []
    wal = WalNames(name)
    whole = True
    for info in _walk(client, name, found, since):
        wal.append(info)
        if keep is not None and len(wal) >= 2 * keep + PAGE:
            wal, whole = wal[-keep:], False
    if keep is not None and len(wal) > keep:
        wal, whole = wal[-keep:], False
    return Listing(tuple(found), wal, whole)


def _walk(client: ReplicaClient, name: Generation, found: list[int], since: int) -> Iterator[WalSegmentInfo]:
    """Yield the WAL segments, except some that the newest snapshot covers. Appends snapshots' indexes to ``found``."""
    for number, info in enumerate(client.snapshots_and_wal_segments(name, since)):
        if isinstance(info, IndexedInfo):
            found.append(info.index)
        elif number >= PAGE and found and info.position.index < found[-1] - 1:
            yield from client.wal_segments(name, Position(name, found[-1] - 1, 0))
            return
        else:
            yield info


def list_index(client: ReplicaClient, name: Generation, index: int) -> list[Position]:
    """List the positions of the WAL segments of one index. One listing."""
    listed = (info.position for info in client.wal_segments(name, Position(name, index, 0)))
    return list(takewhile(lambda position: position.index == index, listed))


def find_snapshot(client: ReplicaClient, claim: Claim) -> Snapshot | None:
    """Find the newest readable snapshot of a generation, for its owner. A listing and a GET.

    Also skips missing snapshots. Returns None if none of the newest MOST_TRIED can be read. Otherwise as ``read_base``.
    """
    newest = client.newest_snapshots(claim.generation, MOST_TRIED)
    try:
        return read_base(client, claim, [info.index for info in reversed(newest)], skip_missing=True).snapshot
    except CorruptObjectError:
        return None


def read_base(
    client: ReplicaClient, claim: Claim, indexes: Sequence[int], *, skip_missing: bool = False
) -> BaseSnapshot:
    """Read the base of a generation whose snapshots stand at ``indexes``, ascending. One GET if the newest is intact.

    Logs a snapshot that is damaged or does not match the claim, and takes the next older one instead.

    Raises:
        CorruptObjectError: no snapshot is intact.
        UnknownVersionError: a snapshot has a newer version than this reader knows.
        ReplicaGapError: a listed snapshot is missing, unless ``skip_missing``.
    """
    damage: CorruptObjectError | None = None
    for index in reversed(indexes):
        try:
            snapshot, digest = read_snapshot(client, claim, index)
        except CorruptObjectError as error:
            extra = fields("snapshot-damaged", replica=client.url, generation=claim.generation, index=index)
            _logger.warning("%s: %s; taking the snapshot before it", client.url, error, extra=extra)
            damage = damage or error
        except NotFoundError as error:
            if not skip_missing:
                raise ReplicaGapError(error.key) from error
        else:
            return BaseSnapshot(claim, snapshot, digest, damage)
    if damage is not None:
        raise damage
    return BaseSnapshot(claim, None, "")


def read_snapshot(client: ReplicaClient, claim: Claim, index: int) -> tuple[Snapshot, str]:
    """Read the snapshot at ``index``, and check it against the claim. Returns it and its digest.

    Raises CorruptObjectError and NotFoundError.
    """
    name = claim.generation
    return read_verified(lambda: client.read_snapshot(name, index), partial(_check_snapshot, claim, index))


def _check_snapshot(claim: Claim, index: int, body: bytes) -> tuple[Snapshot, str]:
    key = snapshot_key(claim.generation, index)
    snapshot = snapshots.decode(key, body)
    for name in ("log", "format", "generation", "owner"):
        expected, actual = getattr(claim, name), getattr(snapshot, name)
        if expected != actual:
            raise CorruptObjectError(key, name, expected, actual)
    if index < claim.first:
        raise CorruptObjectError(key, "index", f"{claim.first} or above, as its claim says,", index)
    return snapshot, snapshots.digest(body)


@dataclass(frozen=True, slots=True)
class GenerationContents:
    """The contents of a generation, from its base on."""

    base: BaseSnapshot
    """``base.entries`` are the log segments that are read from sealed segments."""
    wal: Sequence[WalSegmentInfo]
    """The WAL segments from ``base.start`` on, in order."""
    before: WalSegmentInfo | None
    """The last WAL segment before ``base.start``, if it still exists. It ends the index before."""
    gap: LitelogError | None
    """The first hole that all listings show: a ReplicaGapError or, if the newest snapshot is damaged and so may have
    covered the missing objects, its CorruptObjectError."""
    began: bool = True
    """False if it was ended before it began (``never_began``). Then it holds nothing, no matter which objects exist."""
    last: WalHeader | None = None
    """The header of the last WAL segment, if it was read."""


def list_pieces(client: ReplicaClient, claim: Claim, listing: Listing | None = None) -> GenerationContents:
    """Find the contents of a generation: a listing and a GET, repeated if an object is missing.

    One more ranged GET if there is a single WAL segment and no snapshot after the first one: a terminal may show that
    the generation never began.

    Args:
        client: the replica.
        claim: the generation's claim.
        listing: a listing that was just made; None: make one.

    Raises:
        CorruptObjectError, UnknownVersionError, ReplicaGapError: as ``read_base``.
    """
    name = claim.generation
    for attempt in range(LISTINGS):
        if attempt or listing is None or not listing.whole:
            listing = list_generation(client, name)
        only = _read_only(client, claim, listing.wal) if listing.snapshots in ((), (claim.first,)) else None
        if only is not None and never_began(claim.first, only):
            return GenerationContents(BaseSnapshot(claim, None, ""), listing.wal, None, None, began=False, last=only)
        try:
            base = read_base(client, claim, listing.snapshots)
        except ReplicaGapError:
            if attempt == LISTINGS - 1:
                raise
            continue
        found = listing.wal
        if base.damage is not None:  # the listing may begin at the newest snapshot
            found = WalNames(name, client.wal_segments(name, base.start))
        number = next((number for number, info in enumerate(found) if info.position >= base.start), len(found))
        wal, before = found[number:], found[number - 1] if number else None
        gap = missing_snapshot(base, wal) or missing_piece(base.start, wal)
        if gap is None:
            return GenerationContents(base, wal, before, None, last=only)
    return GenerationContents(base, wal, before, base.damage or gap)


def _read_only(client: ReplicaClient, claim: Claim, wal: Sequence[WalSegmentInfo]) -> WalHeader | None:
    """Read the header of the only WAL segment, as it may be a terminal which shows that the generation never began.
    None if there are others, or if it is damaged or missing: the code that reads it reports that."""
    if len(wal) != 1 or wal[0].position != Position(claim.generation, claim.first, 0):
        return None
    try:
        return read_header(client, wal[0].position)
    except CorruptionError:
        return None


def missing_snapshot(base: BaseSnapshot, wal: Sequence[WalSegmentInfo]) -> ReplicaGapError | None:
    """The gap of a generation that has WAL segments and no snapshot. Only a terminal may exist without a snapshot."""
    if base.snapshot is not None or not wal or wal[-1].position == base.start:
        return None
    key = snapshot_key(base.claim.generation, base.claim.first)
    return ReplicaGapError(key, str(wal[0].position))


def missing_piece(start: Position, wal: Sequence[WalSegmentInfo]) -> ReplicaGapError | None:
    """The first hole in the names: indexes must be without holes from ``start`` on, and each must begin at offset 0."""
    names = wal if isinstance(wal, WalNames) else WalNames(start.generation, wal)
    following, current = start.index, -1
    for number, index in enumerate(names.indexes):
        if index == current:
            continue
        if index != following or names.offsets[number] != 0:
            at = names[number].position
            return ReplicaGapError(str(Position(at.generation, following, 0)), str(at))
        current, following = index, index + 1
    return None
