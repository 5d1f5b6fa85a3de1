"""A replica with only what planning reads: the claim, the snapshot, and the keys of WAL segments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.objects import claim as claims
from litelog.objects import snapshot as snapshots
from litelog.objects.claim import Claim, Relation
from litelog.objects.layout import snapshot_key, wal_key
from litelog.objects.position import Generation, Position
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.stores.object_store import ObjectInfo
from litelog.stores.registry import open_store
from replica_clients.file import FileStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.stores.object_store import ObjectStore

TIME = 1_700_000_000_000_000
SEGMENT, RECORDS = 64 << 20, 600_000
WAL = 64 << 10
GENERATION = Generation("0000000100000007")


def make_replica(name: str, objects: int) -> str:
    """Create a replica of sealed segments, half of ``objects``, and WAL segments, the other half. Return its URL."""
    url = f"memory://{name}"
    store = open_store(url)
    _put_head(store, objects // 2)
    for info in _wal_infos(objects):
        store.put(info.key, [b"\0" * info.size])
    return url


def write_replica(folder: str, objects: int) -> None:
    """Write a small whole replica to ``folder``/small, and the claim and the snapshot of a replica of ``objects``
    objects."""
    small = FileStore(f"{folder}/small")
    _put_head(small, 4)
    for info in _wal_infos(8):
        small.put(info.key, [b"\0" * info.size])
    _put_head(FileStore(f"{folder}/large"), objects // 2)


class ListedStore(FileStore):
    """A store of ``objects`` objects. It has the claim and the snapshot, and only the names of the WAL segments."""

    def __init__(self, folder: str, objects: int) -> None:
        super().__init__(f"{folder}/large")
        self._objects = objects

    def sign(self, key: str, seconds: int) -> str:
        """Return a URL, as stores do whose objects the columnar reader can read."""
        return f"http://localhost/{key}?seconds={seconds}"

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        yield from super().list(prefix, start_after)
        if prefix.startswith(f"generations/{GENERATION}/") and "/snapshots/" not in prefix:
            yield from _wal_infos(self._objects)


def _wal_infos(objects: int) -> Iterator[ObjectInfo]:
    sealed = objects // 2
    for number in range(objects - sealed):
        position = Position(GENERATION, sealed + number // 1000, number % 1000 * WAL)
        yield ObjectInfo(wal_key(position), 1000)


def _put_head(store: ObjectStore, sealed: int) -> None:
    """Put the claim, and the snapshot of ``sealed`` log segments."""
    claim = Claim(
        log="0" * 32,
        format="litelog",
        owner="1" * 32,
        host="bench",
        generation=GENERATION,
        first=0,
        relation=Relation.FIRST,
        time=TIME,
    )
    snapshot = Snapshot(
        log=claim.log,
        format=claim.format,
        generation=GENERATION,
        owner=claim.owner,
        first=0,
        next=sealed,
        created=TIME + sealed,
        predecessor_end=None,
        segments=tuple(_entries(GENERATION, sealed)),
    )
    store.put(claim.key, [claims.encode(claim)])
    store.put(snapshot_key(GENERATION, sealed), [snapshots.encode(snapshot)])


def _entries(generation: Generation, count: int) -> list[SnapshotEntry]:
    one = SnapshotEntry(
        index=0,
        generation=generation,
        sealed_index=0,
        file="0.log",
        size=SEGMENT // 2,
        length=SEGMENT,
        digest="ab" * 32,
        crc=1,
        first=0,
        next=RECORDS,
        records=RECORDS,
        lowest=TIME,
        highest=TIME,
        shipped_first=TIME,
        shipped_last=TIME,
        exact=False,
    )
    return [
        replace(
            one,
            index=number,
            sealed_index=number,
            file=f"{number * RECORDS:020d}.log",
            first=number * RECORDS,
            next=(number + 1) * RECORDS,
        )
        for number in range(count)
    ]
