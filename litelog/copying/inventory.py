"""Lists the replica and its copy, orders what the copy lacks, and refuses a target that is not a copy."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from litelog.copying.verified_objects import is_same
from litelog.dataclass import dataclass
from litelog.errors import NoReplicaError, NotACopyError
from litelog.objects import layout
from litelog.objects.position import Generation, epoch_of
from litelog.stores.missing import describe_missing
from litelog.stores.object_store import ordered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.objects.position import ClaimName, Position
    from litelog.stores.object_store import ObjectInfo, ObjectStore


@dataclass(slots=True)
class CopiedGeneration:
    """The objects of one generation, each kind in the order of its keys."""

    name: Generation
    sealed: list[ObjectInfo] = field(default_factory=list)
    snapshots: list[ObjectInfo] = field(default_factory=list)
    wal_segments: list[ObjectInfo] = field(default_factory=list)
    order: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """The place of each snapshot and WAL segment in the order in which their owner put them, by key."""

    def add_snapshot(self, info: ObjectInfo, index: int) -> None:
        """Add a snapshot at the start of an index: it comes before the WAL segments of the index."""
        self.snapshots.append(info)
        self.order[info.key] = index, 0, 0

    def add_wal_segment(self, info: ObjectInfo, position: Position) -> None:
        """Add the WAL segment at a position."""
        self.wal_segments.append(info)
        self.order[info.key] = position.index, 1, position.offset

    def in_turns(self, copied: CopiedGeneration | None) -> list[list[ObjectInfo]]:
        """Snapshots and WAL segments in the order in which their owner put them: one turn.

        If WAL segments were removed that ``copied``, the same generation in the copy, lacks, the snapshots are a turn
        of their own before the others: they cover the hole.
        """
        wal = self.wal_segments
        if copied is not None and copied.wal_segments and wal and wal[0] not in copied.wal_segments:
            return [self.snapshots, wal]
        return [sorted([*self.snapshots, *wal], key=lambda info: self.order[info.key])]

    def find_removed(self, copied: CopiedGeneration | None) -> list[str]:
        """The keys of WAL segments that only ``copied`` has, and that a snapshot of the replica covers."""
        if copied is None or not self.snapshots:
            return []
        left, covered = set(self.wal_segments), self.order[self.snapshots[-1].key]
        removed = [info.key for info in copied.wal_segments if info not in left]
        return [key for key in removed if copied.order[key] < covered]


@dataclass(slots=True)
class ListedReplica:
    """All objects of a replica, or of its copy."""

    claims: dict[ClaimName, ObjectInfo] = field(default_factory=dict)
    """In order of their epochs."""
    generations: dict[Generation, CopiedGeneration] = field(default_factory=dict)
    """In order of their age."""
    checkpoints: list[ObjectInfo] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each object, by key."""
    foreign: int = 0
    """Objects whose names are outside the layout. They do not belong to the replica."""

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    def by_epoch(self) -> Iterator[tuple[list[ObjectInfo], list[CopiedGeneration]]]:
        """(its claims, its generations) of each epoch, in order. Isolated owners may have several."""
        epochs: dict[int, tuple[list[ObjectInfo], list[CopiedGeneration]]] = {}
        for claim, info in self.claims.items():
            epochs.setdefault(claim.epoch, ([], []))[0].append(info)
        for name, held in self.generations.items():
            epochs.setdefault(epoch_of(name), ([], []))[1].append(held)
        for _, found in sorted(epochs.items()):
            yield found

    def objects(self) -> Iterator[ObjectInfo]:
        """All objects: claims, then the generations, and then the checkpoints."""
        yield from self.claims.values()
        for held in self.generations.values():
            yield from (*held.sealed, *held.snapshots, *held.wal_segments)
        yield from self.checkpoints


def list_objects(store: ObjectStore) -> ListedReplica:
    """List a replica. Raises StoreError."""
    found = ListedReplica()
    for info in ordered(store.list("")):
        if _add(found, info):
            found.sizes[info.key] = info.size
        else:
            found.foreign += not (layout.is_trial(info.key) or layout.parse_consumer(info.key) is not None)
    return found


def _add(found: ListedReplica, info: ObjectInfo) -> bool:
    if (claim := layout.parse_claim(info.key)) is not None:
        found.claims[claim] = info
        return True
    if layout.parse_checkpoint(info.key) is not None:
        found.checkpoints.append(info)
        return True
    name = layout.parse_generation(info.key)
    if name is None:
        return False
    if layout.parse_sealed(info.key) is not None:
        _held(found, name).sealed.append(info)
    elif (snapshot := layout.parse_snapshot(info.key)) is not None:
        _held(found, name).add_snapshot(info, snapshot[1])
    elif (position := layout.parse_wal(info.key)) is not None:
        _held(found, name).add_wal_segment(info, position)
    else:
        return False
    return True


def _held(found: ListedReplica, name: Generation) -> CopiedGeneration:
    return found.generations.setdefault(name, CopiedGeneration(name))


def list_both(source: ObjectStore, target: ObjectStore) -> tuple[ListedReplica, ListedReplica]:
    """(objects of the replica, objects of its copy).

    The copy is listed first: so the replica has all that another process has just copied.

    Raises:
        NoReplicaError: ``source`` holds no replica.
        NotACopyError: ``target`` holds objects that are not in ``source``.
        StoreError: A request failed.
    """
    held, wanted = list_objects(target), list_objects(source)
    if not wanted.claims:
        raise NoReplicaError(source.url, describe_missing(source))
    _require_copy(source, target, wanted, held)
    return wanted, held


def _require_copy(source: ObjectStore, target: ObjectStore, wanted: ListedReplica, held: ListedReplica) -> None:
    """Raise NotACopyError for a claim or a generation that the replica lacks, and for an object of another size.

    The replica keeps all its claims, and retention may have removed any other object of it.
    """
    for info in held.claims.values():
        if info.key not in wanted.sizes:
            raise NotACopyError(target.url, source.url, info.key, "only the target has it")
    isolated = {name.isolated for name in wanted.claims}
    epochs = {name.epoch for name in wanted.claims if name.isolated is None}
    for generation in held.generations:
        if generation not in wanted.generations and generation not in isolated and epoch_of(generation) not in epochs:
            raise NotACopyError(target.url, source.url, layout.generation_prefix(generation), "only the target has it")
    for key, size in held.sizes.items():
        if wanted.sizes.get(key, size) != size:
            raise NotACopyError(target.url, source.url, key, f"{size} bytes there, {wanted.sizes[key]} bytes here")
    newest = next(reversed(held.claims.values()), None)
    if newest is not None and not is_same(source, target, newest.key):
        raise NotACopyError(target.url, source.url, newest.key, "its bytes differ")
