"""Carries a retention plan out: in its order, in steps, each of which leaves a replica that is whole."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from litelog.retention.facts import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.objects.position import Generation
    from litelog.retention.facts import Removal
    from litelog.stores.replica_client import ReplicaClient

AT_ONCE = 100
"""How many snapshots or sealed segments one request deletes: within it, stores keep no order, and none is needed."""


def delete_planned(
    client: ReplicaClient, removals: Sequence[Removal], may_go_on: Callable[[], bool] = lambda: True
) -> Iterator[Sequence[Removal]]:
    """Delete ``removals`` in their order; yields each step's, once they are gone. Ends once ``may_go_on()`` is false.

    All snapshots of a plan are gone before anything that they name is. WAL segments go one by one, since whoever was
    suspended relies on it that none goes before those that are older; a generation's newest snapshot goes alone, since
    it tells which WAL segments may be gone. What is gone already is no error. StoreError.
    """
    for step in _steps(removals):
        if not may_go_on():
            return
        _delete(client, step[0].kind, step)
        yield step


def _steps(removals: Sequence[Removal]) -> Iterator[Sequence[Removal]]:
    for (kind, _), run in groupby(removals, key=_run_of):
        same = list(run)
        together = len(same) - 1 if kind is Kind.SNAPSHOT else len(same)
        yield from _split(same[:together], 1 if kind is Kind.WAL else AT_ONCE)
        if together < len(same):
            yield same[together:]


def _run_of(removal: Removal) -> tuple[Kind, Generation | None]:
    return removal.kind, None if removal.kind is Kind.SEALED else removal.generation


def _split(removals: Sequence[Removal], size: int) -> Iterator[Sequence[Removal]]:
    for start in range(0, len(removals), size):
        yield removals[start : start + size]


def _delete(client: ReplicaClient, kind: Kind, step: Sequence[Removal]) -> None:
    if kind is Kind.WAL:
        client.delete_wal_segments(removal.position for removal in step if removal.position is not None)
    elif kind is Kind.SEALED:
        client.delete_sealed_segments((removal.generation, removal.number) for removal in step)
    else:
        client.delete_snapshots((removal.generation, removal.number) for removal in step)
