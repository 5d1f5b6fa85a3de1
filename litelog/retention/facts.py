"""The facts for a retention plan: claims, listings, what each snapshot names, and what the source dropped."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NothingToRestoreError
from litelog.objects import snapshot as snapshots
from litelog.objects.claim import Relation
from litelog.objects.layout import sealed_key, snapshot_key, wal_key
from litelog.objects.position import Position
from litelog.reading.contents import read_snapshot
from litelog.reading.fetch import read_verified
from litelog.reading.latest import find_latest, read_claims
from litelog.reading.search import read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation, Position
    from litelog.objects.snapshot import Snapshot
    from litelog.stores.replica_client import IndexedInfo, ReplicaClient, WalSegmentInfo


@dataclass(frozen=True, slots=True, order=True)
class SealedRange:
    """Sealed segments [start, stop) of a generation, which a snapshot names."""

    generation: Generation
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot."""

    generation: Generation
    next: int
    """The index at which it stands."""
    size: int
    """The size of the object in bytes."""
    first: int = 0
    reached: int = 0
    """When the log had reached ``next``, in microseconds since 1970: not before the last bytes that it names were
    shipped, and not before it was made."""
    names: tuple[SealedRange, ...] | None = ()
    """The sealed segments that it names; None if it cannot be read."""


@dataclass(frozen=True, slots=True)
class GenerationFacts:
    """One generation: its objects in the order of their keys."""

    name: Generation
    snapshots: tuple[SnapshotFacts, ...] = ()
    sealed: tuple[IndexedInfo, ...] = ()
    wal: tuple[WalSegmentInfo, ...] = ()
    ended: int = 0
    """The latest known time at which it shipped, in microseconds since 1970."""
    caught_up: int = 0
    """The index from which on its snapshots hold all that it continues of its predecessor."""
    first: int = 0
    """The first index that it shipped as WAL segments: their chain begins with the snapshot there."""


@dataclass(frozen=True, slots=True)
class SourceTrim:
    """At ``time`` (microseconds since 1970) the source held no log segment below ``first`` of the newest generation."""

    time: int
    first: int


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """A whole replica, generations in their order. With isolated fencing, all that belongs to one owner."""

    generations: tuple[GenerationFacts, ...]
    """Only objects of these may be deleted."""
    latest: Generation
    """The generation that readers choose: no newer generation has reached its end."""
    drops: tuple[SourceTrim, ...] = ()
    """The drops of the newest generation, in the order of time."""
    last_snapshot: int | None = None
    """In the newest generation, only snapshots up to this index count: those durable before ownership was proved."""
    others: tuple[SnapshotFacts, ...] = ()
    """Snapshots of other isolated owners, who may still write: the objects that they name stay. A generation without a
    snapshot counts as if its snapshot could not be read: its owner may be making one, from objects that exist now."""


def describe_snapshot(snapshot: Snapshot, name: Generation, size: int) -> SnapshotFacts:
    """Return the facts of a snapshot whose object has ``size`` bytes."""
    shipped = max((entry.shipped_last for entry in snapshot.segments), default=0)
    runs: list[SealedRange] = []
    for entry in snapshot.segments:
        last = runs[-1] if runs else None
        if last is not None and (last.generation, last.stop) == (entry.generation, entry.sealed_index):
            runs[-1] = SealedRange(last.generation, last.start, last.stop + 1)
        else:
            runs.append(SealedRange(entry.generation, entry.sealed_index, entry.sealed_index + 1))
    return SnapshotFacts(name, snapshot.next, size, snapshot.first, max(shipped, snapshot.created), tuple(runs))


class ObjectKind(StrEnum):
    """The kind of an object."""

    SNAPSHOT = "snapshot"
    SEALED = "sealed segment"
    WAL = "WAL segment"


class KeepReason(StrEnum):
    """Why an object stays."""

    NEWEST = "the newest snapshot, or named by it"
    WINDOW = "a point that is kept needs it"
    LAST = "the last WAL segment of its generation, or the one that ended it"
    UNKNOWN = "a snapshot that cannot be read may name it"
    OTHERS = "another isolated owner's snapshot names it, or may"


class Removal(NamedTuple):
    """An object to delete. ``number`` is its index; ``position`` is that of a WAL segment."""

    kind: ObjectKind
    size: int
    generation: Generation
    number: int
    position: Position | None = None

    @property
    def key(self) -> str:
        """The object's key."""
        if self.position is not None:
            return wal_key(self.position)
        return (snapshot_key if self.kind is ObjectKind.SNAPSHOT else sealed_key)(self.generation, self.number)


class Gathering:
    """Gathers the facts of one replica, repeatedly. Reads each object only once, as objects never change. For one
    thread at a time."""

    def __init__(self, client: ReplicaClient) -> None:
        self._client = client
        self._described: dict[tuple[Generation, int, int], SnapshotFacts] = {}
        self._predecessor_ends: dict[Generation, Position] = {}
        self._ended: dict[Position, int] = {}
        self._ranges: dict[SealedRange, SealedRange] = {}
        """One object for each range, as all later snapshots name it too."""

    def gather(
        self,
        drops: Sequence[SourceTrim] = (),
        last_snapshot: int | None = None,
        mine: Claim | None = None,
        walk: Callable[[int], None] | None = None,
    ) -> ReplicaFacts | None:
        """Return the current facts, with the drops of the source; None if no generation can be restored.

        ``last_snapshot``: as in ``ReplicaFacts``. ``mine`` is the claim of the owner that wants to delete, by default
        the latest generation's. If it is isolated, only objects of that owner's generations may be deleted: the other
        owners may still write. ``walk`` is called with the number of generations before any of them is read.

        Costs a listing of each kind for each generation, and a GET for each claim and each new snapshot. Raises
        StoreError, ReplicaGapError for a missing claim, and UnknownVersionError for a snapshot that only a newer
        litelog can read.
        """
        listed = self._client.claims()
        if walk is not None:
            walk(len(listed))
        claims = read_claims(self._client, listed)
        try:
            latest = find_latest(self._client)
        except NothingToRestoreError:
            return None
        mine = mine or latest
        names = sorted({*claims, *self._client.generations()})
        foreign = {name for name in names if mine.is_isolated and _owner(claims.get(name)) != mine.owner}
        own = [name for name in names if name not in foreign]
        # Read the claims before the snapshots: a later owner names only what is named now, or newer.
        others = tuple(facts for name in sorted(foreign) for facts in self._gather_other(name, claims.get(name)))
        gathered = tuple(self._gather(name, claims.get(name), is_newest=name == own[-1]) for name in own)
        own_snapshots = (snapshot for generation in gathered for snapshot in generation.snapshots)
        existing = {_place(snapshot) for snapshot in (*others, *own_snapshots)}
        self._described = {place: facts for place, facts in self._described.items() if place in existing}
        self._ranges = {run: run for facts in self._described.values() for run in facts.names or ()}
        return ReplicaFacts(gathered, latest.generation, tuple(drops), last_snapshot, others)

    def _gather_other(self, name: Generation, claim: Claim | None) -> tuple[SnapshotFacts, ...]:
        """Return the snapshots of another owner's generation."""
        described = tuple(self._describe(info, claim) for info in self._client.snapshots(name))
        return described or (SnapshotFacts(name, 0, 0, names=None),)

    def _gather(self, name: Generation, claim: Claim | None, *, is_newest: bool) -> GenerationFacts:
        # The order matters: if objects are sealed and named between two listings, more stays, and not less.
        wal = tuple(self._client.wal_segments(name))
        sealed = tuple(self._client.sealed_segments(name))
        described = tuple(self._describe(info, claim) for info in self._client.snapshots(name))
        ended = 0 if is_newest else max(self._last_shipped(wal), 0 if claim is None else claim.time)
        first = 0 if claim is None else claim.first
        return GenerationFacts(name, described, sealed, wal, ended, self._caught_up(name, claim), first)

    def _describe(self, info: IndexedInfo, claim: Claim | None) -> SnapshotFacts:
        """Return the facts of a snapshot. If it is not the claim's, what it names counts as unknown, so that all
        objects that it may name stay. A snapshot of a generation without a claim is not compared with any."""
        place = (info.generation, info.index, info.size)
        if place not in self._described:
            try:
                read = self._read(info, claim)
            except CorruptObjectError:
                return SnapshotFacts(info.generation, info.index, info.size, names=None)  # try again next time
            if read.predecessor_end is not None:
                self._predecessor_ends[info.generation] = read.predecessor_end
            described = describe_snapshot(read, info.generation, info.size)
            names = tuple(self._ranges.setdefault(run, run) for run in described.names or ())
            self._described[place] = replace(described, names=names)
        return self._described[place]

    def _read(self, info: IndexedInfo, claim: Claim | None) -> Snapshot:
        if claim is not None:
            return read_snapshot(self._client, claim, info.index)[0]
        key = snapshot_key(info.generation, info.index)
        return read_verified(
            lambda: self._client.read_snapshot(info.generation, info.index), lambda body: snapshots.decode(key, body)
        )

    def _last_shipped(self, wal: Sequence[WalSegmentInfo]) -> int:
        if not wal:
            return 0
        last = wal[-1].position
        if last not in self._ended:
            self._ended[last] = read_header(self._client, last).shipped
        return self._ended[last]

    def _caught_up(self, name: Generation, claim: Claim | None) -> int:
        if claim is None or claim.relation is not Relation.CONTINUES:
            return 0
        ends = [end for end in (claim.predecessor_end, self._predecessor_ends.get(name)) if end is not None]
        return max((end.index + claim.shift + (end.offset > 0) for end in ends), default=0)


def _owner(claim: Claim | None) -> str | None:
    return None if claim is None else claim.owner


def _place(snapshot: SnapshotFacts) -> tuple[Generation, int, int]:
    return snapshot.generation, snapshot.next, snapshot.size
