"""A replica in memory with only what planning reads: the claim, the snapshot, and the keys of WAL segments."""

from __future__ import annotations

from dataclasses import replace

from litelog.objects import claim as claims
from litelog.objects import snapshot as snapshots
from litelog.objects.claim import Claim, Relation
from litelog.objects.layout import snapshot_key, wal_key
from litelog.objects.position import Position, new_generation
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.stores.registry import open_store

TIME = 1_700_000_000_000_000
SEGMENT, RECORDS = 64 << 20, 600_000
WAL = 64 << 10


def make_replica(name: str, objects: int) -> str:
    """Create a replica of sealed segments, half of ``objects``, and WAL segments, the other half. Return its URL."""
    url = f"memory://{name}"
    store = open_store(url)
    sealed = objects // 2
    generation = new_generation(1, 7)
    claim = Claim(
        log="0" * 32,
        format="litelog",
        owner="1" * 32,
        host="bench",
        generation=generation,
        first=0,
        relation=Relation.FIRST,
        time=TIME,
    )
    snapshot = Snapshot(
        log=claim.log,
        format=claim.format,
        generation=generation,
        owner=claim.owner,
        first=0,
        next=sealed,
        created=TIME + sealed,
        predecessor_end=None,
        segments=tuple(_entries(generation, sealed)),
    )
    store.put(claim.key, [claims.encode(claim)])
    store.put(snapshot_key(generation, sealed), [snapshots.encode(snapshot)])
    for number in range(objects - sealed):
        position = Position(generation, sealed + number // 1000, number % 1000 * WAL)
        store.put(wal_key(position), [b"\0" * 1000])
    return url


def _entries(generation: str, count: int) -> list[SnapshotEntry]:
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
