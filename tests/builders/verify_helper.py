"""A small replica with every kind of object, and verifications of its copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.objects.claim import Relation
from litelog.verify.execution import verify
from replica_clients.memory import MemoryStore
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from litelog.formats import LogFormat
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.report import VerifyReport
    from tests.builders.replica_builder import LogSegment

LOG = make_log([[2, 3, 1], [4, 2], [1], [2, 2, 2]])


def store_of(objects: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore("copy")
    for key, body in objects.items():
        store.put(key, [body])
    return store


def verified(store: ObjectStore | dict[str, bytes], log_format: LogFormat = FORMAT, **options: Any) -> VerifyReport:
    """The report of ``verify`` for a store, or for a copy of objects."""
    if isinstance(store, dict):
        store = store_of(store)
    return verify(store, formats=lambda name: log_format, **options)


def found(report: VerifyReport, *, harmful: bool = True) -> list[tuple[str, str]]:
    """(kind, key) of each anomaly."""
    return [(str(anomaly.kind), anomaly.key) for anomaly in report.anomalies if anomaly.harmful or not harmful]


def everything() -> ReplicaBuilder:
    """A replica of three generations.

    The first was pruned and ended. The second continues it, and has a ``final`` that stands for a sealed log segment.
    The third diverged, began with sealed log segments, and still grows."""
    builder = ReplicaBuilder()
    first = builder.add()
    for segment in LOG[:2]:
        first.ship_segment(segment, cuts=[0])
    first.snapshot(1)
    first.ship_segment(LOG[2], final="empty")
    first.snapshot(2)
    first.prune(2)
    second = builder.add()
    for segment in LOG[:2]:
        second.ship_segment(segment, cuts=[1])
    second.stand_for_sealed(LOG[2])
    second.ship_segment(LOG[3], cuts=[0], final=None)
    second.snapshot(3)
    claim = builder.claim(Relation.DIVERGED, first=2)
    third = builder.add(claim, start=False)
    entries = [third.seal_unshipped(index, segment) for index, segment in enumerate(LOG[:2])]
    third.start(entries)
    third.ship_segment(LOG[2])
    third.ship_segment(LOG[3], cuts=[0], final=None)
    return builder


def kinds(store: dict[str, bytes] | ObjectStore, **options: Any) -> set[str]:
    """The kinds of the harmful anomalies that a verification finds."""
    return {kind for kind, _ in found(verified(store, **options))}


def write_log(folder: Path, log: Sequence[LogSegment]) -> None:
    """Write the log segments of a log to a folder."""
    folder.mkdir(exist_ok=True)
    for segment in log:
        (folder / segment.name).write_bytes(segment.data)
