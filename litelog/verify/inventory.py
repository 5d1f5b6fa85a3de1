"""The inventory of a replica, from listings alone: one pass over all names, and listings of parts."""

from __future__ import annotations

from dataclasses import field
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.objects import layout
from litelog.stores.object_store import ordered
from litelog.verify.findings import AnomalyKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.objects.position import Generation, Position
    from litelog.stores.object_store import ObjectInfo, ObjectStore
    from litelog.verify.findings import Anomalies


@dataclass(slots=True)
class ListedObjects:
    """The objects of one generation in a listing. Sizes are in bytes."""

    name: Generation
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    """(index, size) of each snapshot."""
    sealed: int = 0
    """The number of sealed segments."""
    wal_segments: int = 0
    first_wal: Position | None = None
    """The position of the first existing WAL segment."""


@dataclass(slots=True)
class Inventory:
    """A listing of a replica. Memory grows with claims, consumers, checkpoints, generations and snapshots, and nothing
    else."""

    claims: list[str] = field(default_factory=list)
    """Their keys."""
    consumers: list[str] = field(default_factory=list)
    """The keys of consumers' positions."""
    checkpoints: list[str] = field(default_factory=list)
    """The keys of checkpoints."""
    generations: dict[Generation, ListedObjects] = field(default_factory=dict)
    objects: int = 0
    bytes: int = 0


def take_inventory(store: ObjectStore, anomalies: Anomalies) -> Inventory:
    """List all objects. Names outside the layout are harmless anomalies. Raises StoreError."""
    found = Inventory()
    for info in ordered(store.list("")):
        if not _take(found, info) and not layout.is_trial(info.key):
            anomalies.add(AnomalyKind.FOREIGN, info.key, "is not a name of the layout", harmful=False)
    return found


def take_generation_inventory(store: ObjectStore, name: Generation) -> ListedObjects:
    """List one generation again. Raises StoreError."""
    found = Inventory()
    for info in ordered(store.list(layout.generation_prefix(name))):
        _take(found, info)
    return _held(found, name)


def wal_between(store: ObjectStore, start: Position, stop: Position | None) -> Iterator[tuple[Position, int]]:
    """List the (position, size) of the WAL segments of one generation in [start, stop), again."""
    listing = ordered(store.list(layout.wal_prefix(start.generation), layout.wal_key(start)[:-1]))
    parsed = ((layout.parse_wal(info.key), info.size) for info in listing)
    found = ((position, size) for position, size in parsed if position is not None)
    return takewhile(lambda pair: stop is None or pair[0] < stop, found)


def sealed_of(store: ObjectStore, generation: Generation) -> Iterator[tuple[int, int]]:
    """(index, size) of a generation's sealed segments."""
    for info in ordered(store.list(layout.sealed_prefix(generation))):
        if (parsed := layout.parse_sealed(info.key)) is not None:
            yield parsed[1], info.size


def snapshots_of(store: ObjectStore, generation: Generation) -> list[tuple[int, int]]:
    """(index, size) of a generation's snapshots."""
    listing = ((layout.parse_snapshot(info.key), info.size) for info in store.list(layout.snapshot_prefix(generation)))
    return [(parsed[1], size) for parsed, size in listing if parsed is not None]


def _take(found: Inventory, info: ObjectInfo) -> bool:
    """Count an object. Return False if its name is outside the layout."""
    if layout.parse_claim(info.key) is not None:
        found.claims.append(info.key)
    elif layout.parse_consumer(info.key) is not None:
        found.consumers.append(info.key)
        return True
    elif layout.parse_checkpoint(info.key) is not None:
        found.checkpoints.append(info.key)
        return True
    elif (position := layout.parse_wal(info.key)) is not None:
        held = _held(found, position.generation)
        held.wal_segments += 1
        held.first_wal = held.first_wal or position
    elif (sealed := layout.parse_sealed(info.key)) is not None:
        _held(found, sealed[0]).sealed += 1
    elif (snapshot := layout.parse_snapshot(info.key)) is not None:
        _held(found, snapshot[0]).snapshots.append((snapshot[1], info.size))
    else:
        return False
    found.objects += 1
    found.bytes += info.size
    return True


def _held(found: Inventory, name: Generation) -> ListedObjects:
    return found.generations.setdefault(name, ListedObjects(name))
